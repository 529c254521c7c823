#include "verify/inputs/input_uses.h"

#include <algorithm>
#include <deque>

#include "ir/graph.h"
#include "ir/types.h"
#include "onnxio/model/functional_form.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

bool IsOneOf(const NodeProto& node, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), node.op_type()) != ops.end();
}

// Whether the operator moves or copies elements without changing their values.
bool IsMove(const NodeProto& node) {
  return IsOneOf(node, {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand",
                        "Transpose", "Slice", "Tile", "Concat"});
}

// Whether the node picks elements of this operand by index.
bool IsPick(const NodeProto* node, int operand) {
  return operand == 0 && node->op_type() == "Gather";
}

std::optional<int64_t> ScalarOf(const TensorProto& t) {
  int64_t elements = 1;
  for (int64_t d : t.dims()) elements *= d;
  if (elements != 1) return std::nullopt;
  if (t.int64_data_size() == 1) return t.int64_data(0);
  if (t.int32_data_size() == 1) return t.int32_data(0);
  const std::string& raw = t.raw_data();
  int64_t value = 0;
  if (t.data_type() == TensorProto::INT64 && raw.size() == 8) {
    std::copy_n(raw.data(), 8, reinterpret_cast<char*>(&value));
    return value;
  }
  if (t.data_type() == TensorProto::INT32 && raw.size() == 4) {
    int32_t small = 0;
    std::copy_n(raw.data(), 4, reinterpret_cast<char*>(&small));
    return small;
  }
  return std::nullopt;
}

}  // namespace

InputUses::InputUses(const onnx::ModelProto& model) { Read(model.graph()); }

void InputUses::Read(const onnx::GraphProto& graph) {
  for (const auto& output : graph.output()) outputs_.insert(output.name());
  for (const TensorProto& t : graph.initializer()) constants_[t.name()] = &t;
  for (const NodeProto& node : graph.node()) {
    for (int k = 0; k < node.input_size(); ++k) readers_[node.input(k)].push_back({&node, k});
    for (const std::string& out : node.output()) makers_[out] = &node;
    if (node.op_type() == "Constant") {
      const auto* value = FindAttribute(node, "value");
      if (value != nullptr) constants_[node.output(0)] = &value->t();
    }
    for (const auto& attribute : node.attribute()) {
      if (attribute.type() != onnx::AttributeProto::GRAPH) continue;
      Read(attribute.g());
      for (int k = 0; k < std::min(attribute.g().output_size(), node.output_size()); ++k) {
        leaves_[attribute.g().output(k).name()] = node.output(k);
      }
    }
  }
}

bool InputUses::IsConstant(const std::string& name) const {
  std::string at = name;
  for (;;) {
    if (constants_.contains(at)) return true;
    const auto made = makers_.find(at);
    if (made == makers_.end()) return false;
    const NodeProto& node = *made->second;
    if (node.op_type() == "Constant" || node.op_type() == "ConstantOfShape") return true;
    if (!IsMove(node) && node.op_type() != "DequantizeLinear") return false;
    at = node.input(0);
  }
}

void InputUses::Walk(const std::string& from,
                     const std::function<bool(const Reader&)>& pass) const {
  std::deque<std::string> queue = {from};
  absl::flat_hash_set<std::string> seen = {from};
  const auto add = [&](const std::string& name) {
    if (!name.empty() && seen.insert(name).second) queue.push_back(name);
  };
  while (!queue.empty()) {
    const std::string name = queue.front();
    queue.pop_front();
    if (const auto leaf = leaves_.find(name); leaf != leaves_.end()) add(leaf->second);
    const auto it = readers_.find(name);
    if (it == readers_.end()) continue;
    for (const Reader& reader : it->second) {
      if (!pass(reader)) continue;
      for (const std::string& out : reader.node->output()) add(out);
    }
  }
}

InputUses::Table InputUses::TableOf(const std::string& input) const {
  Table widest;
  const auto look = [&](const std::string& name) {
    std::string at = name;
    while (!constants_.contains(at)) {
      const auto made = makers_.find(at);
      if (made == makers_.end() || made->second->input_size() == 0) return;
      at = made->second->input(0);
    }
    const TensorProto& table = *constants_.at(at);
    if (table.dims_size() < 2 || table.data_type() == TensorProto::BOOL ||
        table.data_type() == TensorProto::INT64 || table.data_type() == TensorProto::INT32) {
      return;
    }
    int64_t width = 1;
    for (int k = 1; k < table.dims_size(); ++k) width *= table.dims(k);
    if (width > widest.width) widest = {table.dims(0), width};
  };
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    if (r.operand == 1 && IsOneOf(node, {"Gather", "GatherBlockQuantized"})) {
      if (IntAttribute(node, "axis", 0) == 0 && IsConstant(node.input(0))) look(node.input(0));
      return false;
    }
    if (node.op_type() == "EmbedLayerNormalization") {
      // Words, segments and places, and their tables.
      for (const auto& [ids, table] : {std::pair(0, 2), {1, 4}, {8, 3}}) {
        if (r.operand != ids || node.input_size() <= table) continue;
        if (IsConstant(node.input(table))) look(node.input(table));
      }
      return false;
    }
    return r.operand == 0 && IsOneOf(node, {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze",
                                            "Flatten", "Clip", "Slice"});
  });
  return widest;
}

bool InputUses::IsPosition(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    if (IsOneOf(node, {"Sin", "Cos", "Range"})) found = true;
    if (IsOneOf(node, {"ScatterND", "ScatterElements", "RotaryEmbedding", "MRotaryEmbedding"}) &&
        r.operand == 1) {
      found = true;
    }
    if (IsOneOf(node, {"TensorScatter"}) && r.operand == 2) found = true;
    if (node.op_type() == "Slice" && r.operand >= 1) found = true;
    if (IsKeyValueCache(node) && r.operand == KeyValueCacheSlots::Of(node).start) found = true;
    return IsMove(node) || IsPick(&node, r.operand) ||
           IsOneOf(node, {"Add", "Sub", "Mul", "MatMul", "Einsum", "Where"});
  });
  return found;
}

bool InputUses::IsMask(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    if (IsOneOf(node, {"Softmax", "MaskedSoftmax"})) found = true;
    if (node.op_type() == "Attention" && node.domain().empty() && r.operand == 3) found = true;
    if (node.domain() == "com.microsoft" &&
        IsOneOf(node, {"MultiHeadAttention", "GroupQueryAttention", "Attention"}) &&
        r.operand >= 3) {
      found = true;
    }
    return IsMove(node) || IsOneOf(node, {"Add", "Sub", "Mul", "Where", "And", "Or", "Not", "Less",
                                          "Greater", "LessOrEqual", "GreaterOrEqual", "Equal",
                                          "Min", "Max", "Gather", "GatherND", "Neg", "Clip"});
  });
  return found;
}

bool InputUses::IsOrder(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    if (r.operand == 1 && r.node->op_type() == "Gather" && !IsConstant(r.node->input(0))) {
      const auto made = makers_.find(r.node->input(0)), order = makers_.find(r.node->input(1));
      const bool shape = made != makers_.end() && made->second->op_type() == "Shape";
      // A reshaped index of what the graph computes may be a position in a table, unless the graph
      // returns what it selects, such as a present in the order of the beams.
      const bool arranged =
          order != makers_.end() && IsOneOf(*order->second, {"Reshape", "Unsqueeze", "Squeeze"});
      const bool computed =
          arranged && made != makers_.end() && !outputs_.contains(r.node->output(0));
      // An index on a later axis, say of one slot of a mask, does not reorder sequences.
      if (!shape && !computed && IntAttribute(*r.node, "axis", 0) <= 1) found = true;
    }
    return r.operand == 0 &&
           IsOneOf(*r.node, {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze"});
  });
  return found;
}

std::optional<std::pair<Length, int64_t>> InputUses::LengthAtOperator(
    const std::string& input) const {
  std::optional<std::pair<Length, int64_t>> found;
  absl::flat_hash_map<std::string, int64_t> added = {{input, 0}};
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    const int64_t so_far = added[node.input(r.operand)];
    const auto is = [&](std::string_view op, std::string_view domain, int operand) {
      return node.op_type() == op && node.domain() == domain && r.operand == operand;
    };
    std::optional<Length> length;
    if (is("TensorScatter", "", 2)) length = Length::kPast;
    if (IsKeyValueCache(node) && r.operand == KeyValueCacheSlots::Of(node).start)
      length = Length::kPast;
    if (is("Attention", "", 6)) length = Length::kTotal;
    if (is("GroupQueryAttention", "com.microsoft", 5)) length = Length::kLast;
    if (is("GroupQueryAttention", "com.microsoft", 6)) length = Length::kLongest;
    if (is("Attention", "com.microsoft", 6)) length = Length::kPast;
    if (is("MultiHeadAttention", "com.microsoft", 8)) length = Length::kPast;
    if (length && !found) found = {*length, so_far};
    int64_t more = 0;
    if (IsOneOf(node, {"Add", "Sub"})) {
      const auto constant = constants_.find(node.input(1 - r.operand));
      const auto value = constant == constants_.end() ? std::nullopt : ScalarOf(*constant->second);
      if (!value || (node.op_type() == "Sub" && r.operand == 1)) return false;
      more = node.op_type() == "Sub" ? -*value : *value;
    } else if (!(r.operand == 0 && IsOneOf(node, {"Cast", "Identity", "Reshape", "Unsqueeze",
                                                  "Squeeze", "Expand", "Flatten"}))) {
      return false;
    }
    added[node.output(0)] = so_far + more;
    return true;
  });
  return found;
}

std::string InputUses::Maker(const std::string& value) const {
  const auto made = makers_.find(value);
  return made == makers_.end() ? std::string() : made->second->op_type();
}

bool InputUses::IsTruth(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    if (node.op_type() == "Cast") {
      const int64_t to = IntAttribute(node, "to", 0);
      found = found || to == TensorProto::BOOL || IsIntegerType(static_cast<int32_t>(to));
    }
    if (IsOneOf(node, {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"})) found = true;
    if (node.op_type() == "Sub" && r.operand == 1 && IsConstant(node.input(0))) found = true;
    return IsMove(node) || IsPick(&node, r.operand);
  });
  return found;
}

bool InputUses::SaysWhere(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    const NodeProto& node = *r.node;
    if (IsOneOf(node, {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal", "OneHot",
                       "Range", "ConstantOfShape", "Trilu", "CumSum", "GroupQueryAttention",
                       "MultiHeadAttention", "Attention", "LinearAttention"})) {
      found = true;
    }
    if (IsOneOf(node, {"ScatterND", "ScatterElements", "Scatter"}) && r.operand == 1) found = true;
    if (node.op_type() == "TensorScatter" && r.operand == 2) found = true;
    if (IsOneOf(node, {"Slice", "Expand", "Reshape", "Tile", "Pad"}) && r.operand >= 1)
      found = true;
    if (IsKeyValueCache(node)) found = true;
    if (IsOneOf(node, {"Gather", "GatherElements", "GatherND"}) && r.operand == 1 &&
        !IsConstant(node.input(0))) {
      found = true;
    }
    return IsMove(node) || IsPick(&node, r.operand) ||
           IsOneOf(node, {"Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Where", "Min", "Max",
                          "Clip", "ReduceMax", "ReduceMin", "ReduceSum", "GatherND", "Floor"});
  });
  return found;
}

bool InputUses::IsCompared(const std::string& input) const {
  bool found = false;
  Walk(input, [&](const Reader& r) {
    if (IsOneOf(*r.node, {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"})) {
      found = true;
    }
    if (r.node->op_type() == "OneHot" && r.operand == 0) found = true;
    return IsMove(*r.node) || IsOneOf(*r.node, {"Add", "Sub"}) || IsPick(r.node, r.operand);
  });
  return found;
}

}  // namespace kvlift
