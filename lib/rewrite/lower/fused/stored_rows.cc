#include "rewrite/lower/fused/stored_rows.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "rewrite/lower/fused/decoded_rows.h"

namespace kvlift::fused {
namespace {

using onnx::TensorProto;

enum Input { kPastKey = 3, kPastValue = 4, kKeyScale = 12, kValueScale = 13 };

constexpr int64_t kBias = 8;  // is added to a 4-bit code when it is stored
constexpr double kLargest = 0x1p126;

std::string FormOf(const onnx::NodeProto& node, const char* name) {
  const onnx::AttributeProto* form = FindAttribute(node, name);
  return form == nullptr || form->s().empty() ? "NONE" : form->s();
}

// Reads the scales of keys or of values. Returns why they are not supported; empty if they are.
std::string ReadScale(Lowering& l, NodeId n, int input, bool by_channel, StoredForm* stored) {
  const char* const name = input == kKeyScale ? "k_scale" : "v_scale";
  if (!l.has(n, input)) return fmt::format("needs a {}", name);
  const TensorProto* tensor = ConstantBehind(l.graph(), l.graph().inputs(n)[input]);
  if (tensor == nullptr || tensor->data_type() != TensorProto::FLOAT) {
    return fmt::format("needs a {} of constants: rows of earlier steps are read with it", name);
  }
  const auto values = ReadFloats(*tensor);
  const int64_t count = by_channel ? stored->heads * stored->size : 1;
  if (!values.ok() || static_cast<int64_t>(values->size()) != count) {
    return fmt::format("needs a {} of {} numbers", name, count);
  }
  for (double scale : *values) {
    if (!(scale >= 1 / kLargest && scale <= kLargest)) {
      return fmt::format("needs a {} of positive numbers", name);
    }
  }
  stored->scale.assign(values->begin(), values->end());
  return {};
}

// Returns the scales, or their inverses, as a constant: a scalar, or [1, heads, 1, size].
std::string Factor(Lowering& l, const StoredForm& stored, bool inverse, std::string_view role) {
  std::vector<float> values = stored.scale;
  if (inverse) {
    for (float& value : values) value = 1 / value;
  }
  std::vector<int64_t> dims;
  if (values.size() > 1) dims = {1, stored.heads, 1, stored.size};
  return l.nodes().Floats(dims, values, fmt::format("{}_{}", role, inverse ? "inverse" : "scale"));
}

// Returns the code of 0, which is the zero point.
std::string CodeOfZero(Lowering& l, const StoredForm& stored) {
  return l.nodes().Scalar(stored.two_in_a_byte() ? kBias : 0, stored.type);
}

// Returns the types of a cache whose codes have so many bits.
std::vector<int32_t> TypesOfCodes(int64_t bits) {
  if (bits == 4) return {TensorProto::UINT8};
  return {TensorProto::INT8, TensorProto::FLOAT8E4M3FN};
}

}  // namespace

std::string ReadStoredRows(Lowering& l, NodeId n, int64_t heads, int64_t size, StoredForm* key,
                           StoredForm* value) {
  const auto& node = l.graph().node(n);
  const int64_t bits = IntAttribute(node, "kv_cache_bit_width", 0);
  const std::string forms[] = {FormOf(node, "k_quant_type"), FormOf(node, "v_quant_type")};
  if (forms[0] == "NONE" && forms[1] == "NONE") {
    if (bits != 0) return "needs no kv_cache_bit_width where nothing is quantised";
    if (l.has(n, kKeyScale) || l.has(n, kValueScale)) {
      return "needs no scales of rows that are kept as they are";
    }
    *key = *value = {TensorProto::UNDEFINED, heads, size, {}};
    return {};
  }
  if (bits != 8 && bits != 4) return "needs a kv_cache_bit_width of 8 or 4";
  if (bits == 4 && size % 2 != 0) return "needs heads of an even size where two share a byte";
  const std::vector<int32_t> types = TypesOfCodes(bits);
  StoredForm* const sides[] = {key, value};
  for (int side = 0; side < 2; ++side) {
    if (forms[side] != "PER_TENSOR" && forms[side] != "PER_CHANNEL") {
      return "needs keys and values that are both quantised, PER_TENSOR or PER_CHANNEL";
    }
    const int32_t type = l.has(n, kPastKey + side) ? l.Type(n, kPastKey + side) : types[0];
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return fmt::format("needs caches of {} for {} bits, found {}",
                         bits == 4 ? "uint8" : "int8 or float8e4m3fn", bits, ElementTypeName(type));
    }
    if (side == 1 && type != key->type) return "needs caches of one type for keys and values";
    *sides[side] = {type, heads, size, {}};
    std::string why = ReadScale(l, n, kKeyScale + side, forms[side] == "PER_CHANNEL", sides[side]);
    if (!why.empty()) return why;
  }
  return {};
}

std::string Stored(Lowering& l, const StoredForm& stored, const std::string& rows,
                   std::string_view role) {
  NodeBuilder& nodes = l.nodes();
  const std::string one = nodes.Scalar(1, TensorProto::FLOAT), zero = CodeOfZero(l, stored);
  std::string x = nodes.Add("Mul", {rows, Factor(l, stored, true, role)}, "in_steps");
  if (!stored.two_in_a_byte()) return nodes.Add("QuantizeLinear", {x, one, zero}, "codes");
  x = nodes.Add(
      "Clip",
      {x, nodes.Scalar(-kBias, TensorProto::FLOAT), nodes.Scalar(kBias - 1, TensorProto::FLOAT)},
      "in_range");
  x = nodes.Add("QuantizeLinear", {x, one, zero}, "codes");
  x = nodes.Add("Reshape", {x, nodes.Int64s({0, 0, 0, stored.stored_size(), 2})}, "pairs");
  const auto half = [&](int64_t at, const char* name) {
    return nodes.Add("Gather", {x, nodes.Int64(at)}, name, {MakeAttribute("axis", int64_t{4})});
  };
  const std::string low = half(0, "low");
  const std::string high =
      nodes.Add("BitShift", {half(1, "high"), nodes.Scalar(4, TensorProto::UINT8)}, "high",
                {MakeAttribute("direction", std::string_view("LEFT"))});
  return nodes.Add("BitwiseOr", {low, high}, "bytes");
}

std::string Restored(Lowering& l, const StoredForm& stored, const std::string& cache,
                     std::string_view role) {
  NodeBuilder& nodes = l.nodes();
  NodeBuilder::Inputs inputs = {cache};
  if (stored.two_in_a_byte()) {
    const std::string byte = nodes.Add("Unsqueeze", {cache, nodes.Int64s({4})}, "bytes");
    const std::string shifted =
        nodes.Add("BitShift", {byte, nodes.Bytes({0, 4}, "halves")}, "halves",
                  {MakeAttribute("direction", std::string_view("RIGHT"))});
    const std::string pairs =
        nodes.Add("BitwiseAnd", {shifted, nodes.Scalar(15, TensorProto::UINT8)}, "pairs");
    inputs = {nodes.Add("Reshape", {pairs, nodes.Int64s({0, 0, 0, stored.size})}, "codes")};
  }
  const bool by_channel = stored.scale.size() > 1;
  inputs.push_back(by_channel ? nodes.Scalar(1, TensorProto::FLOAT)
                              : Factor(l, stored, false, role));
  if (stored.two_in_a_byte()) inputs.push_back(CodeOfZero(l, stored));
  const std::string rows = nodes.Add("DequantizeLinear", inputs, "dequantized");
  if (!by_channel) return rows;
  return nodes.Add("Mul", {rows, Factor(l, stored, false, role)}, "dequantized");
}

}  // namespace kvlift::fused
