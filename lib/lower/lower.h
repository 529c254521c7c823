// Lowers TensorScatter and Attention of opset 24 to operators that older runtimes have. The
// interface of the model and all other nodes stay as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// The operators that replace TensorScatter and Attention.
enum class LowerTo {
  kScatterNd,    // TensorScatter: ScatterND. Attention stays.
  kWhere,        // TensorScatter: GatherElements and Where. Attention stays.
  kAttention23,  // TensorScatter: ScatterND. Attention: that of opset 23, with a computed mask.
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
// nothing to lower, if one of the two operators is used in a way that is not supported or in a body
// of If, Loop or Scan, or if LowerOptions::opset is older than a node needs, or newer than the
// model's. Fails as Graph::Build and InlineFunctions.
absl::StatusOr<Lowered> Lower(const onnx::ModelProto& model, const LowerOptions& options);

}  // namespace kvlift
