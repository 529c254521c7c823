// Mutants: small, wrong variants of a converted model, as negative controls. A run that does not
// detect each of them says nothing about the model itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A fact about an operand of an attention that held in every step that was run. Masks are compared
// as a softmax takes them: rows that differ by one number that is added to all keys are equal.
enum class SeenFact {
  kRowsEqual,       // a mask is the same for all new tokens of a step
  kSequencesEqual,  // a mask is the same for all sequences
  kOnlyHides,       // a float mask holds only 0 and numbers below -1000
  kWhole,           // each sequence's number of valid keys is the number of keys
};

// The check that has to detect a mutant.
enum class Detector {
  kPlans,     // the comparison with the records of the source
  kOverflow,  // steps outside the cache, which have to be refused
  kRules,     // the rules of the operators, the format and the relation (lint)
  kAlias,     // the relation's claim that a cache may be updated in place
};

struct Mutant {
  std::string name;                               // "write index + 1"
  std::string group;                              // "write"
  std::vector<onnx::NodeProto> nodes;             // all nodes of the mutant
  std::vector<onnx::TensorProto> constants;       // added to the model's initialisers
  std::function<void(onnx::ModelProto*)> finish;  // edits the built model; null: nothing to edit
  // Removes one of the conditions that hide keys. Undetectable where another condition hides the
  // same keys.
  bool guard = false;
  Detector detector = Detector::kPlans;
  std::string equivalent;  // why the mutant is equivalent to this model; empty: not known to be
  // The mutant is equivalent if this fact held of the value `equivalent_value`; nullopt: never.
  std::optional<SeenFact> equivalent_if;
  std::string equivalent_value;
};

// The observations of one value while the converted model ran.
struct SeenValue {
  int32_t type = 0;          // a TensorProto::DataType
  exec::Shape shape;         // in the last step
  std::set<SeenFact> facts;  // what held in every step
};

struct MutantLimits {
  bool ragged = true;                     // in some step the lengths of the sequences differ
  std::string one_length;                 // why they never differ; empty if `ragged`
  bool many_tokens = true;                // some step has more than one new token
  bool everywhere = false;                // mutants of every layer, not of the last one only
  std::vector<std::string> positions;     // inputs of the model that hold lengths or positions
  std::set<std::string> totals;           // those of `positions` that say where the keys end
  std::string last_slot;                  // why no step writes the last slot; empty: a step does
  std::string last_start;                 // why no step begins in the last slot; empty: may begin
  std::map<std::string, SeenValue> seen;  // operands of attentions, by name
};

// Returns all mutants that apply to the model. Each breaks one thing, in the last layer or, with
// `everywhere`, in each layer.
std::vector<Mutant> MakeMutants(const Graph& graph, const Manifest& relation,
                                const MutantLimits& limits);

// Returns the model without any condition that hides keys in its last attention, and without the
// masks of all attentions if there are several. Empty if the last attention hides no key.
std::vector<Mutant> MakeUnguarded(const Graph& graph);

}  // namespace kvlift
