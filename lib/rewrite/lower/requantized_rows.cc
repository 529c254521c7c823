#include "rewrite/lower/requantized_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/operators/operator_traits.h"
#include "ir/operators/quantizer.h"
#include "ir/patch.h"
#include "ir/tensor_data.h"
#include "ir/types.h"

namespace kvlift {
namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, std::vector<Normalised::Origin>* origins)
      : graph_(graph), nodes_(graph), origins_(origins) {}

  void Lower(NodeId n) {
    const onnx::NodeProto& node = graph_.node(n);
    const std::vector<int> parts = RequantizedOperands(node);
    const auto inputs = graph_.inputs(n);
    if (std::find(inputs.begin(), inputs.end(), kNoValue) != inputs.end()) return;
    if (std::none_of(parts.begin(), parts.end(), [&](int k) { return HandsOn(inputs[k]); })) return;
    const bool concat = node.op_type() == "QLinearConcat";
    const int scale = concat ? 0 : 7;
    const std::string scope = fmt::format("requantized.{}", patch_.remove_nodes.size());
    nodes_.set_scope(scope);
    origins_->push_back({fmt::format("/kvlift/{}/", scope), graph_.NodeName(n)});
    NodeBuilder::Inputs codes;
    if (!concat) codes.push_back(graph_.name(inputs[0]));  // the condition
    for (int k : parts) codes.push_back(Requantized(n, k, scale));
    nodes_.AddNamed(concat ? "Concat" : "Where", codes, node.op_type(),
                    graph_.name(graph_.outputs(n)[0]),
                    {node.attribute().begin(), node.attribute().end()});
    patch_.remove_nodes.insert(n);
  }

  absl::StatusOr<onnx::ModelProto> Finish() {
    patch_.drop_value_info = false;
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    return Apply(graph_, patch_);
  }

  bool changes() const { return !patch_.remove_nodes.empty(); }

 private:
  // Returns true if a value holds elements of a graph input that only moved or were quantised.
  bool HandsOn(ValueId v, int depth = 0) const {
    constexpr int kMostNodes = 16;
    if (v == kNoValue || depth > kMostNodes) return false;
    if (graph_.is_graph_input(v)) return ElementBits(graph_.type(v).elem_type) <= 32;
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    std::vector<int> from = MovedOperands(graph_.node(n));
    if (graph_.Is(n, "QuantizeLinear") || graph_.Is(n, "DequantizeLinear")) from = {0};
    if (from.empty()) from = RequantizedOperands(graph_.node(n));
    return std::any_of(from.begin(), from.end(),
                       [&](int k) { return HandsOn(graph_.inputs(n)[k], depth + 1); });
  }

  // Returns the name of operand k of a node as codes of the result's scale.
  std::string Requantized(NodeId n, int k, int scale) {
    const auto inputs = graph_.inputs(n);
    const auto name = [&](int operand) { return graph_.name(inputs[operand]); };
    if (Same(inputs[k + 1], inputs[scale]) && Same(inputs[k + 2], inputs[scale + 1])) {
      return name(k);
    }
    const std::string number =
        nodes_.Add("DequantizeLinear", {name(k), name(k + 1), name(k + 2)}, "DequantizeLinear");
    return nodes_.Add("QuantizeLinear", {number, name(scale), name(scale + 1)}, "QuantizeLinear");
  }

  // Returns true if two values are constants of one number and of one type.
  bool Same(ValueId a, ValueId b) const {
    if (a == b) return true;
    const onnx::TensorProto* const x = ConstantBehind(graph_, a);
    const onnx::TensorProto* const y = ConstantBehind(graph_, b);
    if (x == nullptr || y == nullptr || x->data_type() != y->data_type()) return false;
    const auto equal = [](const auto& p, const auto& q) {
      return p.ok() && q.ok() && p->size() == 1 && *p == *q;
    };
    return IsFloatType(x->data_type()) ? equal(ReadFloats(*x), ReadFloats(*y))
                                       : equal(ReadInts(*x), ReadInts(*y));
  }

  const Graph& graph_;
  NodeBuilder nodes_;
  Patch patch_;
  std::vector<Normalised::Origin>* origins_;
};

}  // namespace

absl::Status LowerRequantizedRows(Normalised* result) {
  const auto& nodes = result->model.graph().node();
  if (std::all_of(nodes.begin(), nodes.end(),
                  [](const auto& node) { return RequantizedOperands(node).empty(); })) {
    return absl::OkStatus();
  }
  const auto shared = std::make_shared<const onnx::ModelProto>(std::move(result->model));
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  Lowering lowering(graph, &result->origins);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) lowering.Lower(n);
  if (!lowering.changes()) {
    result->model = *shared;
    return absl::OkStatus();
  }
  KV_ASSIGN_OR_RETURN(result->model, lowering.Finish());
  return absl::OkStatus();
}

}  // namespace kvlift
