// Products of matrices, one for each batch and head.
#pragma once

#include <optional>

#include "sym/forms.h"

namespace kvlift {

// The last two axes of an operand may be exchanged, and the result multiplied.
struct Product {
  bool left_turned = false, right_turned = false;
  double factor = 1;
};

// The product that a MatMul, ONNX Runtime's FusedMatMul, or an Einsum of rank 4 computes; nothing
// if the node is none of them.
std::optional<Product> ReadProduct(sym::Forms& forms, NodeId node);

}  // namespace kvlift
