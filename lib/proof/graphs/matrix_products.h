// Reads nodes that are matrix products over the last two axes, one for each batch and head.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace kvlift {

// A product in which either operand may be transposed and the result is multiplied by `factor`.
struct MatrixProduct {
  bool left_transposed = false, right_transposed = false;
  double factor = 1;
};

// Reads the product that a node computes: MatMul, or ONNX Runtime's FusedMatMul. Returns nullopt
// for any other node. Source: ONNX MatMul; com.microsoft FusedMatMul.
std::optional<MatrixProduct> ReadMatrixProduct(const Graph& graph, NodeId node);

}  // namespace kvlift
