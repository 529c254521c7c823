#include "proof/lower/expand_contrib_rows.h"

#include "ir/graph.h"
#include "ir/tensor_data.h"

namespace kvlift::plain {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// Returns the scales, or their inverses, as a constant of one element or of shape [1, groups, 1,
// width].
std::string Numbers(const StoredForm& rows, bool inverse, Writer& w) {
  std::vector<float> values = rows.scale;
  for (float& value : values) value = inverse ? 1 / value : value;
  if (values.size() == 1) return w.Float(values[0]);
  return w.Floats({1, rows.groups, 1, rows.width}, values);
}

std::string Zero(const StoredForm& rows, Writer& w) {
  return w.Byte(rows.type, rows.in_four_bits() ? 8 : 0);
}

std::string Shifted(const std::string& x, const std::string& by, const char* direction, Writer& w) {
  NodeProto& node = w.Node("BitShift", {x, by});
  onnx::AttributeProto* a = node.add_attribute();
  a->set_name("direction");
  a->set_type(onnx::AttributeProto::STRING);
  a->set_s(direction);
  return w.Name();
}

}  // namespace

bool ReadStoredForm(const NodeProto& node, int side, int32_t type, int64_t groups, int64_t width,
                    const TensorProto* scale, StoredForm* rows) {
  const char* const name = side == 0 ? "k_quant_type" : "v_quant_type";
  const std::string form = StringAttribute(node, name, "NONE");
  if (form == "NONE" || form.empty()) return !Has(node, 12 + side);
  *rows = {type, groups, width, {}};
  const int64_t bits = IntAttribute(node, "kv_cache_bit_width", 0);
  const bool known =
      bits == 4 ? type == TensorProto::UINT8
                : bits == 8 && (type == TensorProto::INT8 || type == TensorProto::FLOAT8E4M3FN);
  if (!known || scale == nullptr || scale->data_type() != TensorProto::FLOAT || width % 2 != 0) {
    return false;
  }
  const auto values = ReadFloats(*scale);
  const int64_t count = form == "PER_TENSOR" ? 1 : groups * width;
  if (!values.ok() || static_cast<int64_t>(values->size()) != count) return false;
  for (double value : *values) {
    if (!(value > 0)) return false;
    rows->scale.push_back(static_cast<float>(value));
  }
  return true;
}

std::string RowsForCache(const StoredForm& rows, const std::string& x, Writer& w) {
  w.Node("Mul", {x, Numbers(rows, true, w)});
  if (rows.in_four_bits()) {
    const std::string steps = w.Name();
    w.Node("Clip", {steps, w.Float(-8), w.Float(7)});
  }
  const std::string steps = w.Name();
  w.Node("QuantizeLinear", {steps, w.Float(1), Zero(rows, w)});
  if (!rows.in_four_bits()) return w.Name();
  const std::string codes = w.Name();
  w.Node("Reshape", {codes, w.Ints({0, 0, 0, rows.width / 2, 2})});
  const std::string pairs = w.Name();
  std::string halves[2];
  for (int64_t k = 0; k < 2; ++k) {
    SetInt(&w.Node("Gather", {pairs, w.Ints({k}, true)}), "axis", 4);
    halves[k] = w.Name();
  }
  const std::string high = Shifted(halves[1], w.Byte(TensorProto::UINT8, 4), "LEFT", w);
  w.Node("BitwiseOr", {halves[0], high});
  return w.Name();
}

std::string RowsFromCache(const StoredForm& rows, const std::string& cache, Writer& w) {
  std::string codes = cache;
  if (rows.in_four_bits()) {
    w.Node("Unsqueeze", {cache, w.Ints({4})});
    const std::string bytes = w.Name(), halves = Shifted(bytes, w.Bytes({0, 4}), "RIGHT", w);
    w.Node("BitwiseAnd", {halves, w.Byte(TensorProto::UINT8, 15)});
    const std::string pairs = w.Name();
    w.Node("Reshape", {pairs, w.Ints({0, 0, 0, rows.width})});
    codes = w.Name();
  }
  const bool one = rows.scale.size() == 1;
  std::vector<std::string> inputs = {codes, one ? Numbers(rows, false, w) : w.Float(1)};
  if (rows.in_four_bits()) inputs.push_back(Zero(rows, w));
  w.Node("DequantizeLinear", inputs);
  if (one) return w.Name();
  const std::string read = w.Name();
  w.Node("Mul", {read, Numbers(rows, false, w)});
  return w.Name();
}

}  // namespace kvlift::plain
