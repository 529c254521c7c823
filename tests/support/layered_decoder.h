// A decoder of several layers as ONNX text. It has growing caches, one causal mask for all layers,
// and separate weights per layer.
#pragma once

#include <string>

#include "fmt/format.h"

namespace kvlift {

// Returns an initializer [8, 8]; its numbers depend on the seed.
inline std::string WeightText(const std::string& name, int seed) {
  std::string text = fmt::format("float[8,8] {} = {{", name);
  for (int k = 0; k < 64; ++k) {
    text += fmt::format("{}0.{}", k == 0 ? "" : ", ", 1 + (k * 7 + seed * 13) % 97);
  }
  return text + "}";
}

// Returns initializers router{i} [8, 32], whose columns are close to each other, and the rows
// rows_of_router{i} [32, 8].
inline std::string RouterText(int i) {
  std::string router, rows;
  for (int k = 0; k < 256; ++k) {
    router += fmt::format("{}0.5{:02}", k == 0 ? "" : ", ", (k * 37 + i * 11) % 97);
    rows += fmt::format("{}0.{}", k == 0 ? "" : ", ", 1 + (k * 29 + i * 5) % 89);
  }
  return fmt::format(
      ",\n  float[8,32] router{0} = {{{1}}},\n  float[32,8] rows_of_router{0} = {{{2}}},\n"
      "  int64[1] number_of_rows{0} = {{32}}, float[2] not_chosen{0} = {{0, 1}}",
      i, router, rows);
}

// What distinguishes one layer from the others; -1: no layer.
struct LayeredDecoder {
  int layers = 4;
  int other_scale = -1;    // the layer with another scale
  int other_bound = -1;    // the layer whose queries see one key less
  int shared_weight = -1;  // the layer whose keys and values have the same weight
  bool same_numbers = false;
  bool unread = false;      // each layer has nodes whose results nothing reads
  bool own_scales = false;  // each layer has a scale of its own
  bool router = false;      // each layer adds the best of many rows, whose scores are close
};

inline std::string Text(const LayeredDecoder& d) {
  std::string inputs, outputs, weights, nodes;
  for (int i = 0; i < d.layers; ++i) {
    inputs += fmt::format(", float[B,2,P,4] past_k{0}, float[B,2,P,4] past_v{0}", i);
    outputs += fmt::format(
        ", float[B,2,\"P + S\",4] present_k{0}, float[B,2,\"P + S\",4] present_v{0}", i);
    for (const char* which : {"q", "k", "v", "o"}) {
      weights += fmt::format(",\n  {}", WeightText(fmt::format("w{}{}", which, i),
                                                   d.same_numbers ? 0 : i * 4 + which[0]));
    }
    const std::string scale = d.own_scales         ? fmt::format("scale{}", i)
                              : i == d.other_scale ? "other_scale"
                                                   : "scale";
    if (d.own_scales) weights += fmt::format(",\n  float {} = {{0.{}}}", scale, 101 + i);
    if (d.router) weights += RouterText(i);
    const std::string residual =
        d.router ? fmt::format("attended{}", i) : fmt::format("x{}", i + 1);
    nodes += fmt::format(R"(
  q{0} = MatMul(x{0}, wq{0})
  k{0} = MatMul(x{0}, wk{0})
  v{0} = MatMul(x{0}, {1})
  q4_{0} = Reshape(q{0}, heads)
  k4_{0} = Reshape(k{0}, heads)
  v4_{0} = Reshape(v{0}, heads)
  qh{0} = Transpose<perm = [0, 2, 1, 3]>(q4_{0})
  kh{0} = Transpose<perm = [0, 2, 1, 3]>(k4_{0})
  vh{0} = Transpose<perm = [0, 2, 1, 3]>(v4_{0})
  present_k{0} = Concat<axis = 2>(past_k{0}, kh{0})
  present_v{0} = Concat<axis = 2>(past_v{0}, vh{0})
  kt{0} = Transpose<perm = [0, 1, 3, 2]>(present_k{0})
  product{0} = MatMul(qh{0}, kt{0})
  scores{0} = Mul(product{0}, {2})
  masked{0} = Add(scores{0}, {3})
  probs{0} = Softmax<axis = -1>(masked{0})
  context{0} = MatMul(probs{0}, present_v{0})
  c4_{0} = Transpose<perm = [0, 2, 1, 3]>(context{0})
  c{0} = Reshape(c4_{0}, columns)
  o{0} = MatMul(c{0}, wo{0})
  {4} = Add(x{0}, o{0}){5}
)",
                         i, fmt::format("w{}{}", i == d.shared_weight ? "k" : "v", i), scale,
                         i == d.other_bound ? "other_mask" : "mask", residual,
                         d.unread ? fmt::format("\n  unread{0} = Cast<to = 11>(x{0})"
                                                "\n  unread_too{0} = Neg(unread{0})"
                                                "\n  unread_dims{0} = Shape(past_k{0})",
                                                i)
                                  : "");
    if (d.router) {
      nodes += fmt::format(R"(
  scores_of_rows{0} = MatMul(attended{0}, router{0})
  best{0}, chosen{0} = TopK<axis = -1>(scores_of_rows{0}, axes_1)
  is_chosen{0} = OneHot<axis = -1>(chosen{0}, number_of_rows{0}, not_chosen{0})
  row{0} = MatMul(is_chosen{0}, rows_of_router{0})
  flat_row{0} = Reshape(row{0}, columns)
  x{1} = Add(attended{0}, flat_row{0})
)",
                           i, i + 1);
    }
  }
  return fmt::format(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (float[B,S,8] x0{}) => (float[B,S,8] y{})
<
  int64[4] heads = {{0, 0, 2, 4}}, int64[3] columns = {{0, 0, 8}},
  float scale = {{0.5}}, float other_scale = {{0.25}}, float low = {{-inf}}, float none0 = {{0}},
  int64 axis_s = {{2}}, int64 zero = {{0}}, int64 one = {{1}},
  int64[1] axes_1 = {{1}}, int64[1] axes_0 = {{0}}{}
>
{{
  past_dims = Shape(past_k0)
  p = Gather(past_dims, axis_s)
  new_dims = Shape(x0)
  s = Gather(new_dims, one)
  t = Add(p, s)
  rows = Range(p, t, one)
  cols = Range(zero, t, one)
  rows2 = Unsqueeze(rows, axes_1)
  cols2 = Unsqueeze(cols, axes_0)
  sees = LessOrEqual(cols2, rows2)
  mask = Where(sees, none0, low)
  before2 = Sub(rows2, one)
  window = Greater(cols2, before2)
  sees_few = And(sees, window)
  other_mask = Where(sees_few, none0, low)
{}
  y = Relu(x{})
}})",
                     inputs, outputs, weights, nodes, d.layers);
}

}  // namespace kvlift
