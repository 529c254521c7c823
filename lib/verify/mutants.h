// Negative controls: small, wrong variants of a converted model. A run that does not tell each of
// them from the source proves nothing about the model itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Mutant {
  std::string name;  // "write index + 1"
  std::shared_ptr<const onnx::ModelProto> model;
};

struct MutantLimits {
  bool ragged = true;       // lengths differ between sequences in some plan
  bool many_tokens = true;  // some step has more than one new token
};

// All that apply to the model. Each breaks one thing, in the last layer where layers can differ.
std::vector<Mutant> MakeMutants(const Graph& graph, const MutantLimits& limits);

}  // namespace kvlift
