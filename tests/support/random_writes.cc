// Writes of u [A, S, C] into x [A, B, C] at positions w, as exporters write them; and buffers that
// are stacked or shared.
#include <algorithm>

#include "support/random_graph.h"

namespace kvlift::testing {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt = onnx::TensorProto::INT64;

}  // namespace

std::string RandomGraph::Scalar(int64_t value) { return Indices({}, {value}); }

std::string RandomGraph::Op(const std::string& op, const std::vector<std::string>& inputs,
                            int32_t type, const Ints& dims) {
  return Node(op, inputs, type, dims)->output(0);
}

std::string RandomGraph::Extent(const std::string& value, int64_t rank, int64_t axis) {
  return Op("Gather", {Op("Shape", {value}, kInt, {rank}), Scalar(axis)}, kInt, {});
}

std::string RandomGraph::Count(const std::string& extent, int64_t n) {
  return Op("Range", {Scalar(0), extent, Scalar(1)}, kInt, {n});
}

// Returns positions [A, S]: w (shared, or one per row) plus the index of the token.
std::string RandomGraph::Places(bool per_row, int64_t low, int64_t high) {
  const int64_t a = dims_["A"], s = dims_["S"];
  const std::string tokens = Count(Extent("u", 3, 1), s);
  if (per_row) {
    AddInput("w", kInt, {"A"}, low, high);
    const std::string column = Op("Unsqueeze", {"w", Indices({1})}, kInt, {a, 1});
    return Op("Add", {tokens, column}, kInt, {a, s});
  }
  AddInput("w", kInt, {"1"}, low, high);
  const std::string shape = Indices({a, s});
  return Op("Expand", {Op("Add", {tokens, "w"}, kInt, {s}), shape}, kInt, {a, s});
}

// Returns the row indices [A, S] of the first axis.
std::string RandomGraph::Rows() {
  const int64_t a = dims_["A"], s = dims_["S"];
  const std::string rows = Count(Extent("x", 3, 0), a);
  const std::string column = Op("Unsqueeze", {rows, Indices({1})}, kInt, {a, 1});
  return Op("Expand", {column, Indices({a, s})}, kInt, {a, s});
}

void RandomGraph::ScatterRows(const std::string& places) {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  const std::string last = Indices({-1});
  const std::string i = Op("Unsqueeze", {Rows(), last}, kInt, {a, s, 1});
  const std::string j = Op("Unsqueeze", {places, last}, kInt, {a, s, 1});
  auto* index = Node("Concat", {i, j}, kInt, {a, s, 2});
  SetInt(index, "axis", 2);
  Node("ScatterND", {"x", index->output(0), "u"}, kFloat, {a, b, c});
}

void RandomGraph::ScatterFlatRows(const std::string& places) {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  const std::string first = Op("Mul", {Rows(), Extent("x", 3, 1)}, kInt, {a, s});
  const std::string place = Op("Add", {first, places}, kInt, {a, s});
  const std::string column = Op("Reshape", {place, Indices({-1, 1})}, kInt, {a * s, 1});
  const std::string width = Op("Unsqueeze", {Extent("x", 3, 2), Indices({0})}, kInt, {1});
  auto* rows = Node("Concat", {Indices({-1}), width}, kInt, {2});
  SetInt(rows, "axis", 0);
  const std::string shape = rows->output(0);
  const std::string flat = Op("Reshape", {"x", shape}, kFloat, {a * b, c});
  const std::string fresh = Op("Reshape", {"u", shape}, kFloat, {a * s, c});
  const std::string written = Op("ScatterND", {flat, column, fresh}, kFloat, {a * b, c});
  Node("Reshape", {written, Op("Shape", {"x"}, kInt, {3})}, kFloat, {a, b, c});
}

void RandomGraph::ScatterNumbers(const std::string& places) {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  const std::string shape = Op("Shape", {"u"}, kInt, {3}), last = Indices({-1});
  std::vector<std::string> columns;
  for (const std::string& place : {Rows(), places}) {
    const std::string wide = Op("Unsqueeze", {place, Indices({2})}, kInt, {a, s, 1});
    columns.push_back(Op("Expand", {wide, shape}, kInt, {a, s, c}));
  }
  columns.push_back(Op("Expand", {Count(Extent("u", 3, 2), c), shape}, kInt, {a, s, c}));
  for (std::string& column : columns) {
    column = Op("Unsqueeze", {column, last}, kInt, {a, s, c, 1});
  }
  auto* places4 = Node("Concat", columns, kInt, {a, s, c, 3});
  SetInt(places4, "axis", -1);
  const std::string index =
      Op("Reshape", {places4->output(0), Indices({-1, 3})}, kInt, {a * s * c, 3});
  const std::string fresh = Op("Reshape", {"u", last}, kFloat, {a * s * c});
  Node("ScatterND", {"x", index, fresh}, kFloat, {a, b, c});
}

void RandomGraph::ScatterWide(const std::string& places) {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  const std::string wide = Op("Unsqueeze", {places, Indices({2})}, kInt, {a, s, 1});
  const std::string index = Op("Expand", {wide, Op("Shape", {"u"}, kInt, {3})}, kInt, {a, s, c});
  SetInt(Node("ScatterElements", {"x", index, "u"}, kFloat, {a, b, c}), "axis", 1);
}

// Writes one token as x * (1 - hot) + u * hot.
void RandomGraph::Blend() {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"];
  AddInput("w", kInt, {"A"}, 0, b - 1);
  const std::string values = Constant(kFloat, {2}, {0, 1}), one = Constant(kFloat, {}, {1});
  const std::string hot = Op("OneHot", {"w", Extent("x", 3, 1), values}, kFloat, {a, b});
  const std::string gate = Op("Unsqueeze", {hot, Indices({2})}, kFloat, {a, b, 1});
  const std::string rest = Op("Sub", {one, gate}, kFloat, {a, b, 1});
  const std::string old = Op("Mul", {"x", rest}, kFloat, {a, b, c});
  const std::string fresh = Op("Mul", {gate, "u"}, kFloat, {a, b, c});
  Node("Add", {old, fresh}, kFloat, {a, b, c});
}

// Writes several tokens as x * (1 - sum of hot rows) + hot^T u. Places may lie outside.
void RandomGraph::BlendRows(bool per_row) {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  const std::string places = Places(per_row, -s, b);
  const std::string column = Op("Unsqueeze", {places, Indices({2})}, kInt, {a, s, 1});
  const std::string slots = Count(Extent("x", 3, 1), b);
  const std::string hit = Op("Equal", {column, slots}, onnx::TensorProto::BOOL, {a, s, b});
  auto* cast = Node("Cast", {hit}, kFloat, {a, s, b});
  SetInt(cast, "to", kFloat);
  const std::string hot = cast->output(0);
  auto* sum = Node("ReduceSum", {hot, Indices({1})}, kFloat, {a, b});
  SetInt(sum, "keepdims", 0);
  const std::string gate = Op("Unsqueeze", {sum->output(0), Indices({2})}, kFloat, {a, b, 1});
  const std::string one = Constant(kFloat, {}, {1});
  const std::string rest = Op("Sub", {one, gate}, kFloat, {a, b, 1});
  const std::string old = Op("Mul", {"x", rest}, kFloat, {a, b, c});
  std::string fresh;
  if (Coin()) {
    auto* product = Node("Einsum", {hot, "u"}, kFloat, {a, b, c});
    auto* equation = product->add_attribute();
    equation->set_name("equation");
    equation->set_type(onnx::AttributeProto::STRING);
    equation->set_s("zsm,zsd->zmd");
    fresh = product->output(0);
  } else {
    auto* turned = Node("Transpose", {hot}, kFloat, {a, b, s});
    auto* perm = turned->add_attribute();
    perm->set_name("perm");
    perm->set_type(onnx::AttributeProto::INTS);
    for (const int64_t axis : {0, 2, 1}) perm->add_ints(axis);
    fresh = Op("MatMul", {turned->output(0), "u"}, kFloat, {a, b, c});
  }
  // A product that something else reads is no part of a blend.
  std::erase_if(tensors_, [&](const Tensor& t) { return t.name == old; });
  Node("Add", {old, fresh}, kFloat, {a, b, c});
}

// Writes by Concat(x[:, :w], u, x[:, w + S:]).
void RandomGraph::Splice() {
  const int64_t a = dims_["A"], b = dims_["B"], c = dims_["C"], s = dims_["S"];
  AddInput("w", kInt, {"1"}, 0, b - s);
  const int64_t w = static_cast<int64_t>(feeds_.back().values[0]);
  const std::string axis = Indices({1});
  const std::string end = Op("Add", {"w", Extent("u", 3, 1)}, kInt, {1});
  const std::string head = Op("Slice", {"x", Indices({0}), "w", axis}, kFloat, {a, w, c});
  const std::string tail = Op("Slice", {"x", end, Indices({b}), axis}, kFloat, {a, b - w - s, c});
  SetInt(Node("Concat", {head, "u", tail}, kFloat, {a, b, c}), "axis", 1);
}

// Unstacks the tensors in z, appends rows to each, and stacks them again; the last rows of the
// whole are used.
void RandomGraph::Stack() {
  const int64_t b = dims_["B"], c = dims_["C"], s = dims_["S"], n = Pick(2, 3);
  AddInput("z", kFloat, {std::to_string(n), "B", "C"}, -9, 9);
  const bool turned = Pick(0, 3) == 0;
  std::vector<std::string> all;
  for (int64_t k = 0; k < n; ++k) {
    const std::string name = "n" + std::to_string(k);
    AddInput(name, kFloat, {"S", "C"}, -9, 9);
    const int64_t from = turned ? n - 1 - k : k;
    std::string old;
    if (Coin()) {
      old = Op("Gather", {"z", Scalar(Coin() ? from : from - n)}, kFloat, {b, c});
    } else {
      const std::string part =
          Op("Slice", {"z", Indices({from}), Indices({from + 1}), Indices({0})}, kFloat, {1, b, c});
      old = Op("Squeeze", {part, Indices({0})}, kFloat, {b, c});
    }
    auto* grown = Node("Concat", {old, name}, kFloat, {b + s, c});
    SetInt(grown, "axis", 0);
    all.push_back(Op("Unsqueeze", {grown->output(0), Indices({0})}, kFloat, {1, b + s, c}));
  }
  auto* stack = Node("Concat", all, kFloat, {n, b + s, c});
  SetInt(stack, "axis", 0);
  const std::string whole = stack->output(0);
  const int64_t window = Pick(1, 6), last = std::min(window, b + s);
  const std::string total = Op("Shape", {whole}, kInt, {3});
  const std::string length = Op("Gather", {total, Indices({1})}, kInt, {1});
  const std::string over = Op("Sub", {length, Indices({window})}, kInt, {1});
  const std::string start =
      Coin() ? Indices({-window}) : Op("Max", {over, Indices({0})}, kInt, {1});
  Node("Slice", {whole, start, length, Indices({1})}, kFloat, {n, last, c});
}

// One buffer z for all layers is written layer by layer, perhaps not by all.
void RandomGraph::Layers() {
  const int64_t b = dims_["B"], c = dims_["C"], s = dims_["S"], n = Pick(1, 3);
  AddInput("z", kFloat, {std::to_string(n), "B", "C"}, -9, 9);
  AddInput("w", kInt, {"1"}, 0, b - s);
  const std::string tokens = Count(Extent("u", 3, 1), s);
  const std::string places = Op("Add", {tokens, "w"}, kInt, {s});
  const std::string column = Op("Unsqueeze", {places, Indices({1})}, kInt, {s, 1});
  std::string buffer = "z";
  for (int64_t k = 0; k < n; ++k) {
    if (Pick(0, 5) == 0) continue;
    const std::string name = "n" + std::to_string(k);
    AddInput(name, kFloat, {"S", "C"}, -9, 9);
    const std::string row =
        Op("Expand", {Scalar(k), Op("Shape", {column}, kInt, {2})}, kInt, {s, 1});
    auto* index = Node("Concat", {row, column}, kInt, {s, 2});
    SetInt(index, "axis", 1);
    buffer = Op("ScatterND", {buffer, index->output(0), name}, kFloat, {n, b, c});
  }
}

void RandomGraph::Writes() {
  const int64_t b = dims_["B"], kind = Pick(0, 11);
  const int64_t s = dims_["S"] = kind == 5 ? 1 : Pick(1, b);
  AddInput("u", kFloat, {"A", "S", "C"}, -9, 9);
  if (kind == 5) return Blend();
  if (kind == 11) return BlendRows(Coin());
  if (kind == 6) return Splice();
  if (kind == 9) return Stack();
  if (kind == 10) return Layers();
  if (kind == 7) {  // the start is clamped
    std::string places = Places(Coin(), -3, b + 2);
    const Ints shape = Last().dims;
    const std::string tokens = Count(Extent("u", 3, 1), s);
    const std::string start = Op("Sub", {places, tokens}, kInt, shape);
    const std::string low = Op("Max", {start, Scalar(0)}, kInt, shape);
    const std::string last = Op("Sub", {Extent("x", 3, 1), Extent("u", 3, 1)}, kInt, {});
    const std::string clamped = Op("Min", {low, last}, kInt, shape);
    return ScatterRows(Op("Add", {clamped, tokens}, kInt, shape));
  }
  if (kind == 8) {  // wraps around
    const std::string places = Places(Coin(), 0, b - 1);
    const auto dims = Last().dims;
    return ScatterRows(Op("Mod", {places, Extent("x", 3, 1)}, kInt, dims));
  }
  const std::string places = Places(Coin(), 0, b - s);
  if (kind <= 1) return ScatterRows(places);
  if (kind == 2) return ScatterFlatRows(places);
  if (kind == 3) return ScatterNumbers(places);
  ScatterWide(places);
}

}  // namespace kvlift::testing
