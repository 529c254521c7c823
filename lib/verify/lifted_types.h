// Models of half precision, computed in float32.
//
// Which type a model stores its numbers in says nothing of its structure: what a wrong mask changes
// may be less than what half types round away. A model is therefore judged with float16 and
// bfloat16 computed in float32, and run in its own types for agreement.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model.h"

namespace kvlift {

// Whether any value, weight or Cast of the model is float16 or bfloat16.
bool HasHalfTypes(const onnx::ModelProto& model);

// Makes models whose float16 and bfloat16 are float32: of inputs, outputs, weights, and of what
// Casts make. Weights that several models have in common are widened once and shared.
class LiftedWeights {
 public:
  LiftedWeights();

  // The lifted model keeps the model's proto. InvalidArgument, NotFound and OutOfRange for a weight
  // that cannot be read.
  absl::StatusOr<Model> WithFloat32(const Model& model) const;

 private:
  class Store;
  std::shared_ptr<Store> store_;
};

// The relation of two such models.
Manifest WithFloat32(Manifest relation);

}  // namespace kvlift
