#include "rewrite/lower/fused/fused_lowering.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"

namespace kvlift::fused {

bool Lowering::has(NodeId n, size_t input) const {
  return input < graph_.inputs(n).size() && graph_.inputs(n)[input] != kNoValue;
}

std::string Lowering::in(NodeId n, size_t input) const {
  return has(n, input) ? graph_.name(graph_.inputs(n)[input]) : std::string();
}

std::string Lowering::out(NodeId n, size_t output) const {
  const auto outputs = graph_.outputs(n);
  return output < outputs.size() && outputs[output] != kNoValue ? graph_.name(outputs[output])
                                                                : std::string();
}

int Lowering::Rank(NodeId n, size_t input) {
  if (!has(n, input) || !Form(n, input).known_rank) return -1;
  return static_cast<int>(Form(n, input).shape.size());
}

int64_t Lowering::Extent(NodeId n, size_t input, int axis) {
  if (Rank(n, input) <= axis) return 0;
  const sym::Expr extent = Form(n, input).shape[axis];
  return extent->kind() == sym::Kind::kInteger ? extent->value() : 0;
}

bool Lowering::SameTypes(NodeId n, std::initializer_list<int> inputs) {
  const int first = *inputs.begin();
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](int input) { return !has(n, input) || Type(n, input) == Type(n, first); });
}

bool Lowering::MayGive(NodeId n, size_t output, const std::vector<int64_t>& shape, int32_t given) {
  if (out(n, output).empty()) return true;
  const TensorType& type = graph_.type(graph_.outputs(n)[output]);
  const int32_t wanted = given != 0 ? given : Type(n, 0);
  if (type.elem_type != 0 && type.elem_type != wanted) return false;
  if (!type.shape) return true;
  if (type.shape->size() != shape.size()) return false;
  for (size_t k = 0; k < shape.size(); ++k) {
    const auto& declared = (*type.shape)[k].value;
    if (shape[k] != 0 && declared && *declared != shape[k]) return false;
  }
  return true;
}

std::string Lowering::SplitHeads(const std::string& value, int64_t heads, std::string_view role) {
  const std::string split = nodes_.Add("Reshape", {value, nodes_.Int64s({0, 0, heads, -1})},
                                       std::string(role) + "_split");
  return nodes_.Add("Transpose", {split}, role,
                    {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
}

void Lowering::JoinHeads(const std::string& value, int64_t size, const std::string& output) {
  const std::string rows = nodes_.Add("Transpose", {value}, "rows",
                                      {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
  nodes_.AddNamed("Reshape", {rows, nodes_.Int64s({0, 0, size > 0 ? size : -1})}, "joined", output);
}

std::string Lowering::Length(const std::string& value, int axis, std::string_view role) {
  return nodes_.Extent(value, axis, role);
}

Lowering::Places Lowering::PlacesOf(const std::string& past, const std::string& queries) {
  const std::string added = Length(queries, 2, "new_length");
  std::string first = nodes_.Int64(0), total = added;
  if (!past.empty()) {
    const std::string before = Length(past, 2, "past_length");
    first = nodes_.Add("Squeeze", {before}, "first");
    total = nodes_.Add("Add", {before, added}, "total_length");
  }
  const std::string end = nodes_.Add("Squeeze", {total}, "end");
  const std::string places = nodes_.Add("Range", {first, end, nodes_.Int64(1)}, "places");
  const std::string keys = nodes_.Add("Range", {nodes_.Int64(0), end, nodes_.Int64(1)}, "keys");
  return {keys, nodes_.Add("Unsqueeze", {places, nodes_.Int64s({1})}, "place_rows")};
}

std::string Lowering::CausalOrder(const std::string& past, const std::string& queries) {
  const Places places = PlacesOf(past, queries);
  return nodes_.Add("LessOrEqual", {places.keys, places.rows}, "order");
}

std::string Lowering::Near(const std::string& past, const std::string& queries, int64_t window) {
  const Places places = PlacesOf(past, queries);
  const std::string first = nodes_.Add("Sub", {places.rows, nodes_.Int64(window)}, "too_far");
  return nodes_.Add("Greater", {places.keys, first}, "near");
}

std::string Lowering::Masked(const std::string& condition, const std::string& bias, double low,
                             int32_t type) {
  const std::string open = bias.empty() ? nodes_.Scalar(0, type) : bias;
  return nodes_.Add("Where", {condition, open, nodes_.Scalar(low, type)}, "mask");
}

std::string Lowering::MaskOfFused(NodeId n, MaskInputs from, const std::string& past,
                                  const std::string& queries) {
  const auto& node = graph_.node(n);
  const int32_t type = Type(n, 0);
  std::string mask = in(n, from.scores);
  if (has(n, from.padding)) {
    // Numbers below 0 hide keys as well.
    const std::string two = nodes_.Add(
        "Greater", {in(n, from.padding), nodes_.Scalar(0, Type(n, from.padding))}, "real");
    const std::string real = nodes_.Add("Unsqueeze", {two, nodes_.Int64s({1, 2})}, "real_keys");
    const double low = FloatAttribute(node, "mask_filter_value", -10000.0F);
    const std::string pads = Masked(real, "", low, type);
    mask = mask.empty() ? pads : nodes_.Add("Add", {mask, pads}, "bias");
  }
  if (IntAttribute(node, "unidirectional", 0) != 1) return mask;
  const std::string order = CausalOrder(past, queries);
  if (mask.empty()) return order;
  return Masked(order, mask, -std::numeric_limits<double>::infinity(), type);
}

void Lowering::Refuse(NodeId n, std::string text) {
  refusals_.push_back(
      {"KV240", fmt::format("{}: {}", graph_.node(n).op_type(), text), {graph_.NodeName(n)}, {}});
}

void Lowering::Report(NodeId n, std::string text) {
  refusals_.push_back(
      {"KV206", fmt::format("{} {}", graph_.node(n).op_type(), text), {graph_.NodeName(n)}, {}});
}

void Lowering::Scope(NodeId n) {
  const std::string scope = fmt::format("fused.{}", number_++);
  nodes_.set_scope(scope);
  origins_.push_back({fmt::format("/kvlift/{}/", scope), graph_.NodeName(n)});
}

absl::Status Lowering::Finish(UnreadMasks unread, Normalised* result) {
  result->refusals.insert(result->refusals.end(), refusals_.begin(), refusals_.end());
  if (patch_.remove_nodes.empty()) return absl::OkStatus();
  result->origins.insert(result->origins.end(), origins_.begin(), origins_.end());
  result->scores.insert(result->scores.end(), scores_.begin(), scores_.end());
  result->sliding.insert(result->sliding.end(), sliding_.begin(), sliding_.end());
  patch_.drop_value_info = false;
  patch_.new_nodes = nodes_.TakeNodes();
  patch_.new_initializers = nodes_.TakeInitializers();
  KV_ASSIGN_OR_RETURN(result->model, Apply(graph_, patch_));
  return NameMasks(unread, result);
}

absl::Status Lowering::NameMasks(UnreadMasks unread, Normalised* result) {
  if (ones_.empty()) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(const Graph after,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(result->model)));
  Patch patch;
  patch.drop_value_info = false;
  for (ValueId mask : ones_) {
    const std::string& name = graph_.name(mask);
    if (unread == UnreadMasks::kKeep || !after.uses(after.Find(name)).empty()) {
      result->all_ones.push_back(name);
      continue;
    }
    patch.remove_inputs.insert(name);
    result->dropped.push_back({name, AllElements::kOnes});
  }
  result->preconditions.push_back(
      {"KV305", "the padding mask is all ones", PreconditionStatus::kAssumed});
  KV_ASSIGN_OR_RETURN(result->model, Apply(after, patch));
  return absl::OkStatus();
}

NodeBuilder::Attributes ScaleOfFused(const onnx::NodeProto& node) {
  const float scale = FloatAttribute(node, "scale", 0.0F);
  if (scale == 0.0F) return {};
  return {MakeAttribute("scale", scale)};
}

}  // namespace kvlift::fused
