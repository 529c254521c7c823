// The declared or inferred shapes of a node's operands, as far as they are known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kvlift {

class NodeShapes {
 public:
  NodeShapes(const Graph& graph, NodeId node) : graph_(graph), node_(node) {}

  bool Has(size_t input) const;
  ValueId Value(size_t input) const;
  // -1 if unknown.
  int Rank(size_t input) const;
  // The static extent of an axis; nullopt if absent, unknown or symbolic.
  std::optional<int64_t> Extent(size_t input, int axis) const;
  int32_t ElemType(size_t input) const;  // 0: unknown
  std::string Show(size_t input) const;  // "key [2, 4, T, 8]"

 private:
  const TensorType* Type(size_t input) const;

  const Graph& graph_;
  NodeId node_;
};

}  // namespace kvlift
