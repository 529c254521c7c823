// Raises a model's default-domain opset to 24, where TensorScatter and the Attention with
// nonpad_kv_seqlen exist, and its IR version to what that opset needs. Nothing goes further.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

inline constexpr int64_t kTargetOpset = 24;
inline constexpr int64_t kTargetIrVersion = 12;  // the IR of the release that brought opset 24
inline constexpr int64_t kOldestOpset = 7;       // broadcasting as it is today

struct RaisedOpset {
  onnx::ModelProto model;
  std::optional<Finding> refusal;  // KV201: then `model` is unchanged
};

// A node is kept as it is if the operator's newer version reads it the same way: every attribute
// still exists, and no default that the node relies on has changed. Known changes are adapted:
// attributes that became inputs, Split's num_outputs, Dropout's ratio and unread mask, Scatter's
// name, Softmax before 13 (Flatten and Reshape around it where its axis is not the last).
// Everything else is refused by name. Nodes in subgraphs are included;
// model-local functions must have been inlined, and operands be there (ir/arity.h). A model at
// opset 24 or later is returned as it is. Source: ONNX operator schemas and their histories, 1.23.
RaisedOpset RaiseOpset(onnx::ModelProto model);

}  // namespace kvlift
