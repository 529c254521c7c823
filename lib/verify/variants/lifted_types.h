// Lifts models of half precision to float32.
//
// In float16 and bfloat16 a wrong mask may change outputs by less than rounding does. The structure
// of a model is therefore judged with both types lifted to float32; then both models are run in
// their own types, where they must agree within rounding.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"

namespace kvlift {

// Returns true if an input, output, initialiser or attribute of the graph or of its bodies has the
// type float16 or bfloat16.
bool HasHalfTypes(const onnx::ModelProto& model);

// Makes models with float32 in place of float16 and bfloat16: in inputs, outputs, weights, and
// attributes that name a type. Weights in the same memory are widened once and shared by all models
// that one object lifts.
class LiftedWeights {
 public:
  LiftedWeights();

  // Returns the lifted model, which keeps the proto of `model` alive. Integers that a Cast of the
  // main graph takes to a half type are rounded as before, since half types do not distinguish
  // positions above 2048: that belongs to what the model computes. InvalidArgument, NotFound or
  // OutOfRange for a weight that cannot be read.
  absl::StatusOr<Model> WithFloat32(const Model& model) const;

 private:
  class Store;
  std::shared_ptr<Store> store_;
};

// Returns the relation of two lifted models: float32 for each half type of caches and inputs.
Manifest WithFloat32(Manifest relation);

}  // namespace kvlift
