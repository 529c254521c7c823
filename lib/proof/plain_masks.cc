#include "proof/plain_masks.h"

namespace kvlift::plain {

using onnx::NodeProto;
using onnx::TensorProto;

namespace {

// The positions P + s, a vector of S elements.
std::string Own(const std::string& past, const std::string& tokens, Writer& w) {
  w.Node("Add", {w.Count(tokens), past});
  return w.Name();
}

std::string Keys(const std::string& past, const std::string& tokens, Writer& w) {
  w.Node("Add", {past, tokens});
  return w.Count(w.Name());
}

std::string AsColumn(const std::string& row, Writer& w) {
  w.Node("Unsqueeze", {row, w.Ints({1})});
  return w.Name();
}

}  // namespace

std::string Positions(const std::string& queries, const std::string& past,
                      const std::string& tokens, Writer& w) {
  const std::string batch = w.Extent(queries, 0);
  const std::string row = Own(past, tokens, w);
  NodeProto& dims = w.Node("Concat", {batch, w.Ints({1})});
  SetInt(&dims, "axis", 0);
  const std::string shape = w.Name();
  w.Node("Expand", {row, shape});
  return w.Name();
}

std::string InOrder(const std::string& past, const std::string& tokens, Writer& w) {
  const std::string keys = Keys(past, tokens, w);
  const std::string column = AsColumn(Own(past, tokens, w), w);
  w.Node("LessOrEqual", {keys, column});
  return w.Name();
}

std::string InWindow(int64_t window, const std::string& past, const std::string& tokens,
                     Writer& w) {
  const std::string keys = Keys(past, tokens, w), last = Own(past, tokens, w);
  w.Node("Sub", {last, w.Ints({window})});
  const std::string column = AsColumn(w.Name(), w);
  w.Node("Greater", {keys, column});
  return w.Name();
}

std::string OfPadding(const std::string& mask, float low, int32_t type, Writer& w) {
  SetInt(&w.Node("Cast", {mask}), "to", TensorProto::INT64);
  const std::string numbers = w.Name();
  w.Node("Greater", {numbers, w.Ints({0}, true)});
  const std::string tokens = w.Name();
  w.Node("Unsqueeze", {tokens, w.Ints({1, 2})});
  const std::string real = w.Name();
  w.Node("Where", {real, w.Float(0), w.Float(low)});
  if (type == TensorProto::FLOAT) return w.Name();
  const std::string added = w.Name();
  SetInt(&w.Node("Cast", {added}), "to", type);
  return w.Name();
}

}  // namespace kvlift::plain
