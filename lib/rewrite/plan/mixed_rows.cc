// The part of CrossTokenFinder that knows which operators mix rows: those that reduce, normalise,
// accumulate or multiply along an axis of tokens or sequences.
#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/match.h"
#include "ir/operators/operator_traits.h"
#include "ir/types.h"
#include "rewrite/plan/cross_token_finder.h"

namespace kvlift {
namespace {

using sym::Expr;

bool QuantizesDynamically(const Graph& graph, NodeId n) {
  return absl::StartsWith(graph.node(n).op_type(), "DynamicQuantize");
}

}  // namespace

namespace internal {

bool HoldsReals(int32_t elem_type) {
  return IsFloatType(elem_type) || (IsIntegerType(elem_type) && ElementBits(elem_type) <= 8);
}

// Returns the reduced axes, counted from the front; all axes if they are not known.
std::vector<int64_t> CrossTokenFinder::ReducedAxes(NodeId n, int64_t rank) const {
  std::vector<int64_t> axes = IntsAttribute(graph_.node(n), "axes"), all;
  for (int64_t k = 0; k < rank; ++k) all.push_back(k);
  if (const ValueId v = Operand(n, 1); v != kNoValue) {
    const auto elements = forms_.Elements(v);
    if (!elements) return all;
    for (Expr e : *elements) {
      if (e->kind() != sym::Kind::kInteger) return all;
      axes.push_back(e->value());
    }
  }
  if (axes.empty()) {
    return IntAttribute(graph_.node(n), "noop_with_empty_axes", 0) == 0 ? all : axes;
  }
  for (int64_t& axis : axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return all;
  }
  return axes;
}

// Returns true if the extent counts tokens or sequences of a step. The number of keys does not,
// also of caches that stay: it contains the past length, another size, or a number of the host.
bool CrossTokenFinder::HoldsRows(Expr extent) const {
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
  if (dims.empty() || !sym::LoadsOf(extent).empty()) return false;
  return std::all_of(dims.begin(), dims.end(), [&](const sym::DimSymbol& dim) {
    return rows_.contains(dim) && !past_.contains(dim);
  });
}

// Returns true if the operand holds real numbers and one of the axes counts tokens or sequences
// of a step; negative axes count from the end.
bool CrossTokenFinder::RowsOn(NodeId n, int operand, const std::vector<int64_t>& axes) {
  const ValueId v = Operand(n, operand);
  if (v == kNoValue || !HoldsReals(forms_.ElementType(v))) return false;
  const sym::Form& form = forms_.Of(v);
  if (!form.known_rank) return false;
  const auto rank = static_cast<int64_t>(form.shape.size());
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) {
    const int64_t at = axis < 0 ? axis + rank : axis;
    return at >= 0 && at < rank && HoldsRows(form.shape[at]);
  });
}

// Returns RowsOn for the axes [first, rank) of operand 0.
bool CrossTokenFinder::RowsFrom(NodeId n, int64_t first) {
  const ValueId v = Operand(n, 0);
  if (v == kNoValue || !forms_.Of(v).known_rank) return false;
  const auto rank = static_cast<int64_t>(forms_.Of(v).shape.size());
  std::vector<int64_t> axes;
  for (int64_t k = first < 0 ? first + rank : first; k < rank; ++k) axes.push_back(k);
  return RowsOn(n, 0, axes);
}

bool CrossTokenFinder::ReduceMixes(NodeId n) {
  const onnx::NodeProto& node = graph_.node(n);
  std::vector<int64_t> axes = IntsAttribute(node, "axes");
  if (const ValueId v = Operand(n, 1); v != kNoValue) {
    const auto elements = forms_.Elements(v);
    if (!elements) return RowsFrom(n, 0);
    for (Expr e : *elements) {
      if (e->kind() != sym::Kind::kInteger) return RowsFrom(n, 0);
      axes.push_back(e->value());
    }
  }
  if (!axes.empty()) return RowsOn(n, 0, axes);
  return IntAttribute(node, "noop_with_empty_axes", 0) == 0 && RowsFrom(n, 0);
}

bool CrossTokenFinder::CumSumMixes(NodeId n) {
  const ValueId v = Operand(n, 1);
  const auto axis = v == kNoValue ? std::nullopt : forms_.Elements(v);
  const bool known = axis && axis->size() == 1 && axis->front()->kind() == sym::Kind::kInteger;
  return known ? RowsOn(n, 0, {axis->front()->value()}) : RowsFrom(n, 0);
}

bool CrossTokenFinder::Mixes(NodeId n) {
  const onnx::NodeProto& node = graph_.node(n);
  const std::string& op = node.op_type();
  const auto is = [&](std::initializer_list<std::string_view> ops) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  if (TakesIntegersTogether(n)) return !IsLastPosition(n);
  if (absl::StartsWith(op, "Reduce")) return ReduceMixes(n);
  if (IsGlobalPool(node)) return RowsFrom(n, 2);
  if (QuantizesDynamically(graph_, n)) return RowsFrom(n, 0);
  if (is({"Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "TopK", "LpNormalization"})) {
    return RowsOn(n, 0, {IntAttribute(node, "axis", -1)});
  }
  if (is({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
          "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})) {
    return RowsFrom(n, IntAttribute(node, "axis", -1));
  }
  if (op == "GroupNormalization") return RowsFrom(n, 1);
  if (IsTrainingNormalization(node)) return RowsFrom(n, 0);
  if (absl::StartsWith(op, "Conv") || absl::EndsWith(op, "Pool") || op == "InstanceNormalization") {
    return RowsFrom(n, 2);
  }
  if (op == "MeanVarianceNormalization") {
    const std::vector<int64_t> axes = IntsAttribute(node, "axes");
    return RowsOn(n, 0, axes.empty() ? std::vector<int64_t>{0, 2, 3} : axes);
  }
  if (is({"LSTM", "GRU", "RNN"})) return RowsFrom(n, 0);
  if (op == "CumSum") return CumSumMixes(n);
  if (is({"MatMul", "FusedMatMul", "MatMulInteger", "MatMulIntegerToFloat"})) {
    return RowsOn(n, 0, {-1}) || RowsOn(n, 1, {-2});
  }
  if (op == "QLinearMatMul") return RowsOn(n, 0, {-1}) || RowsOn(n, 3, {-2});
  return false;
}

}  // namespace internal

std::vector<NodeId> DynamicQuantizationBehind(const Graph& graph) {
  std::vector<NodeId> behind(graph.num_nodes(), kNoNode);
  for (NodeId n = graph.num_nodes(); n-- > 0;) {  // readers come later
    for (ValueId v : graph.outputs(n)) {
      if (v == kNoValue) continue;
      for (const Use& use : graph.uses(v)) {
        if (use.node == kNoNode) continue;
        const NodeId found = QuantizesDynamically(graph, use.node) ? use.node : behind[use.node];
        if (found != kNoNode && (behind[n] == kNoNode || found < behind[n])) behind[n] = found;
      }
    }
  }
  return behind;
}

}  // namespace kvlift
