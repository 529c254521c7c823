#include "rewrite/lower/fused/sliding_buffer.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/live_nodes.h"
#include "rewrite/types/cache_update.h"

namespace kvlift::fused {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kRowAxis = 2;

int64_t WindowOf(const onnx::NodeProto& node) {
  return IntAttribute(node, "local_window_size", -1);
}

// Returns the value that an operand is, Identity nodes apart.
ValueId InputOf(Lowering& l, NodeId n, int operand) {
  return BehindIdentity(l.graph(), l.graph().inputs(n)[operand]);
}

// Returns true if a graph input has an initializer.
bool HasDefault(const Graph& graph, ValueId v) {
  const auto& initializers = graph.proto().initializer();
  return std::any_of(initializers.begin(), initializers.end(),
                     [&](const auto& tensor) { return tensor.name() == graph.name(v); });
}

// Returns the numbers of rows of the pasts that keep all rows, of the model's other
// GroupQueryAttention nodes.
std::vector<Expr> RowsOfOthers(Lowering& l, size_t past) {
  std::vector<Expr> rows;
  const Graph& graph = l.graph();
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto& node = graph.node(n);
    if (node.op_type() != "GroupQueryAttention" || HasSlidingBuffers(node)) continue;
    if (l.has(n, past) && l.Rank(n, past) == 4) rows.push_back(l.Form(n, past).shape[kRowAxis]);
  }
  return rows;
}

std::set<std::string> DeclaredSymbols(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto* values : {&graph.input(), &graph.output(), &graph.value_info()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      for (const auto& dim : value.type().tensor_type().shape().dim()) {
        names.insert(dim.dim_param());
      }
    }
  }
  return names;
}

// Returns the symbol of P that other pasts have, or a new one.
std::string PastLengthSymbol(Lowering& l, size_t past) {
  for (Expr rows : RowsOfOthers(l, past)) {
    if (rows->kind() == Kind::kDim) return rows->dim().name();
  }
  const std::set<std::string> taken = DeclaredSymbols(l.graph().proto());
  std::string name = "past_sequence_length";
  while (taken.contains(name)) name += "_";
  return name;
}

// Sets the extent of the row axis of a graph input or output; an empty symbol leaves it open.
void DeclareRows(Lowering& l, const std::string& name, const std::string& symbol) {
  const auto& graph = l.graph().proto();
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      if (value.name() != name || !value.type().tensor_type().has_shape()) continue;
      auto [type, added] = l.patch().retype.try_emplace(name, value.type());
      auto* dim = type->second.mutable_tensor_type()->mutable_shape()->mutable_dim(kRowAxis);
      dim->Clear();
      if (!symbol.empty()) dim->set_dim_param(symbol);
    }
  }
}

}  // namespace

bool HasSlidingBuffers(const onnx::NodeProto& node) {
  return node.domain() == "com.microsoft" && node.op_type() == "GroupQueryAttention" &&
         IntAttribute(node, "sliding_window_cache", 0) == 1;
}

std::string WhyNotSliding(Lowering& l, NodeId n, const SlidingOperands& at) {
  const Graph& graph = l.graph();
  const int64_t window = WindowOf(graph.node(n));
  if (window < 1) return "needs a local_window_size beside sliding_window_cache";
  if (l.has(n, at.bias)) return "needs no attention_bias beside sliding_window_cache";
  const absl::flat_hash_set<NodeId> live = LiveNodes(graph);
  for (const int past : at.pasts) {
    const ValueId v = InputOf(l, n, past);
    const std::vector<Use> uses = LiveUses(graph, live, v);
    if (!graph.is_graph_input(v) || HasDefault(graph, v) || uses.size() != 1) {
      return fmt::format(
          "needs a past that nothing else reads beside sliding_window_cache, found "
          "{}",
          graph.name(v));
    }
    const int64_t slots = l.Extent(n, past, kRowAxis);
    if (slots != 0 && slots < window) {
      return fmt::format("needs a buffer for its window of {} tokens, found {} slots", window,
                         slots);
    }
  }
  const Expr keys = l.Form(n, at.pasts[0]).shape[kRowAxis];
  const Expr values = l.Form(n, at.pasts[1]).shape[kRowAxis];
  if (keys != values && (keys->kind() == Kind::kInteger || values->kind() == Kind::kInteger)) {
    return "needs as many slots for keys as for values";
  }
  for (const int present : at.presents) {
    const ValueId v = graph.outputs(n)[present];
    const std::vector<Use> uses = LiveUses(graph, live, v);
    if (uses.size() != 1 || uses[0].kind != Use::Kind::kGraphOutput) {
      return fmt::format(
          "needs a present that only the host reads beside sliding_window_cache, "
          "found {}",
          graph.name(v));
    }
  }
  const std::vector<Expr> others = RowsOfOthers(l, at.pasts[0]);
  if (std::any_of(others.begin(), others.end(),
                  [](Expr rows) { return rows->kind() == Kind::kInteger; })) {
    return "needs other pasts that grow beside sliding_window_cache, found a buffer with a "
           "constant number of slots";
  }
  return {};
}

Expr PastLength(Lowering& l, const SlidingOperands& at) {
  for (Expr rows : RowsOfOthers(l, at.pasts[0])) {
    if (rows->kind() == Kind::kDim) return rows;
  }
  return l.forms().pool().Dim(PastSymbol());
}

void DeclareAllRows(Lowering& l, NodeId n, const SlidingOperands& at) {
  const Graph& graph = l.graph();
  const std::string symbol = PastLengthSymbol(l, at.pasts[0]);
  for (const int past : at.pasts) {
    const std::string& name = graph.name(InputOf(l, n, past));
    const int64_t slots = l.Extent(n, past, kRowAxis);
    DeclareRows(l, name, symbol);
    l.HoldNewest(name, {WindowOf(graph.node(n)), slots != 0 ? std::optional(slots) : std::nullopt});
  }
  const absl::flat_hash_set<NodeId> live = LiveNodes(graph);
  for (const int present : at.presents) {
    const Use output = LiveUses(graph, live, graph.outputs(n)[present])[0];
    DeclareRows(l, graph.name(graph.graph_outputs()[output.index]), "");
  }
}

}  // namespace kvlift::fused
