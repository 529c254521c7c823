// Reads the two operators that multiply matrices: MatMul, and FusedMatMul of com.microsoft.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace kvlift {

// alpha * a b, where trans_a and trans_b swap the last two axes of a and b first.
struct Product {
  bool trans_a = false, trans_b = false;
  double alpha = 1.0;
};

// Returns nullopt for other nodes, and for a FusedMatMul that moves batch axes.
std::optional<Product> ReadProduct(const Graph& graph, NodeId node);

}  // namespace kvlift
