// Writes mixtures of experts (MoE and QMoE of com.microsoft) as operators of ONNX.
//
// The choice of experts is a decision that rounding errors may change. Written as a TopK, it is
// watched, bounded and followed like the other decisions of a model (steps/decisions.h):
//
//   router_probs [T, E] -> TopK -> chosen [T, k] -> Softmax -> weights [E, T, 1]
//   input [T, H] -> MatMul, activation, MatMul of all E experts -> [E, T, H] -> weighted sum
//
// Every expert computes every token, so a step takes E / k times the operator's own time.
#pragma once

#include "absl/status/statusor.h"
#include "onnxio/model/model.h"

namespace kvlift {

// Returns the model with such operators in place of each MoE and QMoE of the main graph, or the
// model itself if it has none. Names of values that it adds depend on the operator's output alone.
// An operator stays as it is if the operators' texts or ONNX Runtime's CPU provider do not say what
// it computes: a sparse mixer, separate router weights, FC3, floating-point codes, weights that a
// provider has packed. Errors are those of Graph::Build.
absl::StatusOr<Model> WithPlainExperts(const Model& model);

}  // namespace kvlift
