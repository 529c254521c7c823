// Finds the oldest opset in which all nodes of a model compute what they compute now.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "onnx/onnx_pb.h"

namespace kvlift::lower {

// The oldest opset of a result: sym::Forms reads no older ones, and opset 13 changed Softmax and
// Squeeze.
inline constexpr int64_t kOldestResult = 13;

struct LowestOpset {
  int64_t version = kOldestResult;
  std::string node, op_type;  // the first node that needs it; empty for kOldestResult
};

// A node may go to an older opset if the operator's version there has all attributes, operands and
// results of the node, takes the element types of its operands, and has the same defaults. `pinned`
// are names of nodes that need the model's own opset. Looks into bodies of If, Loop and Scan. The
// model has no model-local functions.
LowestOpset FindLowestOpset(const onnx::ModelProto& model,
                            const absl::flat_hash_set<std::string>& pinned);

// Sets the version of the default domain, and the IR version of its release if that is older.
void SetOpset(int64_t version, onnx::ModelProto* model);

}  // namespace kvlift::lower
