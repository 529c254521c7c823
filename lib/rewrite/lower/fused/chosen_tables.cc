#include "rewrite/lower/fused/chosen_tables.h"

#include "ir/subgraphs.h"

namespace kvlift::fused {

std::optional<ChosenTable> ReadChosenTable(Lowering& l, NodeId n, size_t input) {
  const Graph& graph = l.graph();
  if (!l.has(n, input)) return std::nullopt;
  const ValueId v = BehindIdentity(graph, graph.inputs(n)[input]);
  const NodeId made = graph.producer(v);
  if (made == kNoNode || !graph.Is(made, "If")) return std::nullopt;
  const int k = graph.output_index(v);
  const ChosenTable table = {l.in(made, 0), ConstantOfBranch(graph.node(made), "then_branch", k),
                             ConstantOfBranch(graph.node(made), "else_branch", k)};
  if (table.if_true == nullptr || table.if_false == nullptr) return std::nullopt;
  for (const onnx::TensorProto* tensor : {table.if_true, table.if_false}) {
    if (tensor->dims_size() != 2 || tensor->dims(0) < 1 || tensor->dims(1) != table.width() ||
        tensor->data_type() != table.if_true->data_type()) {
      return std::nullopt;
    }
  }
  return table;
}

int64_t WidthOfTable(Lowering& l, NodeId n, size_t input) {
  const auto table = ReadChosenTable(l, n, input);
  return table ? table->width() : l.Extent(n, input, 1);
}

std::string RowsOfChosenTable(Lowering& l, const ChosenTable& table, const std::string& positions) {
  NodeBuilder& nodes = l.nodes();
  const auto rows = [&](const onnx::TensorProto& tensor) {
    const std::string at =
        nodes.Add("Min", {positions, nodes.Int64(tensor.dims(0) - 1)}, "rows_of_table");
    return nodes.Add("Gather", {l.Lifted(tensor), at}, "rows");
  };
  // An If takes a condition of one element and any rank; a Where broadcasts it.
  const ValueId v = l.graph().Find(table.condition);
  const auto shape = v == kNoValue ? std::nullopt : l.graph().type(v).shape;
  const std::string condition = shape && shape->size() <= 1
                                    ? table.condition
                                    : nodes.Add("Squeeze", {table.condition}, "condition");
  return nodes.Add("Where", {condition, rows(*table.if_true), rows(*table.if_false)},
                   "chosen_rows");
}

}  // namespace kvlift::fused
