// Negative controls: small, wrong variants of a converted model. A run that does not tell each of
// them from the source proves nothing about the model itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/tensor.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// What may be seen of an operand of an attention in every step that is run. A number that is added
// to all scores of a token changes nothing: masks that differ so are the same.
enum class SeenFact {
  kRowsEqual,       // of a mask: all tokens of a step see the same
  kSequencesEqual,  // all sequences do
  kOnlyHides,       // it holds nothing but 0 and numbers that hide
  kWhole,           // of valid lengths: they are the number of keys
};

// What a mutant is held against, besides the plans.
enum class Detector {
  kPlans,
  kOverflow,  // steps that begin or end outside the cache must be refused
  kRules,     // of the operators, the format and the relation
  kAlias,     // the relation's claim about updates in place
};

struct Mutant {
  std::string name;                    // "write index + 1"
  std::string group;                   // "write"
  std::vector<onnx::NodeProto> nodes;  // instead of the model's
  std::vector<onnx::TensorProto> constants;
  std::function<void(onnx::ModelProto*)> finish;  // edits the rest
  // Takes away one of perhaps several things that hide keys; it shows only where it is the only
  // one.
  bool guard = false;
  Detector detector = Detector::kPlans;
  std::string equivalent;  // why it changes nothing in this model
  // ... it changes nothing if this was seen of that value.
  std::optional<SeenFact> equivalent_if;
  std::string equivalent_value;
};

// A value of the model as it was when the model ran.
struct SeenValue {
  int32_t type = 0;
  exec::Shape shape;
  std::set<SeenFact> facts;  // what held in every step
};

struct MutantLimits {
  bool ragged = true;                     // lengths differ between sequences in some plan
  std::string one_length;                 // if not: what allows one only
  bool many_tokens = true;                // some step has more than one new token
  bool everywhere = false;                // in every layer, not in the last alone
  std::vector<std::string> positions;     // inputs that hold lengths or positions
  std::set<std::string> totals;           // those of them that say where the keys end
  std::string last_slot;                  // why no step reaches it; empty: one does
  std::string last_start;                 // why no step begins in it
  std::map<std::string, SeenValue> seen;  // operands of attentions
};

// All that apply to the model. Each breaks one thing; in the last layer where layers can differ,
// and in all of them if the limits say so.
std::vector<Mutant> MakeMutants(const Graph& graph, const Manifest& relation,
                                const MutantLimits& limits);

// The model with nothing that hides keys in its last attention; empty if there was nothing.
std::vector<Mutant> MakeUnguarded(const Graph& graph);

}  // namespace kvlift
