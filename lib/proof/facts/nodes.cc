#include "proof/facts/nodes.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "proof/facts/operands.h"
#include "proof/graphs/hidden_differences.h"
#include "proof/lower/opset13.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

Sameness Nodes::Compare(ValueId after, ValueId before) {
  if (after == before) return Sameness::kWhole;
  if (after == kNoValue || before == kNoValue) return Sameness::kNone;
  if (const Sameness twin = twins_.TwinSameness(after, before); twin != Sameness::kNone) {
    return twin;
  }
  const onnx::TensorProto* const constants[] = {graph_.constant(after), graph_.constant(before)};
  if (constants[0] != nullptr && constants[1] != nullptr &&
      SameData(*constants[0], *constants[1])) {
    return Sameness::kWhole;
  }
  if (!SameElements(after, before)) return Sameness::kNone;
  return SameExtents(after, before) ? Sameness::kWhole : Sameness::kInCommon;
}

bool Nodes::SameExtents(ValueId after, ValueId before) {
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  if (!mine.known_rank || !theirs.known_rank || mine.shape.size() != theirs.shape.size()) {
    return false;
  }
  for (size_t k = 0; k < mine.shape.size(); ++k) {
    const Expr x = twins_.Extent(mine.shape[k], pool_.Index(0));
    const Expr y = twins_.Normal(theirs.shape[k], Facts{});
    if (!equality_.Equal(x, y, pool_.True(), Facts{})) return false;
  }
  return true;
}

// Compares types and elements within the converted model's extents. Where the source has one
// element along an axis, it stands for all of the converted model's.
bool Nodes::SameElements(ValueId after, ValueId before) {
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  if (!mine.known_rank || !theirs.known_rank || mine.shape.size() < theirs.shape.size()) {
    return false;
  }
  if (forms_.ElementType(after) != forms_.ElementType(before)) return false;
  std::vector<Expr> at, own;
  // On an axis of one element the index is 0: the element is shared by all sequences.
  for (size_t k = 0; k < mine.shape.size(); ++k) {
    const bool one = mine.shape[k]->is_integer(1);
    at.push_back(one ? pool_.Integer(0) : pool_.Index(static_cast<int>(k)));
  }
  const size_t more = mine.shape.size() - theirs.shape.size();
  for (size_t k = 0; k < theirs.shape.size(); ++k) {
    const bool one = theirs.shape[k]->is_integer(1);
    own.push_back(one ? pool_.Integer(0) : at[more + k]);
  }
  const Facts facts{mine.shape};
  const Expr sequence = twins_.SequenceOf(mine.shape, facts);
  const Expr mine_at = forms_.At(after, at, facts);
  const Expr other = twins_.Normal(forms_.At(before, own, facts), facts);
  const Expr e = twins_.Translate(mine_at, sequence, facts);
  if (e == nullptr || e == other) return e != nullptr;
  Facts known = facts;
  for (Expr& extent : known.extents) extent = twins_.Extent(extent, sequence);
  const Expr within = twins_.Translate(mine_at, sequence, known);
  if (within != nullptr && within == other) return true;
  if (within != nullptr &&
      equality_.Equal(equality_.AsTruth(within), equality_.AsTruth(other), pool_.True(), known)) {
    return true;
  }
  return equality_.Equal(equality_.AsTruth(e), equality_.AsTruth(other), pool_.True(), known);
}

bool Nodes::SameRows(ValueId after, ValueId before) {
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  if (!mine.known_rank || !theirs.known_rank || mine.shape.size() != theirs.shape.size() ||
      forms_.ElementType(after) != forms_.ElementType(before)) {
    return false;
  }
  std::vector<Expr> at;
  Facts facts;
  for (size_t k = 0; k < mine.shape.size(); ++k) {
    at.push_back(pool_.Index(static_cast<int>(k)));
    facts.extents.push_back(twins_.Normal(theirs.shape[k], Facts{}));
  }
  const Expr sequence = at.empty() ? pool_.Integer(0) : at[0];
  const Expr e = twins_.Translate(forms_.At(after, at, facts), sequence, facts);
  const Expr other = twins_.Normal(forms_.At(before, at, facts), facts);
  return e != nullptr &&
         equality_.Equal(equality_.AsTruth(e), equality_.AsTruth(other), pool_.True(), facts);
}

// Axes of reductions, which became an input in a later opset, are compared with the inputs.
bool Nodes::SameAttributes(NodeId mine, NodeId theirs) const {
  const onnx::NodeProto& a = graph_.node(mine);
  const onnx::NodeProto& b = graph_.node(theirs);
  const int64_t own = pair_.OpsetOf(mine), other = pair_.OpsetOf(theirs);
  if (IsReduction(mine)) {
    return kvlift::SameAttributes(a, b, {"axes", "noop_with_empty_axes"}, own, other);
  }
  const std::optional<int64_t> axis = AxisOf(mine);
  if (!axis || axis != AxisOf(theirs)) return kvlift::SameAttributes(a, b, {}, own, other);
  // Before opset 13, a Softmax over the last axis was the same as today.
  const sym::Form form = forms_.Of(graph_.inputs(theirs)[0]);
  if (form.known_rank && *axis == static_cast<int64_t>(form.shape.size()) - 1) {
    return kvlift::SameAttributes(a, b, {"axis", kFlattensFromAxis}, own, other);
  }
  return kvlift::SameAttributes(a, b, {"axis"}, own, other);
}

bool Nodes::IsReduction(NodeId n) const {
  return graph_.node(n).op_type().rfind("Reduce", 0) == 0 && graph_.node(n).domain().empty();
}

std::optional<int64_t> Nodes::FromFront(int64_t axis, NodeId n) const {
  if (axis >= 0) return axis;
  const ValueId first = graph_.inputs(n).empty() ? kNoValue : graph_.inputs(n)[0];
  const sym::Form form = forms_.Of(first);
  if (first == kNoValue || !form.known_rank) return std::nullopt;
  return axis + static_cast<int64_t>(form.shape.size());
}

std::optional<int64_t> Nodes::AxisOf(NodeId n) const {
  const onnx::NodeProto& node = graph_.node(n);
  // The axis of OneHot counts the axes of the result.
  if (!node.domain().empty() || node.op_type() == "OneHot") return std::nullopt;
  const auto* written = FindAttribute(node, "axis");
  if (written == nullptr) written = DefaultAttributeOf(node, "axis", pair_.OpsetOf(n)).value;
  if (written == nullptr || written->type() != onnx::AttributeProto::INT) return std::nullopt;
  return FromFront(written->i(), n);
}

std::optional<Nodes::Axes> Nodes::AxesOf(NodeId n) {
  std::vector<int64_t> given = IntsAttribute(graph_.node(n), "axes");
  const ValueId input = graph_.inputs(n).size() > 1 ? graph_.inputs(n)[1] : kNoValue;
  if (input != kNoValue) {
    const auto elements = forms_.Elements(input);
    if (!elements) return std::nullopt;
    given.clear();
    for (Expr axis : *elements) {
      if (axis->kind() != sym::Kind::kInteger) return std::nullopt;
      given.push_back(axis->value());
    }
  }
  Axes axes;
  axes.all = given.empty() && IntAttribute(graph_.node(n), "noop_with_empty_axes", 0) == 0;
  const sym::Form form = forms_.Of(graph_.inputs(n)[0]);
  const auto rank = form.known_rank ? static_cast<int64_t>(form.shape.size()) : 0;
  const bool from_end = std::any_of(given.begin(), given.end(), [](int64_t a) { return a < 0; });
  if (from_end && !form.known_rank) return std::nullopt;
  for (int64_t axis : given) axes.some.insert(axis < 0 ? axis + rank : axis);
  if (form.known_rank && rank > 0 && static_cast<int64_t>(axes.some.size()) == rank) {
    axes = Axes{true, {}};
  }
  return axes;
}

bool Nodes::ReduceOthers(const Axes& own, const Axes& others, NodeId theirs) {
  const sym::Form form = forms_.Of(graph_.inputs(theirs)[0]);
  if (!form.known_rank) return false;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    const auto axis = static_cast<int64_t>(k);
    const bool mine = own.all || own.some.count(axis) > 0;
    const bool other = others.all || others.some.count(axis) > 0;
    if (mine != other && !form.shape[k]->is_integer(1)) return true;
  }
  return false;
}

Nodes::NodeComparison Nodes::CompareInputs(NodeId mine, NodeId theirs,
                                           std::vector<Sameness>* same) {
  const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
  size_t count = std::max(a.size(), b.size());
  if (IsReduction(mine)) {
    const auto own = AxesOf(mine), others = AxesOf(theirs);
    if (own && others) {
      if (*own != *others) {
        return {Sameness::kNone, "has other axes", ReduceOthers(*own, *others, theirs)};
      }
      count = 1;
    } else if (!kvlift::SameAttributes(graph_.node(mine), graph_.node(theirs), {},
                                       pair_.OpsetOf(mine), pair_.OpsetOf(theirs))) {
      return {Sameness::kNone, "has other axes"};
    }
  }
  NodeComparison other;
  for (size_t k = 0; k < count; ++k) {
    const ValueId x = k < a.size() ? a[k] : kNoValue, y = k < b.size() ? b[k] : kNoValue;
    Sameness operand = IsSameRunningAxis(mine, theirs, k) ? Sameness::kWhole : Compare(x, y);
    if (operand == Sameness::kNone && k == 0 &&
        sym::QuantizedOperandOf(graph_, graph_.outputs(mine)[0]) == x && SameRows(x, y)) {
      operand = Sameness::kInCommon;
    }
    same->push_back(operand);
    if (operand != Sameness::kNone) continue;
    const std::string own = Called(x), others = Called(y);
    const bool constants = pair_.HaveOtherNumbers(x, y);
    std::string why = own != others ? fmt::format("has {} in the place of {}", own, others)
                      : constants
                          ? fmt::format("reads {}, which holds other numbers", own)
                          : fmt::format("reads {}, which is another value in each model", own);
    // This operand refutes the fact only if no other one differs: both are constants of the same
    // shape with other numbers. Another shape alone does not, since elements stay in their order,
    // and a later node may give them one shape again.
    const bool shape = k == 1 && (graph_.Is(theirs, "Reshape") || graph_.Is(theirs, "Squeeze") ||
                                  graph_.Is(theirs, "Unsqueeze"));
    other.refuted = other.why_not.empty() && !shape && constants &&
                    !MayHideNumbers(graph_.node(theirs)) &&
                    !(k == 0 && MayLeaveRowsUnread(pair_, theirs));
    if (other.why_not.empty()) other.why_not = std::move(why);
  }
  return other;
}

bool Nodes::IsSameRunningAxis(NodeId mine, NodeId theirs, size_t operand) {
  if (operand != 1 || (!graph_.Is(mine, "CumSum") && !graph_.Is(mine, "CumProd"))) return false;
  const auto axis = [&](NodeId n) -> std::optional<int64_t> {
    const auto elements = forms_.Elements(graph_.inputs(n)[1]);
    if (!elements || elements->size() != 1) return std::nullopt;
    const Expr e = elements->front();
    return e->kind() == sym::Kind::kInteger ? FromFront(e->value(), n) : std::nullopt;
  };
  const auto own = axis(mine);
  return own && own == axis(theirs);
}

std::string Nodes::Called(ValueId value) const {
  return value == kNoValue ? "nothing" : pair_.NameOf(value);
}

Nodes::NodeComparison Nodes::CompareNodes(NodeId mine, NodeId theirs) {
  const std::string& op = graph_.node(theirs).op_type();
  if (graph_.node(mine).op_type() != op ||
      graph_.node(mine).domain() != graph_.node(theirs).domain() ||
      graph_.outputs(mine).size() != graph_.outputs(theirs).size()) {
    return {Sameness::kNone,
            fmt::format("is made by {} instead of {}", graph_.node(mine).op_type(), op)};
  }
  if (!SameAttributes(mine, theirs)) return {Sameness::kNone, "has other attributes"};
  std::vector<Sameness> same;
  NodeComparison other = CompareInputs(mine, theirs, &same);
  if (!other.why_not.empty()) return other;
  Sameness results = OfResults(pair_, twins_, equality_, mine, theirs, same);
  if (results == Sameness::kNone) return {results, "has operands of other extents"};
  // A result is whole where an operand that the source shares among sequences only broadcasts.
  bool whole = true;
  for (size_t k = 0; results != Sameness::kWhole && k < graph_.outputs(mine).size(); ++k) {
    const ValueId x = graph_.outputs(mine)[k], y = graph_.outputs(theirs)[k];
    whole = whole && x != kNoValue && y != kNoValue && SameExtents(x, y);
  }
  if (whole) results = Sameness::kWhole;
  return {results, ""};
}

}  // namespace kvlift
