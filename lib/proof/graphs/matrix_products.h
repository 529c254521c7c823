// Reads nodes that are matrix products over the last two axes, one for each batch and head.
#pragma once

#include <optional>

#include "sym/forms/forms.h"

namespace kvlift {

// A product in which either operand may be transposed and the result is multiplied by `factor`.
struct Product {
  bool left_transposed = false, right_transposed = false;
  double factor = 1;
};

// Reads the product that a node computes: MatMul, ONNX Runtime's FusedMatMul, or an Einsum such as
// bhsd,bhtd->bhst with operands of rank 4 and a summed axis of the same extent in both. Returns
// nullopt for any other node. Source: ONNX MatMul and Einsum; com.microsoft FusedMatMul.
std::optional<Product> ReadProduct(sym::Forms& forms, NodeId node);

}  // namespace kvlift
