// Keys and values of another sequence in a merged decoder: the first call computes them, later ones
// are handed them. A small If around them is all that stays of the large one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "sym/forms.h"

namespace kvlift {

struct Crossing {
  std::string past;     // the input that later calls read
  std::string present;  // the output that the first call computes; later calls give nothing for it
  std::string first;    // its value in the graph of both calls
};

// The constant without elements that v is, maybe under another name; nullptr if it is none.
const onnx::TensorProto* EmptyConstant(const Graph& graph, ValueId v);

// `later`: the model of later calls. `both`: the graph of both calls, where values of the first one
// start with `prefix`; the first call's branch computes no more than its keys and values need.
// `condition` is a value of `later` that is `truth` where there is a past.
absl::StatusOr<onnx::ModelProto> KeepCrossings(const onnx::ModelProto& later, sym::Forms& both,
                                               const std::string& prefix,
                                               const std::string& condition, bool truth,
                                               absl::Span<const Crossing> crossings);

}  // namespace kvlift
