// Collects new nodes of the default domain and new initialisers. Their names are unique in the
// graph and say where they belong: "/kvlift/" + scope + "/" + role. Nodes with equal operator,
// inputs and attributes are made once.
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

// Returns `name`, with underscores behind it until `taken` does not hold it, and adds it to
// `taken`.
std::string FreeName(std::string name, absl::flat_hash_set<std::string>* taken);

class NodeBuilder {
 public:
  using Inputs = std::vector<std::string>;
  using Attributes = std::vector<onnx::AttributeProto>;

  // Makes nodes whose names are unique among themselves only, for nodes that enter no graph.
  NodeBuilder() = default;
  explicit NodeBuilder(const Graph& graph);

  // Sets the scope of nodes that are added from now on: their names start with "/kvlift/SCOPE/".
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  // Adds a node and returns the name of its only output. If an equal node was added before, returns
  // the output of that one.
  std::string Add(std::string_view op_type, const Inputs& inputs, std::string_view role,
                  Attributes attributes = {});
  // Adds a node whose only output is named `output`. It is never shared with an equal node.
  void AddNamed(std::string_view op_type, const Inputs& inputs, std::string_view role,
                const std::string& output, Attributes attributes = {});

  // Adds nodes that compute the extent of one axis of `value`. Returns the name of the result,
  // int64 [1].
  std::string Extent(const std::string& value, int64_t axis, std::string_view role);

  // Return the name of an initialiser with the given content. Equal initialisers are shared, also
  // with those that an earlier NodeBuilder left in the graph.
  std::string Int64s(const std::vector<int64_t>& values);  // [n]
  std::string Int64(int64_t value);                        // scalar
  // A scalar of a float type, an integer type or bool; `value` is rounded to that type.
  std::string Scalar(double value, int32_t elem_type);
  std::string Copy(onnx::TensorProto tensor, std::string_view role);  // any; its name is not kept
  std::string Bytes(const std::vector<int32_t>& values, std::string_view role);  // uint8 [n]
  // float32 of shape `dims`, row-major.
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
