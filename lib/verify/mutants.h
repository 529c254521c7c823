// Negative controls: small, wrong variants of a converted model. A run that does not tell each of
// them from the source proves nothing about the model itself.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Mutant {
  std::string name;  // "write index + 1"
  std::shared_ptr<const onnx::ModelProto> model;
  // Takes away one of perhaps several things that hide keys; it shows only where it is the only
  // one.
  bool guard = false;
};

struct MutantLimits {
  bool ragged = true;                  // lengths differ between sequences in some plan
  bool many_tokens = true;             // some step has more than one new token
  std::vector<std::string> positions;  // inputs that hold lengths or positions
  std::set<std::string> totals;        // those of them that say where the keys end
};

// All that apply to the model. Each breaks one thing, in the last layer where layers can differ.
std::vector<Mutant> MakeMutants(const Graph& graph, const Manifest& relation,
                                const MutantLimits& limits);

// The model with nothing that hides keys in its last attention; empty if there was nothing.
std::vector<Mutant> MakeUnguarded(const Graph& graph);

}  // namespace kvlift
