#include "proof/nodes.h"

#include <algorithm>

#include "fmt/format.h"
#include "proof/attention_reading.h"
#include "proof/operands.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

bool Nodes::SameValue(ValueId after, ValueId before) {
  if (after == before || twins_.IsTwin(after, before)) return true;
  if (after == kNoValue || before == kNoValue) return false;
  const onnx::TensorProto* const constants[] = {graph_.constant(after), graph_.constant(before)};
  if (constants[0] != nullptr && constants[1] != nullptr &&
      SameData(*constants[0], *constants[1])) {
    return true;
  }
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  if (!mine.known_rank || !theirs.known_rank || mine.shape.size() < theirs.shape.size()) {
    return false;
  }
  if (forms_.ElementType(after) != forms_.ElementType(before)) return false;
  std::vector<Expr> at, own;
  for (size_t k = 0; k < mine.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
  const size_t more = mine.shape.size() - theirs.shape.size();
  for (size_t k = 0; k < theirs.shape.size(); ++k) {
    const bool one = theirs.shape[k]->is_integer(1);
    own.push_back(one ? pool_.Integer(0) : at[more + k]);
  }
  const Facts facts{mine.shape};
  // Values that differ by sequence have the batch in front.
  const Expr sequence = at.empty() ? pool_.Integer(0) : at[0];
  const Expr mine_at = forms_.At(after, at, facts);
  const Expr other = twins_.Normal(forms_.At(before, own, facts), facts);
  const Expr e = twins_.Translate(mine_at, sequence, facts);
  if (e == nullptr || e == other) return e != nullptr;
  Facts known = facts;
  for (Expr& extent : known.extents) extent = twins_.Extent(extent, sequence);
  const Expr within = twins_.Translate(mine_at, sequence, known);
  if (within != nullptr && within == other) return true;
  if (within != nullptr &&
      equality_.Equal(equality_.AsTruth(within), equality_.AsTruth(other), pool_.True(), known))
    return true;
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

// What became an input with a later opset is compared there.
bool Nodes::SameAttributes(NodeId mine, NodeId theirs) const {
  const onnx::NodeProto& a = graph_.node(mine);
  const onnx::NodeProto& b = graph_.node(theirs);
  if (IsSoftmaxOverLastAxis(mine) && IsSoftmaxOverLastAxis(theirs)) return true;
  return kvlift::SameAttributes(a, b, "axes");
}

bool Nodes::IsSoftmaxOverLastAxis(NodeId n) const {
  if (!graph_.Is(n, "Softmax")) return false;
  const int64_t axis = IntAttribute(graph_.node(n), "axis", -1);
  const sym::Form form = forms_.Of(graph_.inputs(n)[0]);
  return axis == -1 || (form.known_rank && axis == static_cast<int64_t>(form.shape.size()) - 1);
}

// Axes of a reduction, an attribute or an input; empty if they are not constant.
std::optional<std::vector<Expr>> Nodes::Axes(NodeId n) {
  std::vector<Expr> axes;
  for (int64_t axis : IntsAttribute(graph_.node(n), "axes")) axes.push_back(pool_.Integer(axis));
  if (!axes.empty()) return axes;
  const ValueId input = graph_.inputs(n).size() > 1 ? graph_.inputs(n)[1] : kNoValue;
  return input == kNoValue ? std::nullopt : forms_.Elements(input);
}

// Empty if all operands are the same.
std::string Nodes::UnlikeInput(NodeId mine, NodeId theirs) {
  const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
  size_t count = std::max(a.size(), b.size());
  const bool reduces = graph_.node(mine).op_type().rfind("Reduce", 0) == 0;
  if (reduces && a.size() != b.size()) {
    if (Axes(mine) != Axes(theirs)) return "has other axes";
    count = 1;
  }
  for (size_t k = 0; k < count; ++k) {
    const ValueId x = k < a.size() ? a[k] : kNoValue, y = k < b.size() ? b[k] : kNoValue;
    if (x == y || SameValue(x, y)) continue;
    if (k == 0 && KeptAs(graph_, graph_.outputs(mine)[0]) == x && SameRows(x, y)) continue;
    return fmt::format("has {} in the place of {}", Called(x), Called(y));
  }
  return "";
}

std::string Nodes::Called(ValueId value) const {
  return value == kNoValue ? "nothing" : pair_.NameOf(value);
}

// Why two nodes may give different values; empty if they are the same operator over the same.
std::string Nodes::Unlike(NodeId mine, NodeId theirs) {
  const std::string& op = graph_.node(theirs).op_type();
  if (graph_.node(mine).op_type() != op ||
      graph_.node(mine).domain() != graph_.node(theirs).domain() ||
      graph_.outputs(mine).size() != graph_.outputs(theirs).size()) {
    return fmt::format("is made by {} instead of {}", graph_.node(mine).op_type(), op);
  }
  if (!SameAttributes(mine, theirs)) return "has other attributes";
  if (std::string why = UnlikeInput(mine, theirs); !why.empty()) return why;
  return SameExtents(pair_, twins_, mine, theirs) ? "" : "has operands of other extents";
}

}  // namespace kvlift
