// A read-only index over the main graph of a ModelProto: values, nodes in topological order, the
// producer of each value, and all of its uses: node inputs, graph outputs, and captures by bodies
// of If, Loop and Scan (reported at the node that owns the body). A Graph never changes; ir/patch.h
// makes an edited copy of the model.
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
  // Indexes a model. Nodes need not be sorted: node ids are a topological order that keeps the
  // file's order where it can. Returns InvalidArgument with the code KV002 for a model without a
  // graph, KV023 for a missing or ambiguous import of the default domain, KV024 for names that are
  // missing, undefined or defined twice, KV025 for cycles, and KV026 for wrong numbers of operands
  // (ir/arity.h). Does not check types, shapes or attributes.
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
  // Values of the main graph that the bodies of the node read, each once.
  absl::Span<const ValueId> captures(NodeId n) const { return nodes_[n].captures; }
  // Returns the node's name, or the name of its first output if it has none.
  std::string NodeName(NodeId n) const;
  // Returns true if the node is this operator of the default domain.
  bool Is(NodeId n, std::string_view op_type) const;

  const std::string& name(ValueId v) const { return values_[v].name; }
  ValueId Find(std::string_view name) const;  // kNoValue if no value has this name
  // The node that computes v; kNoNode for inputs and initialisers.
  NodeId producer(ValueId v) const { return values_[v].producer; }
  int output_index(ValueId v) const { return values_[v].output_index; }
  absl::Span<const Use> uses(ValueId v) const { return values_[v].uses; }
  // True if the host can feed v, also if an initialiser of the same name is its default value.
  bool is_graph_input(ValueId v) const { return values_[v].graph_input; }
  bool is_graph_output(ValueId v) const;
  // The type that the model declares for v: as graph input or output, in value_info, or as
  // initialiser or Constant. elem_type is 0 and the shape is absent where nothing is declared.
  const TensorType& type(ValueId v) const { return values_[v].type; }
  // The constant value of v: an initialiser that no input overrides, or the tensor of a Constant
  // node (made from its attribute if that is a scalar or a list). nullptr if v is not constant, or
  // sparse.
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

// Return an attribute of a node by name. FindAttribute returns nullptr if there is none;
// IntsAttribute returns an empty list. The others return `fallback` if it is absent or of another
// kind.
const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, std::string_view name);
int64_t IntAttribute(const onnx::NodeProto& node, std::string_view name, int64_t fallback);
float FloatAttribute(const onnx::NodeProto& node, std::string_view name, float fallback);
std::string StringAttribute(const onnx::NodeProto& node, std::string_view name,
                            std::string_view fallback);
std::vector<int64_t> IntsAttribute(const onnx::NodeProto& node, std::string_view name);

// Returns the element type T (onnx::TensorProto::DataType) if every node that reads elements of v,
// directly or through Identity nodes, is a Cast to T. Shape and Size read no elements. Returns 0
// otherwise.
int32_t TypeOfAllCasts(const Graph& graph, ValueId v);

// Returns the value that v is behind Identity nodes; v itself if no Identity makes it.
ValueId BehindIdentity(const Graph& graph, ValueId v);
// Returns the constant that a value is, also behind Identity nodes; nullptr for all other values
// and for kNoValue.
const onnx::TensorProto* ConstantBehind(const Graph& graph, ValueId v);
// Returns true for constants, and for values that nodes compute from constants alone, as a
// DequantizeLinear of weights is. Returns false if a search of a few dozen values does not tell.
bool IsOfConstants(const Graph& graph, ValueId v);

}  // namespace kvlift
