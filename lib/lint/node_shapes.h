// Reads the declared or inferred types of a node's inputs, as far as they are known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kvlift {

class NodeShapes {
 public:
  NodeShapes(const Graph& graph, NodeId node) : graph_(graph), node_(node) {}

  // Returns true if the input is not omitted.
  bool Has(size_t input) const;
  // The value of the input; kNoValue if it is omitted.
  ValueId Value(size_t input) const;
  // The rank of the input; -1 if it is omitted or unknown.
  int Rank(size_t input) const;
  // The static extent of an axis; nullopt if it is symbolic or unknown, or the input has no such
  // axis.
  std::optional<int64_t> Extent(size_t input, int axis) const;
  int32_t ElemType(size_t input) const;  // onnx::TensorProto::DataType; 0: unknown
  std::string Show(size_t input) const;  // for messages: "key [2, 4, T, 8]"

 private:
  const TensorType* Type(size_t input) const;

  const Graph& graph_;
  NodeId node_;
};

}  // namespace kvlift
