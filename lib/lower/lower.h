// The way down from opset 24: TensorScatter and Attention become operators that older runtimes
// have. The interface of the model stays as it is, and so do all other nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// What becomes of the two operators.
enum class LowerTo {
  kScatterNd,    // TensorScatter: ScatterND. Attention stays.
  kWhere,        // TensorScatter: GatherElements and Where. Attention stays.
  kAttention23,  // TensorScatter: ScatterND. Attention: that of opset 23, with a drawn mask.
  kDecomposed,   // TensorScatter: ScatterND. Attention: MatMul, Softmax, MatMul.
};
// Reads "scatternd", "where", "attention-23" or "decomposed". Returns nullopt for other words.
std::optional<LowerTo> ReadLowerTo(std::string_view word);

struct LowerOptions {
  LowerTo to = LowerTo::kScatterNd;
  // The opset of the result. Absent: 23 for kAttention23, else 22, unless a node that stays needs a
  // newer one; and never one that is newer than the model's.
  std::optional<int64_t> opset;
};

struct Lowered {
  // Absent: `refusal` says why.
  std::optional<onnx::ModelProto> model;
  std::optional<Finding> refusal;
  int scatters = 0, attentions = 0;  // the nodes that were lowered
  int64_t opset = 0;                 // of the result
};

// Lowers a model. Calls of model-local functions are inlined first. Refuses (KV253) if there is
// nothing to lower, if one of the operators has a form that is not lowered or stands in a body of
// If, Loop or Scan, and if a node needs a newer opset than the result is to have. Fails as
// Graph::Build and InlineFunctions.
absl::StatusOr<Lowered> Lower(const onnx::ModelProto& model, const LowerOptions& options);

}  // namespace kvlift
