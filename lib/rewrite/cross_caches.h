// Keys and values of another sequence in a merged decoder: the first call computes them, later ones
// are handed them. A small If around them is all that stays of the large one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Crossing {
  std::string past;     // the input that later calls read
  std::string present;  // the output that the first call computes; later calls give nothing for it
  std::string first;    // its value in the graph of both calls
};

// `later`: the model of later calls. `both`: the graph of both calls, where values of the first one
// start with `prefix`. `condition` is a value of `later` that is `truth` where there is a past.
absl::StatusOr<onnx::ModelProto> KeepCrossings(const onnx::ModelProto& later, const Graph& both,
                                               const std::string& prefix,
                                               const std::string& condition, bool truth,
                                               absl::Span<const Crossing> crossings);

}  // namespace kvlift
