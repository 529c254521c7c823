// Caches of cross-attention in a merged decoder: the first call computes keys and values of the
// encoder's sequence, and the host feeds them to all later calls. When the large If of the merged
// decoder is removed, a small If around these caches stays.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "sym/forms/forms.h"

namespace kvlift {

struct CrossAttentionCache {
  std::string past;     // the graph input that later calls read
  std::string present;  // the output that the first call computes; empty constants in later calls
  std::string first;    // the value of `present` in the first call, in the graph of both calls
};

// Returns the constant that v is, directly or behind Identity nodes, if it has no elements; nullptr
// for any other value.
const onnx::TensorProto* EmptyConstant(const Graph& graph, ValueId v);

// Returns `later` with an If node in front of it, whose outputs are the values of each past and
// each present of `crossings`.
// later: the model of later calls. both: the graph of both calls, in which names of the first call
// start with `prefix`; only the nodes that keys and values need are copied from it.
// condition: a bool value of `later` that equals `truth` in later calls.
absl::StatusOr<onnx::ModelProto> KeepCrossAttentionCaches(
    const onnx::ModelProto& later, sym::Forms& both, const std::string& prefix,
    const std::string& condition, bool truth, absl::Span<const CrossAttentionCache> crossings);

}  // namespace kvlift
