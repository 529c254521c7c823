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

// Of a MatMul, ONNX Runtime's FusedMatMul, or an Einsum of rank 4 that says the same; nothing if
// the node is none.
std::optional<Product> ReadProduct(sym::Forms& forms, NodeId node);

}  // namespace kvlift
