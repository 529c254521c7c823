// Raises a model's default-domain opset to 24, the first with TensorScatter and with the Attention
// that has nonpad_kv_seqlen, and its IR version to 12. Never raises either further.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

inline constexpr int64_t kTargetOpset = 24;
inline constexpr int64_t kTargetIrVersion = 12;  // the IR version of ONNX's release with opset 24
inline constexpr int64_t kOldestOpset = 7;       // the first with multidirectional broadcasting

struct RaisedOpset {
  onnx::ModelProto model;
  std::optional<Finding> refusal;  // KV201: then `model` is unchanged
};

// A node is kept if the operator's newer version reads it the same way: every attribute still
// exists, and no default that the node relies on has changed. Known changes are adapted: attributes
// that became inputs, Split's num_outputs, Dropout's ratio and unread mask, Scatter's name, Softmax
// before 13 (Flatten and Reshape around it unless its axis is the last). All others are refused,
// with the operator's name. Covers nodes in subgraphs. The model must have no model-local
// functions but those of IsBodyOfOperator (onnxio/model/functions.h), which are raised as well, and
// left out if they cannot be; and its nodes must have all required operands (ir/arity.h). A model
// at opset 24 or later is returned unchanged. Source: ONNX operator schemas and their
// histories, 1.23.
RaisedOpset RaiseOpset(onnx::ModelProto model);

}  // namespace kvlift
