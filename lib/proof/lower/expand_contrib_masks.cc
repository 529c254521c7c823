#include "proof/lower/expand_contrib_masks.h"

#include <limits>
#include <vector>

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

namespace {

std::string AsVector(const std::string& x, Writer& w) {
  SetInt(&w.Node("Cast", {x}), "to", TensorProto::INT64);
  const std::string numbers = w.Name();
  w.Node("Reshape", {numbers, w.Ints({-1})});
  return w.Name();
}

}  // namespace

std::string FirstSlots(const std::string& last, const std::string& total, const std::string& tokens,
                       Writer& w) {
  const std::string slots = AsVector(last, w);
  w.Node("Add", {slots, w.Ints({1})});
  const std::string lengths = w.Name();
  w.Node("Sub", {lengths, tokens});
  const std::string later = w.Name();
  const std::string longest = AsVector(total, w);
  w.Node("Equal", {longest, tokens});
  const std::string first_step = w.Name();
  w.Node("Where", {first_step, w.Ints({0}), later});
  return w.Name();
}

std::string SlotsOfRows(const std::string& first, const std::string& tokens, Writer& w) {
  const std::string column = AsColumn(first, w);
  const std::string rows = w.Count(tokens);
  w.Node("Add", {column, rows});
  return w.Name();
}

std::string OfSlots(int64_t window, const std::string& slots, const std::string& capacity,
                    Writer& w) {
  w.Node("Unsqueeze", {slots, w.Ints({1, 3})});
  const std::string rows = w.Name();
  const std::string keys = w.Count(capacity);
  w.Node("LessOrEqual", {keys, rows});
  const std::string order = w.Name();
  if (window < 1) return order;
  w.Node("Sub", {rows, w.Ints({window})});
  const std::string hidden = w.Name();
  w.Node("Greater", {keys, hidden});
  const std::string near = w.Name();
  w.Node("And", {order, near});
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

namespace {

// A scalar of an element type.
std::string Number(float value, int32_t type, Writer& w) {
  const std::string number = w.Float(value);
  if (type == TensorProto::FLOAT) return number;
  SetInt(&w.Node("Cast", {number}), "to", type);
  return w.Name();
}

std::string Joined(const std::vector<std::string>& parts, int64_t axis, Writer& w) {
  SetInt(&w.Node("Concat", parts), "axis", axis);
  return w.Name();
}

}  // namespace

std::string WithSink(const std::string& seen, const std::string& sink, int64_t heads, int32_t type,
                     const std::string& tokens, Writer& w) {
  const std::string shown = Number(0, type, w);
  const std::string hidden = Number(-std::numeric_limits<float>::infinity(), type, w);
  w.Node("Where", {seen, shown, hidden});
  w.Node("Expand", {w.Name(), w.Ints({1, heads, 1, 1})});
  const std::string keys = w.Name();
  std::string scores = shown;
  if (!sink.empty()) {
    w.Node("Reshape", {sink, w.Ints({1, heads, 1, 1})});
    scores = w.Name();
  }
  const std::string sequences = w.Extent(keys, 0);
  const std::string shape = Joined({sequences, w.Ints({heads}), tokens, w.Ints({1})}, 0, w);
  w.Node("Expand", {scores, shape});
  return Joined({keys, w.Name()}, 3, w);
}

std::string WithZeros(const std::string& rows, int64_t heads, int64_t size, int32_t type,
                      Writer& w) {
  const std::string shape = Joined({w.Extent(rows, 0), w.Ints({heads, 1, size})}, 0, w);
  const std::string zero = Number(0, type, w);
  w.Node("Expand", {zero, shape});
  return Joined({rows, w.Name()}, 2, w);
}

}  // namespace kvlift::plain
