// A read-only index over a ModelProto's main graph: values, nodes in topological order, producers,
// and all uses of every value: node inputs, graph outputs, and captures by If/Loop/Scan bodies
// (reported at the node that owns the body). Edits are made through ir/patch.h on a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an omitted optional input or output
inline constexpr NodeId kNoNode = -1;

struct Use {
  enum class Kind { kNodeInput, kGraphOutput, kCapture };
  Kind kind;
  NodeId node;  // kNoNode for kGraphOutput
  int index;    // input position, or position among the graph's outputs; 0 for kCapture

  friend bool operator==(const Use&, const Use&) = default;
};

class Graph {
 public:
  // Returns InvalidArgument for duplicate definitions, undefined names, cycles, or a missing
  // ai.onnx opset import. Unsorted nodes are accepted: node ids are a topological order that
  // keeps the file's order where it can.
  static absl::StatusOr<Graph> Build(std::shared_ptr<const onnx::ModelProto> model);

  const onnx::ModelProto& model() const { return *model_; }
  const std::shared_ptr<const onnx::ModelProto>& shared_model() const { return model_; }
  const onnx::GraphProto& proto() const { return model_->graph(); }
  // Version of the default domain ("" or "ai.onnx").
  int64_t opset() const { return opset_; }

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_values() const { return static_cast<int>(values_.size()); }

  const onnx::NodeProto& node(NodeId n) const { return *nodes_[n].proto; }
  absl::Span<const ValueId> inputs(NodeId n) const { return nodes_[n].inputs; }
  absl::Span<const ValueId> outputs(NodeId n) const { return nodes_[n].outputs; }
  // Outer values that the node's subgraphs read, each once.
  absl::Span<const ValueId> captures(NodeId n) const { return nodes_[n].captures; }
  // The node's name, or its first output's name if it has none.
  std::string NodeName(NodeId n) const;
  // True for the default domain and this operator.
  bool Is(NodeId n, std::string_view op_type) const;

  const std::string& name(ValueId v) const { return values_[v].name; }
  ValueId Find(std::string_view name) const;  // kNoValue if there is none
  NodeId producer(ValueId v) const { return values_[v].producer; }
  int output_index(ValueId v) const { return values_[v].output_index; }
  absl::Span<const Use> uses(ValueId v) const { return values_[v].uses; }
  bool is_graph_input(ValueId v) const { return values_[v].graph_input; }
  bool is_graph_output(ValueId v) const;
  // Declared or inferred type: graph inputs and outputs, value_info, initialisers.
  const TensorType& type(ValueId v) const { return values_[v].type; }
  // The constant behind v: an initialiser that no input shadows, or a Constant node's tensor
  // (other Constant attributes are turned into a tensor). nullptr if v is not constant.
  const onnx::TensorProto* constant(ValueId v) const { return values_[v].constant; }

  // Graph inputs that are not initialisers, and graph outputs, in file order.
  absl::Span<const ValueId> graph_inputs() const { return graph_inputs_; }
  absl::Span<const ValueId> graph_outputs() const { return graph_outputs_; }

 private:
  struct NodeEntry {
    const onnx::NodeProto* proto;
    std::vector<ValueId> inputs, outputs, captures;
  };
  struct ValueEntry {
    std::string name;
    NodeId producer = kNoNode;
    int output_index = 0;
    bool graph_input = false;
    TensorType type;
    const onnx::TensorProto* constant = nullptr;
    std::vector<Use> uses;
  };
  friend class GraphBuilder;

  std::shared_ptr<const onnx::ModelProto> model_;
  int64_t opset_ = 0;
  std::vector<NodeEntry> nodes_;
  std::vector<ValueEntry> values_;
  std::vector<ValueId> graph_inputs_, graph_outputs_;
  std::vector<std::unique_ptr<onnx::TensorProto>> owned_constants_;
  absl::flat_hash_map<std::string, ValueId> by_name_;
};

// The attribute, or nullptr.
const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, std::string_view name);
int64_t IntAttribute(const onnx::NodeProto& node, std::string_view name, int64_t fallback);
float FloatAttribute(const onnx::NodeProto& node, std::string_view name, float fallback);
std::string StringAttribute(const onnx::NodeProto& node, std::string_view name,
                            std::string_view fallback);
std::vector<int64_t> IntsAttribute(const onnx::NodeProto& node, std::string_view name);

}  // namespace kvlift
