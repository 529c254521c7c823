#include "proof/lower/expand_requantized.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "proof/lower/contrib_writer.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

bool IsConcat(const NodeProto& node) {
  return node.op_type() == "QLinearConcat" && node.input_size() >= 5 && node.input_size() % 3 == 2;
}

bool IsWhere(const NodeProto& node) {
  return node.op_type() == "QLinearWhere" && node.input_size() == 9;
}

bool IsRequantizing(const NodeProto& node) {
  const bool given = node.domain() == "com.microsoft" && (IsConcat(node) || IsWhere(node));
  for (int k = 0; given && k < node.input_size(); ++k) {
    if (!plain::Has(node, k)) return false;
  }
  return given && node.output_size() == 1;
}

// The scale and the zero point of numbers, by name.
struct Grid {
  std::string scale, zero;
};

// Returns true if both names stand for one number, known from constants.
bool IsOneNumber(const Graph& graph, const std::string& left, const std::string& right) {
  if (left == right) return true;
  const auto* const a = ConstantBehind(graph, graph.Find(left));
  const auto* const b = ConstantBehind(graph, graph.Find(right));
  if (a == nullptr || b == nullptr || a->data_type() != b->data_type()) return false;
  if (IsFloatType(a->data_type())) {
    const auto x = ReadFloats(*a), y = ReadFloats(*b);
    return x.ok() && y.ok() && x->size() == 1 && y->size() == 1 && x->front() == y->front();
  }
  const auto x = ReadInts(*a), y = ReadInts(*b);
  return x.ok() && y.ok() && x->size() == 1 && y->size() == 1 && x->front() == y->front();
}

// Writes the numbers of operand k of `node` on the grid of the result; returns their name.
std::string OnGrid(const Graph& graph, const NodeProto& node, int k, const Grid& to,
                   plain::Writer& w) {
  const Grid from = {node.input(k + 1), node.input(k + 2)};
  if (IsOneNumber(graph, from.scale, to.scale) && IsOneNumber(graph, from.zero, to.zero)) {
    return node.input(k);
  }
  w.Node("DequantizeLinear", {node.input(k), from.scale, from.zero});
  const std::string number = w.Name();
  w.Node("QuantizeLinear", {number, to.scale, to.zero});
  return w.Name();
}

}  // namespace

absl::StatusOr<onnx::ModelProto> ExpandRequantized(onnx::ModelProto model) {
  bool any = false;
  for (const NodeProto& node : model.graph().node()) any = any || IsRequantizing(node);
  if (!any) return model;
  const auto shared = std::make_shared<const onnx::ModelProto>(model);
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  model.mutable_graph()->clear_node();
  for (const NodeProto& node : shared->graph().node()) {
    if (!IsRequantizing(node)) {
      *model.mutable_graph()->add_node() = node;
      continue;
    }
    plain::Writer w(node, model.mutable_graph());
    std::vector<std::string> parts;
    if (IsConcat(node)) {
      for (int k = 2; k < node.input_size(); k += 3) {
        parts.push_back(OnGrid(graph, node, k, {node.input(0), node.input(1)}, w));
      }
      *w.Node("Concat", std::move(parts), node.output(0)).mutable_attribute() = node.attribute();
    } else {
      const Grid result = {node.input(7), node.input(8)};
      parts = {node.input(0), OnGrid(graph, node, 1, result, w), OnGrid(graph, node, 4, result, w)};
      w.Node("Where", std::move(parts), node.output(0));
    }
    for (NodeProto& part : w.Take()) *model.mutable_graph()->add_node() = std::move(part);
  }
  return model;
}

}  // namespace kvlift
