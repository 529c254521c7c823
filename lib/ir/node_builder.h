// Collects new nodes and initialisers with names that are unique in a graph. Names say where they
// belong: "/kvlift/" + scope + role. Equal nodes (operator, inputs, attributes) are made once.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

onnx::AttributeProto MakeAttribute(std::string_view name, int64_t value);
onnx::AttributeProto MakeAttribute(std::string_view name, float value);
onnx::AttributeProto MakeAttribute(std::string_view name, const std::vector<int64_t>& values);
onnx::AttributeProto MakeAttribute(std::string_view name, std::string_view value);

class NodeBuilder {
 public:
  using Inputs = std::vector<std::string>;
  using Attributes = std::vector<onnx::AttributeProto>;

  explicit NodeBuilder(const Graph& graph);

  // Names of what follows start with "/kvlift/SCOPE/".
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  // Returns the name of the node's only output: an existing one if an equal node was made before.
  std::string Add(std::string_view op_type, const Inputs& inputs, std::string_view role,
                  Attributes attributes = {});
  // The same with a given output name; never shared with an equal node.
  void AddNamed(std::string_view op_type, const Inputs& inputs, std::string_view role,
                const std::string& output, Attributes attributes = {});

  // int64 [1]: the extent of a value's axis.
  std::string Extent(const std::string& value, int64_t axis, std::string_view role);

  // Constants, shared by content, also with those that another builder left in the graph.
  std::string Int64s(const std::vector<int64_t>& values);  // [n]
  std::string Int64(int64_t value);                        // scalar
  std::string Scalar(double value, int32_t elem_type);     // float types, integers, bool
  std::string Bytes(const std::vector<int32_t>& values, std::string_view role);  // uint8 [n]
  std::string Floats(const std::vector<int64_t>& dims, const std::vector<float>& values,
                     std::string_view role);

  std::vector<onnx::NodeProto> TakeNodes() { return std::move(nodes_); }
  std::vector<onnx::TensorProto> TakeInitializers() { return std::move(initializers_); }

 private:
  std::string Unique(std::string_view role);
  std::string Constant(onnx::TensorProto tensor, std::string_view role);

  std::string scope_ = "shared";
  absl::flat_hash_set<std::string> taken_;
  absl::flat_hash_map<std::string, std::string> made_;  // serialised node or tensor -> output
  std::vector<onnx::NodeProto> nodes_;
  std::vector<onnx::TensorProto> initializers_;
};

}  // namespace kvlift
