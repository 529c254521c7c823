#include "rewrite/plan/cross_token_ops.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "ir/operators/operator_traits.h"
#include "ir/subgraphs.h"
#include "ir/types.h"
#include "rewrite/plan/cross_token_finder.h"

namespace kvlift {
namespace {

using sym::Expr;

}  // namespace

namespace internal {

NodeId CrossTokenFinder::FindCrossTokenOp() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (!replaced_.contains(n) && (MixesRows(n) || MixesKeys(n))) return n;
  }
  return kNoNode;
}

// Returns true for a sum or an extremum of nothing but results of IsInf and IsNaN.
bool CrossTokenFinder::TestsForOverflow(NodeId n) {
  const bool reduces =
      graph_.Is(n, "ReduceSum") || graph_.Is(n, "ReduceMax") || graph_.Is(n, "ReduceMin");
  const ValueId v = Operand(n, 0);
  if (!reduces || v == kNoValue || !forms_.Of(v).known_rank) return false;
  const std::vector<ValueId> sources = sym::SourcesOf(forms_.Of(v).element);
  return !sources.empty() && std::all_of(sources.begin(), sources.end(), [&](ValueId source) {
    const NodeId maker = graph_.producer(source);
    return maker != kNoNode && (graph_.Is(maker, "IsInf") || graph_.Is(maker, "IsNaN"));
  });
}

NodeId CrossTokenFinder::FindMixingWithPads(OverflowTests tests) {
  if (!HoldsPads()) return kNoNode;
  if (tests == OverflowTests::kLeftOut) {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (TestsForOverflow(n)) replaced_.insert(n);
    }
  }
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (!replaced_.contains(n) && !SeesEarlierOnly(n) && MixesRows(n)) return n;
    if (Computes(n) && ReadsMoved(n, &IsShifted)) return n;
    if (MakesReals(n) && DropsAxisOfData(n, [&](Expr e) { return HoldsSequences(e); })) return n;
  }
  return FindLastForAll();
}

NodeId CrossTokenFinder::FindCountedTokens() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (!replaced_.contains(n) && (CountsTokens(n) || ChoosesByTokens(n))) return n;
  }
  return kNoNode;
}

NodeId CrossTokenFinder::FindReorderedSequences() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (Computes(n) && ReadsMoved(n, &IsOfOtherSequence)) return n;
    if (DropsAxisOfData(n, [&](Expr extent) { return HoldsSequences(extent); })) return n;
  }
  return kNoNode;
}

NodeId CrossTokenFinder::FindBatchReduction() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (!replaced_.contains(n) && CombinesSequences(n)) return n;
    if ((Computes(n) || HasBody(graph_.node(n))) && ReadsBatch(n)) return n;
  }
  for (ValueId output : graph_.graph_outputs()) {
    if (graph_.producer(output) != kNoNode && DependsOnBatch(output)) {
      return graph_.producer(output);
    }
  }
  return kNoNode;
}

NodeId CrossTokenFinder::FindOtherTokens() {
  if (!several_tokens_) return kNoNode;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (replaced_.contains(n) || !Computes(n) || !MakesReals(n) || !HasRowPerToken(n)) continue;
    const auto inputs = graph_.inputs(n);
    if (std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return ReadsOtherTokens(v); })) {
      return n;
    }
  }
  return kNoNode;
}

// Returns true if some result has an axis of all tokens of the step, perhaps of all sequences.
bool CrossTokenFinder::HasRowPerToken(NodeId n) {
  const auto is_all = [&](Expr extent) {
    const bool product = extent->kind() == sym::Kind::kSum && extent->terms().size() == 1;
    return HoldsTokens(extent) && (product || extent->kind() == sym::Kind::kDim);
  };
  const auto outputs = graph_.outputs(n);
  return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) {
    if (v == kNoValue || !forms_.Of(v).known_rank) return false;
    const std::vector<Expr> shape = forms_.Of(v).shape;
    return std::any_of(shape.begin(), shape.end(), is_all);
  });
}

// Returns true if the node reduces integers, or counts elements, over the axis of sequences.
bool CrossTokenFinder::CombinesSequences(NodeId n) {
  const ValueId v = Operand(n, 0);
  if (v == kNoValue || !forms_.Of(v).known_rank) return false;
  const auto rank = static_cast<int64_t>(forms_.Of(v).shape.size());
  std::vector<int64_t> axes;
  if (CountsElements(n)) {
    axes = AllAxes(rank);
  } else if (absl::StartsWith(graph_.node(n).op_type(), "Reduce") &&
             IsIntegerType(forms_.ElementType(v))) {
    axes = ReducedAxes(n, rank);
  }
  return DataOn(v, axes, [&](Expr extent) { return HoldsSequences(extent); });
}

// Returns true if data of an operand lies along an axis of which `holds` is true, and no axis of
// the results is such by its own extent: a Slice whose bounds cannot be compared with the extent,
// say. Which element a result is made of is then unknown, though it may broadcast later on.
template <typename Holds>
bool CrossTokenFinder::DropsAxisOfData(NodeId n, const Holds& holds) {
  if (replaced_.contains(n) || !Computes(n)) return false;
  const auto has_axis = [&](ValueId v) {
    if (v == kNoValue || !forms_.Of(v).known_rank) return false;
    const std::vector<Expr> shape = forms_.Of(v).shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](Expr extent) { return holds(extent) && !IsUnknownExtent(extent); });
  };
  const auto inputs = graph_.inputs(n), outputs = graph_.outputs(n);
  const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) {
    return has_axis(v) && graph_.constant(v) == nullptr && ReadsData(forms_.Of(v).element);
  });
  return reads && std::none_of(outputs.begin(), outputs.end(), has_axis);
}

bool CrossTokenFinder::MakesReals(NodeId n) const {
  const auto outputs = graph_.outputs(n);
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId v) { return v != kNoValue && HoldsReals(forms_.ElementType(v)); });
}

// Returns true for a symbol that stands for an extent which no declaration and no operator gives.
bool CrossTokenFinder::IsUnknownExtent(Expr extent) {
  return extent->kind() == sym::Kind::kDim && extent->dim().is_internal() &&
         extent->dim() != PastSymbol();
}

std::vector<int64_t> CrossTokenFinder::AllAxes(int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// Returns true if the length of the result is a number of elements of the operand.
bool CrossTokenFinder::CountsElements(NodeId n) const {
  const std::string& op = graph_.node(n).op_type();
  return op == "NonZero" || op == "Compress" || op == "Unique";
}

// Returns true if the value is computed from data and differs along one of the axes for whose
// extent `is` holds.
template <typename Is>
bool CrossTokenFinder::DataOn(ValueId v, const std::vector<int64_t>& axes, const Is& is) {
  const sym::Form form = forms_.Of(v);
  if (axes.empty() || !form.known_rank || !ReadsData(form.element)) return false;
  const auto rank = static_cast<int64_t>(form.shape.size());
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) {
    const int64_t at = axis < 0 ? axis + rank : axis;
    return at >= 0 && at < rank && is(form.shape[at]) &&
           sym::ContainsIndex(form.element, static_cast<int>(at));
  });
}

// Returns true if operand 0 has integers or bools that differ along the tokens of a step, on one
// of these axes.
bool CrossTokenFinder::IntegersOn(NodeId n, const std::vector<int64_t>& axes) {
  const ValueId v = Operand(n, 0);
  if (v == kNoValue || HoldsReals(forms_.ElementType(v))) return false;
  return DataOn(v, axes, [&](Expr extent) { return HoldsTokens(extent); });
}

bool CrossTokenFinder::CombinesIntegersOfTokens(NodeId n) {
  const ValueId v = Operand(n, 0);
  if (v == kNoValue || !forms_.Of(v).known_rank) return false;
  const std::string& op = graph_.node(n).op_type();
  if (absl::StartsWith(op, "Reduce")) {
    return IntegersOn(n, ReducedAxes(n, static_cast<int64_t>(forms_.Of(v).shape.size())));
  }
  const bool along = op == "ArgMax" || op == "ArgMin" || op == "TopK";
  return along && IntegersOn(n, {IntAttribute(graph_.node(n), "axis", op == "TopK" ? -1 : 0)});
}

// Returns true for the largest or smallest position of a step, by which decoders choose tables.
bool CrossTokenFinder::IsLastPosition(NodeId n) {
  const std::string& op = graph_.node(n).op_type();
  if (op != "ReduceMax" && op != "ReduceMin") return false;
  const std::vector<ValueId> sources = sym::SourcesOf(forms_.Of(Operand(n, 0)).element);
  return std::all_of(sources.begin(), sources.end(),
                     [&](ValueId v) { return graph_.constant(v) != nullptr || IsPosition(v); });
}

// Returns true for an integer input that does not select rows of a table of real numbers, as
// token ids do.
bool CrossTokenFinder::IsPosition(ValueId input) {
  if (!graph_.is_graph_input(input) || HoldsReals(forms_.ElementType(input))) return false;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (!graph_.Is(n, "Gather") || !HoldsReals(forms_.ElementType(Operand(n, 0)))) continue;
    const sym::Form form = forms_.Of(Operand(n, 1));
    if (!form.known_rank) continue;
    const std::vector<ValueId> sources = sym::SourcesOf(form.element);
    if (std::find(sources.begin(), sources.end(), input) != sources.end()) return false;
  }
  return true;
}

// Returns true if the node combines integers of several tokens in a way that decoders need, so
// that padding tokens are not refused for it.
bool CrossTokenFinder::CountsTokens(NodeId n) {
  if (!CountsElements(n)) return CombinesIntegersOfTokens(n) && IsLastPosition(n);
  const ValueId v = Operand(n, 0);
  if (v == kNoValue || !forms_.Of(v).known_rank) return false;
  const auto rank = static_cast<int64_t>(forms_.Of(v).shape.size());
  return DataOn(v, AllAxes(rank), [&](Expr extent) { return HoldsTokens(extent); });
}

// Returns true for an If whose condition depends on the number of new tokens, perhaps with those of
// the past.
bool CrossTokenFinder::ChoosesByTokens(NodeId n) {
  if (!several_tokens_ || !graph_.Is(n, "If")) return false;
  const sym::Form condition = forms_.Of(graph_.inputs(n)[0]);
  if (!condition.known_rank) return false;
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(condition.element);
  return std::any_of(dims.begin(), dims.end(), [&](const sym::DimSymbol& dim) {
    return tokens_.contains(dim) && !sequences_.contains(dim);
  });
}

// Returns the first node that gives each token a result that depends on a token which is counted
// from the end of the step.
NodeId CrossTokenFinder::FindLastForAll() {
  absl::flat_hash_set<ValueId> made_of_last;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    const auto inputs = graph_.inputs(n), outputs = graph_.outputs(n);
    if (!CountsTokens(n) && DropsAxisOfData(n, [&](Expr extent) { return HoldsTokens(extent); })) {
      made_of_last.insert(outputs.begin(), outputs.end());
      continue;
    }
    const bool reads = !replaced_.contains(n) && Computes(n) &&
                       std::any_of(inputs.begin(), inputs.end(),
                                   [&](ValueId v) { return ReadsLast(v, made_of_last); });
    if (!reads) continue;
    for (ValueId v : outputs) {
      if (v == kNoValue || !forms_.Of(v).known_rank) continue;
      const std::vector<Expr> shape = forms_.Of(v).shape;
      if (std::any_of(shape.begin(), shape.end(), [&](Expr e) { return HoldsTokens(e); })) {
        return n;
      }
      made_of_last.insert(v);
    }
  }
  return kNoNode;
}

bool CrossTokenFinder::ReadsLast(ValueId v, const absl::flat_hash_set<ValueId>& made_of_last) {
  if (v == kNoValue || graph_.constant(v) != nullptr || !forms_.Of(v).known_rank) return false;
  for (Expr load : sym::LoadsOf(forms_.Of(v).element)) {
    const ValueId source = load->source();
    if (made_of_last.contains(source)) return true;
    const sym::Form form = forms_.Of(source);
    if (!form.known_rank || IsPosition(source)) continue;
    for (size_t axis = 0; axis < form.shape.size(); ++axis) {
      const Expr place = load->args()[axis];
      if (HoldsTokens(form.shape[axis]) && !place->has_index() && HoldsTokens(place)) return true;
    }
  }
  return false;
}

// Returns true for operators that combine a token with earlier ones only. Convolutions, pooling
// and recurrences of decoders do.
bool CrossTokenFinder::SeesEarlierOnly(NodeId n) const {
  const onnx::NodeProto& node = graph_.node(n);
  const std::string& op = node.op_type();
  if (op == "CumSum") return IntAttribute(node, "reverse", 0) == 0;
  return absl::StartsWith(op, "Conv") || absl::EndsWith(op, "Pool") || op == "LSTM" ||
         op == "GRU" || op == "RNN";
}

// Returns true if the node does more than move data.
bool CrossTokenFinder::Computes(NodeId n) {
  const auto outputs = graph_.outputs(n);
  return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) {
    return v != kNoValue && forms_.Of(v).known_rank && forms_.Of(v).opaque;
  });
}

// Returns true if the element depends on more than sizes and constants.
bool CrossTokenFinder::ReadsData(Expr e) const {
  const std::vector<ValueId> sources = sym::SourcesOf(e);
  return std::any_of(sources.begin(), sources.end(),
                     [&](ValueId v) { return graph_.constant(v) == nullptr; });
}

}  // namespace internal

NodeId FindCrossTokenOp(const Analysis& analysis) {
  return internal::CrossTokenFinder(analysis).FindCrossTokenOp();
}

NodeId FindMixingWithPads(const Analysis& analysis, OverflowTests tests) {
  return internal::CrossTokenFinder(analysis).FindMixingWithPads(tests);
}

NodeId FindCountedTokens(const Analysis& analysis) {
  return internal::CrossTokenFinder(analysis).FindCountedTokens();
}

NodeId FindReorderedSequences(const Analysis& analysis) {
  return internal::CrossTokenFinder(analysis).FindReorderedSequences();
}

NodeId FindOtherTokens(const Analysis& analysis) {
  return internal::CrossTokenFinder(analysis).FindOtherTokens();
}

NodeId FindBatchReduction(const Analysis& analysis) {
  return internal::CrossTokenFinder(analysis).FindBatchReduction();
}

}  // namespace kvlift
