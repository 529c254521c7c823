// The part of CrossTokenFinder that knows which operators mix rows: those that reduce, normalise,
// accumulate or multiply along an axis of tokens or sequences.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "ir/operators/einsum_equation.h"
#include "ir/operators/operator_traits.h"
#include "ir/types.h"
#include "rewrite/plan/cross_token_finder.h"

namespace kvlift {
namespace {

using sym::Expr;

bool QuantizesDynamically(const Graph& graph, NodeId n) {
  return absl::StartsWith(graph.node(n).op_type(), "DynamicQuantize");
}

// Returns true for a softmax, or what may be the first operator of one that is written out.
bool MakesWeights(const Graph& graph, NodeId n) {
  return graph.Is(n, "Softmax") || graph.Is(n, "Exp") ||
         graph.node(n).op_type() == "QLinearSoftmax";
}

// Returns true for operators of which integer operands are shapes, bounds, counts or axes.
bool TakesSizes(const Graph& graph, NodeId n) {
  constexpr std::string_view kOps[] = {"ConstantOfShape", "CumSum",  "Expand",  "OneHot", "Pad",
                                       "Range",           "Resize",  "Reshape", "Slice",  "Split",
                                       "SplitToSequence", "Squeeze", "Tile",    "TopK",   "Trilu",
                                       "Unsqueeze"};
  const std::string& op = graph.node(n).op_type();
  return absl::StartsWith(op, "Reduce") ||
         std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
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

// Returns true if an operand depends on the batch itself. Integers of operators that are not
// elementwise are sizes, or indices, which may well be the number of a row.
bool CrossTokenFinder::ReadsBatch(NodeId n) {
  const bool is_elementwise = FindElementwise(graph_.node(n)) != nullptr;
  const auto inputs = graph_.inputs(n);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) {
    if (v == kNoValue) return false;
    if (is_elementwise || !IsIntegerType(forms_.ElementType(v))) return DependsOnBatch(v);
    return !TakesSizes(graph_, n) && DependsOnBatch(v, BatchUse::kNumberOfSequences);
  });
}

// Returns true if elements of the value depend on how many sequences the batch has, such as a
// factor that changes with Size(input_ids), or on the place of their sequence in it.
bool CrossTokenFinder::DependsOnBatch(ValueId v, BatchUse use) {
  const sym::Form form = forms_.Of(v);
  if (!form.known_rank) return false;
  absl::flat_hash_map<std::pair<Expr, Expr>, bool> known;
  const bool places = use == BatchUse::kAny;
  return DependsOnBatch(form.element, nullptr, places ? form.shape : std::vector<Expr>(), &known);
}

// `extent` is that of the axis on which e is a place; null if e is a value. `shape` has the extents
// of the indices in e. The number of sequences may be the stride of a place, as in b + B * s of
// rows in another order, or divide an index; and a place on an axis of sequences may be one's own.
// A name that also stands for the new tokens counts as one of tokens.
bool CrossTokenFinder::DependsOnBatch(Expr e, Expr extent, absl::Span<const Expr> shape,
                                      absl::flat_hash_map<std::pair<Expr, Expr>, bool>* known) {
  const auto is_sequences = [&](Expr x) {
    return x->kind() == sym::Kind::kDim && sequences_.contains(x->dim()) &&
           !tokens_.contains(x->dim());
  };
  if (e->kind() == sym::Kind::kDim) return is_sequences(e);
  if (e->kind() == sym::Kind::kIndex) {
    const auto k = static_cast<size_t>(e->index());
    const bool own = extent != nullptr && HoldsSequences(extent);
    return !own && k < shape.size() && is_sequences(shape[k]);
  }
  const auto [it, fresh] = known->try_emplace({e, extent}, false);
  if (!fresh) return it->second;
  const auto depends = [&](Expr part, Expr on) { return DependsOnBatch(part, on, shape, known); };
  bool found = false;
  if (e->kind() == sym::Kind::kLoad) {
    const sym::Form form = forms_.Of(e->source());
    for (size_t axis = 0; form.known_rank && axis < form.shape.size(); ++axis) {
      found = found || depends(e->args()[axis], form.shape[axis]);
    }
  } else if (e->kind() == sym::Kind::kFloorDiv) {
    const Expr divisor = e->args()[1];
    found =
        depends(e->args()[0], extent) || (!e->args()[0]->has_index() && depends(divisor, extent));
  } else {
    for (const sym::Term& term : e->terms()) {
      const bool is_stride =
          extent != nullptr && std::any_of(term.atoms.begin(), term.atoms.end(),
                                           [](Expr atom) { return atom->has_index(); });
      for (Expr atom : term.atoms) {
        found = found || (!(is_stride && is_sequences(atom)) && depends(atom, extent));
      }
    }
    for (Expr arg : e->args()) found = found || depends(arg, extent);
  }
  return (*known)[{e, extent}] = found;
}

// Returns true if the extent counts tokens or sequences of a step. The number of keys does not
// unless keys_are_rows_, also of caches that stay: it contains the past length, another size, or a
// number of the host.
bool CrossTokenFinder::HoldsRows(Expr extent) const {
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
  if (dims.empty() || !sym::LoadsOf(extent).empty()) return false;
  return std::all_of(dims.begin(), dims.end(), [&](const sym::DimSymbol& dim) {
    return past_.contains(dim) ? keys_are_rows_ : rows_.contains(dim);
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

// Adds the nodes that compute from rows of caches and are in front of the softmax of an attention,
// or of no attention.
void CrossTokenFinder::FindReadersOfRows(absl::Span<const CacheUpdate> updates) {
  std::vector<ValueId> queue;
  for (const CacheUpdate& update : updates) {
    queue.insert(queue.end(), {update.pair.past, update.pair.present, update.read_by_attention()});
  }
  absl::flat_hash_set<ValueId> seen(queue.begin(), queue.end());
  while (!queue.empty()) {
    const ValueId v = queue.back();
    queue.pop_back();
    for (const Use& use : graph_.uses(v)) {
      if (use.kind != Use::Kind::kNodeInput || replaced_.contains(use.node)) continue;
      if (MakesWeights(graph_, use.node)) continue;
      readers_.insert(use.node);
      for (ValueId output : graph_.outputs(use.node)) {
        if (output == kNoValue || !HoldsReals(forms_.ElementType(output))) continue;
        if (seen.insert(output).second) queue.push_back(output);
      }
    }
  }
}

// Returns true for a product whose left operand is made from a softmax nearby: the product of an
// attention's weights and values.
bool CrossTokenFinder::WeighsRows(NodeId n) const {
  constexpr int kMostNodes = 24;
  if (!absl::StrContains(graph_.node(n).op_type(), "MatMul")) return false;
  std::vector<ValueId> open = {Operand(n, 0)};
  for (int k = 0; k < kMostNodes && !open.empty(); ++k) {
    const NodeId made = open.back() == kNoValue ? kNoNode : graph_.producer(open.back());
    open.pop_back();
    if (made == kNoNode || absl::StrContains(graph_.node(made).op_type(), "MatMul")) continue;
    if (MakesWeights(graph_, made)) return true;
    for (ValueId v : graph_.inputs(made)) {
      const bool of_shapes = v == kNoValue || forms_.ElementType(v) == onnx::TensorProto::INT64;
      if (!of_shapes) open.push_back(v);
    }
  }
  return false;
}

// Returns true for the largest score of each query, which a softmax that is spelled out subtracts
// from the scores.
bool CrossTokenFinder::LeadsToWeights(NodeId n) const {
  constexpr int kMostNodes = 8;
  if (!graph_.Is(n, "ReduceMax")) return false;
  std::vector<ValueId> open = {graph_.outputs(n)[0]};
  for (int k = 0; k < kMostNodes && !open.empty(); ++k) {
    const ValueId v = open.back();
    open.pop_back();
    for (const Use& use : graph_.uses(v)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      if (graph_.Is(use.node, "Exp")) return true;
      open.insert(open.end(), graph_.outputs(use.node).begin(), graph_.outputs(use.node).end());
    }
  }
  return false;
}

// Returns true if the node combines rows of a cache otherwise than an attention does, by weights
// that hide padding tokens.
bool CrossTokenFinder::MixesKeys(NodeId n) {
  if (!readers_.contains(n) || WeighsRows(n) || LeadsToWeights(n)) return false;
  keys_are_rows_ = true;
  const bool mixes = MixesRows(n);
  keys_are_rows_ = false;
  return mixes;
}

// Returns true if the second output of an EmbedLayerNormalization, the number of tokens that its
// mask keeps, is read.
bool CrossTokenFinder::CountsKeptTokens(NodeId n) const {
  const auto outputs = graph_.outputs(n);
  return outputs.size() > 1 && outputs[1] != kNoValue && !graph_.uses(outputs[1]).empty();
}

// Returns true if an Einsum sums over an axis of rows. One whose equation is not read may.
bool CrossTokenFinder::EinsumMixes(NodeId n) {
  const auto inputs = graph_.inputs(n);
  std::vector<size_t> ranks;
  for (ValueId v : inputs) ranks.push_back(forms_.Of(v).shape.size());
  const onnx::AttributeProto* text = FindAttribute(graph_.node(n), "equation");
  const auto equation = text == nullptr ? std::nullopt : ReadEinsumEquation(text->s(), ranks);
  for (int k = 0; k < static_cast<int>(inputs.size()); ++k) {
    if (!equation && RowsOn(n, k, AllAxes(static_cast<int64_t>(ranks[k])))) return true;
    if (!equation) continue;
    const std::string& labels = equation->operands[k];
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      const bool summed = equation->result.find(labels[axis]) == std::string::npos;
      if (summed && RowsOn(n, k, {static_cast<int64_t>(axis)})) return true;
    }
  }
  return false;
}

// Before opset 13, which an attribute names, a softmax is over all axes from its axis on.
bool CrossTokenFinder::QuantizedSoftmaxMixes(NodeId n) {
  constexpr int64_t kOneAxis = 13;
  const onnx::NodeProto& node = graph_.node(n);
  const int64_t axis = IntAttribute(node, "axis", -1);
  return IntAttribute(node, "opset", 0) < kOneAxis ? RowsFrom(n, axis) : RowsOn(n, 0, {axis});
}

bool CrossTokenFinder::MixesRows(NodeId n) {
  const onnx::NodeProto& node = graph_.node(n);
  const std::string& op = node.op_type();
  const auto is = [&](std::initializer_list<std::string_view> ops) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  if (BodiesMix(n)) return true;
  if (CombinesIntegersOfTokens(n)) return !IsLastPosition(n);
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
  if (op == "EmbedLayerNormalization") return CountsKeptTokens(n);
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
  if (op == "Einsum") return EinsumMixes(n);
  if (op == "QLinearMatMul") return RowsOn(n, 0, {-1}) || RowsOn(n, 3, {-2});
  if (op == "QLinearSoftmax") return QuantizedSoftmaxMixes(n);
  if (op == "QGemm") {
    const bool left = IntAttribute(node, "transA", 0) != 0;
    const bool right = IntAttribute(node, "transB", 0) != 0;
    return RowsOn(n, 0, {left ? 0 : 1}) || RowsOn(n, 3, {right ? 1 : 0});
  }
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
