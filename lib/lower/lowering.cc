#include "lower/lowering.h"

#include <algorithm>

#include "fmt/format.h"

namespace kvlift::lower {

using sym::Expr;

bool Lowering::has(NodeId n, size_t input) const {
  return input < graph_.inputs(n).size() && graph_.inputs(n)[input] != kNoValue;
}

bool Lowering::gives(NodeId n, size_t output) const {
  return output < graph_.outputs(n).size() && graph_.outputs(n)[output] != kNoValue;
}

std::string Lowering::in(NodeId n, size_t input) const {
  return has(n, input) ? graph_.name(graph_.inputs(n)[input]) : "";
}

std::string Lowering::out(NodeId n, size_t output) const {
  return gives(n, output) ? graph_.name(graph_.outputs(n)[output]) : "";
}

int Lowering::Rank(NodeId n, size_t input) {
  if (!has(n, input)) return -1;
  const ValueId v = graph_.inputs(n)[input];
  const sym::Form& form = forms_.Of(v);
  if (form.known_rank) return static_cast<int>(form.shape.size());
  const auto& declared = graph_.type(v).shape;
  return declared ? static_cast<int>(declared->size()) : -1;
}

bool Lowering::HasForm(NodeId n, size_t input) {
  return has(n, input) && forms_.Of(graph_.inputs(n)[input]).known_rank;
}

Expr Lowering::DimOf(NodeId n, size_t input, int axis) {
  return HasForm(n, input) ? forms_.Of(graph_.inputs(n)[input]).shape[axis] : nullptr;
}

int64_t Lowering::Constant(NodeId n, size_t input, int axis) {
  const Expr dim = DimOf(n, input, axis);
  if (dim != nullptr) return dim->kind() == sym::Kind::kInteger ? dim->value() : 0;
  return (*graph_.type(graph_.inputs(n)[input]).shape)[axis].value.value_or(0);
}

bool Lowering::SameExtent(NodeId n, size_t input, int axis, size_t other, int other_axis) {
  const Expr dim = DimOf(n, input, axis);
  return dim != nullptr && dim == DimOf(n, other, other_axis);
}

std::string Lowering::Extent(NodeId n, size_t input, int axis) {
  const Expr dim = DimOf(n, input, axis);
  if (dim == nullptr) return nodes_.Extent(in(n, input), axis, "extent");
  std::string& extent = extents_[dim];
  if (!extent.empty()) return extent;
  if (dim->kind() == sym::Kind::kInteger) {
    extent = Literal(dim->value());
  } else {
    extent = nodes_.Extent(in(n, input), axis, "extent");
  }
  return extent;
}

std::string Lowering::Literal(int64_t value) {
  std::string name = nodes_.Int64s({value});
  constants_[name] = value;
  return name;
}

std::string Lowering::Count(const std::string& extent) {
  const std::string end = nodes_.Add("Squeeze", {extent}, "end");
  return nodes_.Add("Range", {nodes_.Int64(0), end, nodes_.Int64(1)}, "count");
}

std::string Lowering::Join(const std::vector<std::string>& extents, std::string_view role) {
  std::vector<int64_t> values;
  for (const std::string& extent : extents) {
    const auto it = constants_.find(extent);
    if (it == constants_.end()) break;
    values.push_back(it->second);
  }
  if (values.size() == extents.size()) return nodes_.Int64s(values);
  return nodes_.Add("Concat", extents, role, {MakeAttribute("axis", int64_t{0})});
}

std::string Lowering::Unsqueeze(const std::string& value, const std::vector<int64_t>& axes,
                                std::string_view role) {
  return axes.empty() ? value : nodes_.Add("Unsqueeze", {value, nodes_.Int64s(axes)}, role);
}

void Lowering::ScopeOf(NodeId n) {
  // Names of nodes often begin with a slash themselves.
  const std::string name = graph_.NodeName(n);
  nodes_.set_scope("lower/" + name.substr(std::min(name.find_first_not_of('/'), name.size())));
}

void Lowering::Refuse(NodeId n, std::string_view why) {
  if (refusal_) return;
  refusal_ = {
      "KV253",
      fmt::format("{} {} is not lowered: {}", graph_.node(n).op_type(), graph_.NodeName(n), why),
      {graph_.NodeName(n)},
      {}};
}

std::string UnknownAttribute(const onnx::NodeProto& node,
                             std::initializer_list<std::string_view> known) {
  for (const auto& attribute : node.attribute()) {
    if (std::find(known.begin(), known.end(), attribute.name()) == known.end()) {
      return attribute.name();
    }
  }
  return {};
}

}  // namespace kvlift::lower
