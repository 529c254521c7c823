// LIBS: oracle onnxio proof
// SRCS: support/lemma_graphs.cc
// The lemmas of lib/proof/lemmas, held against the oracle: each statement holds for random numbers,
// and without each of its side conditions it does not.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "proof/lemmas/heads_regrouped.h"
#include "proof/lemmas/scale_moved.h"
#include "support/lemma_graphs.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

TEST_F(Lemmas, FiniteMinimum) {
  const std::string masked = Operator("bool[1,1,3,5]");
  for (double number : {-1e4, -1e9, -3.4028234e38}) {
    SetMask({1, 3, 5}, number);
    EXPECT_TRUE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_))) << number;
  }
  // Without a key that is seen, the average of all values takes the place of nothing.
  SetMask({0, 3, 5}, -3.4028234e38);
  EXPECT_FALSE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_)));
  // Without scores that lie near each other, a hidden key is the largest.
  SetMask({1, 3, 5}, -1e4);
  for (double& x : inputs_["q"].values) x *= 1e3;
  for (double& x : inputs_["k"].values) x *= 1e3;
  EXPECT_FALSE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_)));
}

TEST_F(Lemmas, NanGuard) {
  const std::string masked = Operator("bool[1,1,3,5]");
  const std::string guard = "n = IsNaN(p)\n w = Where(n, zero, p)";
  SetMask({2, 3, 5}, -kInf);
  EXPECT_TRUE(AreNear(Result(WrittenOut(guard), inputs_), Result(masked, inputs_)));
  // Where all keys are hidden the guard gives 0, as the operator does.
  SetMask({0, 3, 5}, -kInf);
  EXPECT_TRUE(AreNear(Result(WrittenOut(guard), inputs_), Result(masked, inputs_)));
  EXPECT_FALSE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_)));
  // Another value than the one that is handed on.
  SetMask({2, 3, 5}, -kInf);
  EXPECT_FALSE(AreNear(
      Result(WrittenOut("o = Sub(bias, bias)\n n = IsNaN(o)\n w = Where(n, half, p)"), inputs_),
      Result(masked, inputs_)));
  // Another number than 0 in its place.
  SetMask({0, 3, 5}, -kInf);
  EXPECT_FALSE(AreNear(Result(WrittenOut("n = IsNaN(p)\n w = Where(n, half, p)"), inputs_),
                       Result(masked, inputs_)));
  // Scores that are NaN themselves.
  SetMask({2, 3, 5}, -kInf);
  inputs_["q"].values[0] = std::nan("");
  EXPECT_FALSE(AreNear(Result(WrittenOut(guard), inputs_), Result(masked, inputs_)));
}

TEST_F(Lemmas, RowMaximum) {
  const auto less = [](const std::string& axis, const std::string& behind) {
    return WrittenOut("w = Identity(p)",
                      "t = Mul(s, half)\n x = Add(t, bias)\n axes = Constant<value = int64[1] {" +
                          axis + "}>()\n m = ReduceMax(x, axes)\n l = Sub(x, m)\n b = " + behind);
  };
  SetMask({2, 3, 5}, -kInf);
  const std::string capped = "t = Mul(s, half)\n x = Add(t, bias)\n b = Tanh(x)";
  EXPECT_TRUE(AreNear(Result(less("-1", "Identity(l)"), inputs_), Result(WrittenOut(), inputs_)));
  // The maximum of other scores than those of the row.
  SetMask({5, 5, 5}, -kInf);
  EXPECT_FALSE(AreNear(Result(less("-2", "Identity(l)"), inputs_), Result(WrittenOut(), inputs_)));
  // Not off all scores: the last key keeps its own.
  SetMask({2, 3, 5}, -kInf);
  const std::string parts =
      "from = Constant<value = int64[1] {0}>()\n to = Constant<value = int64[1] {4}>()\n"
      "end = Constant<value = int64[1] {5}>()\n along = Constant<value = int64[1] {3}>()\n"
      "to_last = Constant<value = int64[1] {-1}>()\n";
  const std::string some = WrittenOut(
      "w = Identity(p)", "t = Mul(s, half)\n x = Add(t, bias)\n" + parts +
                             "m = ReduceMax(x, to_last)\n l = Sub(x, m)\n"
                             "front = Slice(l, from, to, along)\n"
                             "back = Slice(x, to, end, along)\n b = Concat<axis = 3>(front, back)");
  EXPECT_FALSE(AreNear(Result(some, inputs_), Result(WrittenOut(), inputs_)));
  // A softcap behind it.
  EXPECT_FALSE(AreNear(Result(less("-1", "Tanh(l)"), inputs_),
                       Result(WrittenOut("w = Identity(p)", capped), inputs_)));
}

TEST_F(Lemmas, WrittenSoftmax) {
  const auto divided = [](const std::string& top_axis, const std::string& sum_axis) {
    return WrittenOut("a = Constant<value = int64[1] {" + top_axis +
                      "}>()\n c = Constant<value = int64[1] {" + sum_axis +
                      "}>()\n m = ReduceMax(b, a)\n l = Sub(b, m)\n e = Exp(l)\n "
                      "r = ReduceSum(e, c)\n w = Div(e, r)");
  };
  SetMask({2, 3, 5}, -kInf);
  EXPECT_TRUE(AreNear(Result(divided("-1", "-1"), inputs_), Result(WrittenOut(), inputs_)));
  // The sum of another row.
  SetMask({5, 5, 5}, -kInf);
  EXPECT_FALSE(AreNear(Result(divided("-1", "-2"), inputs_), Result(WrittenOut(), inputs_)));
  // The maximum of another row.
  EXPECT_FALSE(AreNear(Result(divided("-2", "-1"), inputs_), Result(WrittenOut(), inputs_)));
}

TEST_F(Lemmas, RenormalisedWeights) {
  const std::string masked = Operator("bool[1,1,3,5]");
  const auto behind = [](const std::string& summed, const std::string& axis) {
    return WrittenOut(
        "sees = Equal(bias, zero)\n m = Cast<to = 1>(sees)\n left = Mul(p, m)\n "
        "a = Constant<value = int64[1] {" +
            axis + "}>()\n r = ReduceSum(" + summed + ", a)\n w = Div(left, r)",
        "b = Mul(s, half)");
  };
  SetMask({2, 3, 5}, -1e9);
  EXPECT_TRUE(AreNear(Result(behind("left", "-1"), inputs_), Result(masked, inputs_)));
  // The sum of all weights, and that of another row.
  EXPECT_FALSE(AreNear(Result(behind("p", "-1"), inputs_), Result(masked, inputs_)));
  EXPECT_FALSE(AreNear(Result(behind("left", "-2"), inputs_), Result(masked, inputs_)));
  // A row in which the mask leaves no key.
  SetMask({0, 3, 5}, -1e9);
  EXPECT_FALSE(AreNear(Result(behind("left", "-1"), inputs_), Result(masked, inputs_)));
  // Visible keys whose weights vanish beside those of hidden ones.
  SetMask({2, 3, 5}, -1e9);
  for (double& x : inputs_["q"].values) x *= 1e3;
  for (double& x : inputs_["k"].values) x *= 1e3;
  EXPECT_FALSE(AreNear(Result(behind("left", "-1"), inputs_), Result(masked, inputs_)));
}

// A sixth key and value, and six columns of what is added to scores.
TEST_F(Lemmas, SinkKey) {
  const std::string head =
      "g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v, float[1,2,1,4] key, "
      "float[1,2,1,4] value, float[1,2,3,6] all) => (float[1,2,3,4] y) <float half = {0.5}, "
      "int64[1] one = {1}, int64[1] five = {5}, int64[1] six = {6}, int64[1] zero = {0}, "
      "int64[1] three = {3}> {\n";
  const auto with_key = [&](const std::string& more) {
    return head + "kk = Concat<axis = 2>(k, key)\n vv = Concat<axis = 2>(v, value)\n" +
           "y = Attention<scale = 0.5>(q, kk, vv, all" + more + ")\n}";
  };
  const std::string cut =
      head +
      "kt = Transpose<perm = [0, 1, 3, 2]>(k)\n s = MatMul(q, kt)\n t = Mul(s, half)\n"
      "bias = Slice(all, zero, five, three)\n sink = Slice(all, five, six, three)\n"
      "x = Add(t, bias)\n b = Concat<axis = 3>(x, sink)\n p = Softmax<axis = -1>(b)\n"
      "w = Slice(p, zero, five, three)\n y = MatMul(w, v)\n}";
  inputs_["all"] = Random({1, 2, 3, 6}, rng_);
  const Numbers zeros = {{1, 2, 1, 4}, std::vector<double>(8, 0.0)};
  inputs_["key"] = inputs_["value"] = zeros;
  EXPECT_TRUE(AreNear(Result(with_key(""), inputs_), Result(cut, inputs_)));
  // Valid lengths hide the key.
  EXPECT_FALSE(AreNear(Result(with_key(", , , five"), inputs_), Result(cut, inputs_)));
  inputs_["key"] = Random({1, 2, 1, 4}, rng_);
  EXPECT_FALSE(AreNear(Result(with_key(""), inputs_), Result(cut, inputs_)));
  inputs_["key"] = zeros;
  inputs_["value"] = Random({1, 2, 1, 4}, rng_);
  EXPECT_FALSE(AreNear(Result(with_key(""), inputs_), Result(cut, inputs_)));
}

// Every cast that is called exact gives every number back, and the others lose one of these.
TEST_F(Lemmas, ExactCast) {
  const std::map<int32_t, std::vector<double>> numbers = {
      {TensorProto::FLOAT, {1 + 0x1p-23, -2.5, 0x1p100, 0x1p-140, 70000}},
      {TensorProto::FLOAT16, {0.0999755859375, -2.5, 65504, 0x1p-24}},
      {TensorProto::BFLOAT16, {0.10009765625, -2.5, 0x1p100}},
      {TensorProto::INT64, {0, -1, 300, 70000, 16777217, 0x1p53 + 2}},
      {TensorProto::INT32, {0, -1, 300, 70000, 16777217}},
      {TensorProto::INT16, {0, -1, 300, 2049, -32768}},
      {TensorProto::INT8, {0, -1, 127, -128}},
      {TensorProto::UINT8, {0, 1, 200, 255}}};
  int exact = 0, others = 0;
  for (const auto& [from, all] : numbers) {
    for (const auto& [to, unused] : numbers) {
      std::vector<double> given = all;
      if (from == TensorProto::INT64) given.push_back(0x1p53 - 1);
      const Inputs in = {{"x", Numbers{{static_cast<int64_t>(given.size())}, given}}};
      // In float64 and back: every type but int64 fits into it.
      const std::string text = fmt::format(
          "g (double[{0}] x) => (double[{0}] y) {{ a = Cast<to = {1}>(x)\n b = Cast<to = {2}>(a)\n"
          " c = Cast<to = {1}>(b)\n d = Cast<to = 11>(b)\n e = Cast<to = 11>(c)\n"
          " f = Equal(d, x)\n g = Equal(e, x)\n h = And(f, g)\n y = Cast<to = 11>(h) }}",
          given.size(), from, to);
      const std::vector<double> same = Result(text, in);
      const bool all_same = std::count(same.begin(), same.end(), 1.0) == std::ssize(given);
      const bool is_exact = sym::CastFidelity(from, to) == sym::Fidelity::kExact;
      EXPECT_EQ(all_same, is_exact) << from << " to " << to;
      ++(is_exact ? exact : others);
    }
  }
  EXPECT_GT(exact, 10);
  EXPECT_GT(others, 10);
}

TEST_F(Lemmas, ScaleMoved) {
  SetMask({5, 5, 5}, 0);
  const std::vector<double> plain = Result(WrittenOut(), inputs_);
  const auto with = [&](const std::string& attributes) {
    return Result(Operator("bool[1,1,3,5]", attributes), inputs_);
  };
  EXPECT_TRUE(AreNear(plain, with("scale = 0.5")));
  EXPECT_FALSE(AreNear(plain, with("scale = 0.25")));
  const std::string parts = "t1 = Mul(s, two)\n t2 = Div(t1, two)\n t3 = Mul(t2, minus)\n";
  EXPECT_TRUE(AreNear(plain, Result(WrittenOut("w = Identity(p)", parts + R"(
      t4 = Div(t3, minus)
      t = Mul(t4, half)
      b = Add(t, bias))"),
                                    inputs_)));
  for (double& x : inputs_["q"].values) x *= 2;
  EXPECT_TRUE(AreNear(plain, with("scale = 0.25")));
  for (double& x : inputs_["q"].values) x /= 2;
  // A cap is what multiplies behind the tangent.
  const auto capped = [&](const std::string& cap) {
    return Result(WrittenOut("w = Identity(p)", fmt::format("t = Mul(s, half)\n h = Tanh(t)\n"
                                                            "c = Mul(h, {})\n b = Add(c, bias)",
                                                            cap)),
                  inputs_);
  };
  EXPECT_TRUE(AreNear(capped("two"), with("scale = 1.0, softcap = 2.0")));
  // A factor of 0 is no cap, one below 0 no scale, an infinite one neither.
  EXPECT_FALSE(IsScale(0) || IsScale(-0.5) || IsScale(kInf) || IsScale(std::nan("")));
  EXPECT_FALSE(AreNear(capped("zero"), with("scale = 1.0, softcap = 0.0")));
  const std::string negative = "t = Mul(s, minus)\n b = Add(t, bias)";
  EXPECT_FALSE(
      AreNear(Result(WrittenOut("w = Identity(p)", negative), inputs_), with("scale = -1.0")));
  const std::string infinite = "i = Mul(s, none)\n t = Div(i, none)\n b = Add(t, bias)";
  EXPECT_FALSE(
      AreNear(Result(WrittenOut("w = Identity(p)", infinite), inputs_), with("scale = 1.0")));
  // Rounding explains a difference in the last place, and no larger one.
  const double third = 1.0 / 3;
  EXPECT_TRUE(AreOneScale(static_cast<double>(static_cast<float>(third)), third));
  EXPECT_FALSE(AreOneScale(third * (1 + 0x1p-22), third));
  EXPECT_FALSE(AreOneScale(kInf, kInf));
  // In half precision the operator rounds the root of its scale, as sources do that spell it out.
  const double usual = 1 / std::sqrt(12.0), half = 0.537109375;
  EXPECT_TRUE(AreOneScale(ScaleOfText(usual, onnx::TensorProto::FLOAT16), half * half));
  EXPECT_FALSE(AreOneScale(usual, half * half));
  EXPECT_FALSE(AreOneScale(5, kInf));
  // 1 / sqrt(8), and what float16 makes of it step by step.
  const double wide = 1 / std::sqrt(8.0), narrow = 0.353515625;
  EXPECT_FALSE(AreOneScale(wide, narrow));
  EXPECT_TRUE(AreOneScale(wide, narrow, onnx::TensorProto::FLOAT16));
  EXPECT_FALSE(AreOneScale(wide, wide * 1.002, onnx::TensorProto::FLOAT16));
  EXPECT_TRUE(AreOtherScales(wide, wide * 1.01, onnx::TensorProto::FLOAT16));
  EXPECT_TRUE(AreOtherScales(5, kInf));
}

// Numbers of a type end: a factor that stands behind the products cannot stand in front of them.
TEST_F(Lemmas, ScaleMovedWithinTheRangeOfAType) {
  const auto largest = [](const std::string& in_front, const std::string& behind) {
    const Inputs in = {{"q", Numbers{{1, 2}, {100, 100}}}, {"k", Numbers{{2, 1}, {1000, 1000}}}};
    return Result(fmt::format("g (float[1,2] q, float[2,1] k) => (float y) "
                              "<float a = {{{}}}, float b = {{{}}}> {{ x = Mul(q, a)\n"
                              " xh = Cast<to = 10>(x)\n kh = Cast<to = 10>(k)\n"
                              " s = MatMul(xh, kh)\n t = Cast<to = 1>(s)\n y = Mul(t, b) }}",
                              in_front, behind),
                  in);
  };
  EXPECT_FALSE(std::isinf(largest("0.0009765625", "1024.0")[0]));
  EXPECT_TRUE(std::isinf(largest("1.0", "1.0")[0]));
  const int32_t half = onnx::TensorProto::FLOAT16, single = onnx::TensorProto::FLOAT;
  EXPECT_TRUE(AreNear(ProductScale{1, 0.125, half}, ProductScale{1, 1, half}));
  EXPECT_FALSE(AreNear(ProductScale{1, 0.125, half}, ProductScale{0x1p-12, 0x1p-12, half}));
  EXPECT_FALSE(AreNear(ProductScale{1, 0.125, half}, ProductScale{0x1p-12, 0x1p-12, single}));
  EXPECT_TRUE(AreNear(ProductScale{1, 0.125, single}, ProductScale{0x1p-12, 0x1p-12, single}));
  EXPECT_FALSE(AreNear(ProductScale{0x1p120, 0.125, single}, ProductScale{1, 1, single}));
  EXPECT_FALSE(AreNear(ProductScale{1, 0x1p-40, single}, ProductScale{1, 1, single}));
}

// A product of integers is taken in their type, and a quotient without its rest.
TEST_F(Lemmas, ScaleMovedOfIntegers) {
  const auto of = [&](const std::string& type, const std::string& op) {
    const Inputs in = {{"x", Numbers{{2}, {7, 100}}}};
    return Result(fmt::format("g ({0}[2] x) => (double[2] y) <{0} c = {{2}}> {{ z = {1}(x, c)\n"
                              " y = Cast<to = 11>(z) }}",
                              type, op),
                  in);
  };
  EXPECT_EQ(of("float", "Div"), (std::vector<double>{3.5, 50}));
  EXPECT_NE(of("int8", "Div"), of("float", "Div"));
  EXPECT_NE(of("int8", "Mul"), of("float", "Mul"));
}

// In float32, with a softmax in half precision: where roundings are, as the bounds tell.
TEST_F(Lemmas, SoftmaxPrecision) {
  SetMask({2, 3, 5}, -kInf);
  const auto written = [&](const std::string& nodes) {
    return Bound(fmt::format("{}float[1,1,3,5] bias) => (float[1,2,3,4] y) "
                             "<float half = {{0.5}}> {{ kt = Transpose<perm = [0, 1, 3, 2]>(k)\n"
                             "s = MatMul(q, kt)\n {}\n y = MatMul(w, v) }}",
                             kHead, nodes),
                 inputs_);
  };
  const double none = Bound(Operator("bool[1,1,3,5]"), inputs_),
               half = Bound(Operator("bool[1,1,3,5]", "softmax_precision = 10"), inputs_);
  const auto near = [](double a, double b) { return std::abs(a - b) < 0.05 * b; };
  const std::string scaled = "t = Mul(s, half)\n b = Add(t, bias)\n";
  EXPECT_TRUE(near(written(scaled + "c = Cast<to = 10>(b)\n p = Softmax<axis = -1>(c)\n"
                                    "w = Cast<to = 1>(p)"),
                   half));
  // A cast that is not the last step in front of the softmax.
  const double early = written(
      "c = Cast<to = 10>(s)\n e = Cast<to = 1>(c)\n t = Mul(e, half)\n"
      "b = Add(t, bias)\n w = Softmax<axis = -1>(b)");
  EXPECT_FALSE(near(early, none) || near(early, half)) << early;
  // A cast behind it that does not go from its type to that of the values.
  const double late = written(scaled +
                              "p = Softmax<axis = -1>(b)\n c = Cast<to = 10>(p)\n"
                              "w = Cast<to = 1>(c)");
  EXPECT_FALSE(near(late, none) || near(late, half)) << late;
}

// A mask of three columns for five keys.
TEST_F(Lemmas, ShortMask) {
  SetMask({1, 2, 3}, -kInf);
  const std::vector<double> all = Result(Operator("bool[1,1,3,5]"), inputs_);
  const auto shortened = [&](double behind) {
    Inputs in = inputs_;
    Numbers& mask = in["mask"];
    for (size_t k = 0; k < mask.values.size(); ++k) {
      if (k % 5 >= 3) mask.values[k] = behind;
    }
    return Result(Operator("bool[1,1,3,5]"), in);
  };
  Inputs in = inputs_;
  in["mask"] = Numbers{{1, 1, 3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1}};
  EXPECT_TRUE(AreNear(Result(Operator("bool[1,1,3,3]"), in), all));
  EXPECT_TRUE(AreNear(Result(Operator("bool[1,1,3,3]"), in), shortened(0)));
  // Columns that are not there show nothing.
  EXPECT_FALSE(AreNear(Result(Operator("bool[1,1,3,3]"), in), shortened(1)));
}

// Causal order, valid length and mask, each by itself and all in one mask.
TEST_F(Lemmas, MaskSplit) {
  const auto of = [&](const std::string& attributes, double valid, const Numbers& mask) {
    Inputs in = inputs_;
    in["mask"] = mask;
    in["n"] = Numbers{{1}, {valid}};
    return Result(fmt::format("{}bool[1,1,3,5] mask, int64[1] n) => (float[1,2,3,4] y) "
                              "{{ y = Attention<{}>(q, k, v, mask, , , n) }}",
                              kHead, attributes),
                  in);
  };
  const Numbers all{{1, 1, 3, 5}, std::vector<double>(15, 1)};
  for (const int valid : {3, 4, 5}) {
    Numbers rest = all, joined = all;
    for (size_t k = 0; k < 15; ++k) {
      const auto s = static_cast<int>(k) / 5, t = static_cast<int>(k) % 5;
      rest.values[k] = t == 0 || rng_() % 2 == 0 ? 1 : 0;
      joined.values[k] = t < valid && t <= s + valid - 3 && rest.values[k] == 1 ? 1 : 0;
    }
    const std::vector<double> split = of("is_causal = 1", valid, rest);
    EXPECT_TRUE(AreNear(split, of("is_causal = 0", 5, joined))) << valid;
    // Without one of the parts, or with the order counted from the first key.
    EXPECT_FALSE(AreNear(split, of("is_causal = 0", valid, all))) << valid;
    Numbers from_first = rest;
    for (size_t k = 0; k < 15; ++k) {
      if (static_cast<int>(k) % 5 > static_cast<int>(k) / 5) from_first.values[k] = 0;
    }
    if (valid > 3) {
      EXPECT_FALSE(AreNear(split, of("is_causal = 0", 5, from_first))) << valid;
    }
  }
  EXPECT_FALSE(AreNear(of("is_causal = 1", 4, all), of("is_causal = 1", 5, all)));
}

// What is behind a mask is a scale, or the mask hides nothing, or shows what it hid.
TEST_F(Lemmas, MaskSplitNeedsTheMaskBehindTheScores) {
  SetMask({1, 3, 5}, -kInf);
  const auto behind = [&](const std::string& scores) {
    return Result(WrittenOut("w = Identity(p)", scores), inputs_);
  };
  const std::vector<double> once = Result(Operator("bool[1,1,3,5]"), inputs_);
  EXPECT_TRUE(AreNear(behind("m = Add(s, bias)\n b = Mul(m, half)"), once));
  EXPECT_FALSE(AreNear(behind("t = Mul(s, minus)\n m = Add(t, bias)\n n = Mul(m, half)\n"
                              "b = Mul(n, minus)"),
                       once));
  const std::vector<double> capped =
      Result(Operator("bool[1,1,3,5]", "scale = 1.0, softcap = 2.0"), inputs_);
  EXPECT_TRUE(AreNear(behind("t = Mul(s, half)\n h = Tanh(t)\n c = Mul(h, two)\n"
                             "b = Add(c, bias)"),
                      capped));
  EXPECT_FALSE(AreNear(behind("t = Mul(s, half)\n m = Add(t, bias)\n h = Tanh(m)\n"
                              "b = Mul(h, two)"),
                       capped));
  SetMask({1, 3, 5}, -1e4);
  EXPECT_FALSE(AreNear(behind("t = Mul(s, half)\n m = Add(t, bias)\n z = Mul(m, zero)\n"
                              "b = Add(z, t)"),
                       once));
}

// Five keys of which the last two are hidden, and three keys.
TEST_F(Lemmas, HiddenKeys) {
  const auto first = [&](const Numbers& all) {
    Numbers some{{1, 2, 3, 4}, {}};
    for (size_t k = 0; k < all.values.size(); ++k) {
      if (k / 4 % 5 < 3) some.values.push_back(all.values[k]);
    }
    return some;
  };
  Inputs three = inputs_;
  three["k"] = first(inputs_["k"]);
  three["v"] = first(inputs_["v"]);
  const std::vector<double> few = Result(
      "g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v) => (float[1,2,3,4] y) "
      "{ y = Attention<is_causal = 0>(q, k, v) }",
      three);
  SetMask({3, 3, 3}, -kInf);
  EXPECT_TRUE(AreNear(Result(Operator("bool[1,1,3,5]"), inputs_), few));
  // A key behind the last is seen.
  SetMask({3, 4, 3}, -kInf);
  EXPECT_FALSE(AreNear(Result(Operator("bool[1,1,3,5]"), inputs_), few));
  // A key of the source's is not there.
  SetMask({3, 2, 3}, -kInf);
  EXPECT_FALSE(AreNear(Result(Operator("bool[1,1,3,5]"), inputs_), few));
  // What the weight 0 is multiplied by is not finite.
  SetMask({3, 3, 3}, -kInf);
  inputs_["v"].values[4 * 4] = kInf;
  EXPECT_FALSE(AreNear(Result(Operator("bool[1,1,3,5]"), inputs_), few));
}

// Four query heads that share two heads of keys.
TEST_F(Lemmas, HeadsRegrouped) {
  inputs_["q"] = Random({1, 4, 3, 4}, rng_);
  const char* head =
      "g (float[1,4,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => "
      "(float[1,4,3,4] y) <int64[4] order = {{{}}}, int64[4] rows = {{1, 2, 6, 4}}, "
      "int64[4] heads = {{1, 4, 3, 4}}> {{ {} }}";
  const auto run = [&](const std::string& order, const std::string& nodes) {
    return Result(fmt::format(fmt::runtime(head), order, nodes), inputs_);
  };
  const std::vector<double> grouped = run("0,0,1,1", "y = Attention<is_causal = 0>(q, k, v)");
  const std::string repeated =
      "a = Gather<axis = 1>(k, order)\n b = Gather<axis = 1>(v, order)\n"
      "y = Attention<is_causal = 0>(q, a, b)";
  EXPECT_TRUE(AreNear(run("0,0,1,1", repeated), grouped));
  const std::string stacked =
      "r = Reshape(q, rows)\n z = Attention<is_causal = 0>(r, k, v)\n y = Reshape(z, heads)";
  EXPECT_TRUE(AreNear(run("0,0,1,1", stacked), grouped));
  // Heads that are dealt out in turn.
  EXPECT_FALSE(AreNear(run("0,1,0,1", repeated), grouped));
  // Rows of tokens first, and of heads within them.
  EXPECT_FALSE(AreNear(run("0,0,1,1",
                           "u = Transpose<perm = [0, 2, 1, 3]>(q)\n r = Reshape(u, rows)\n"
                           "z = Attention<is_causal = 0>(r, k, v)\n y = Reshape(z, heads)"),
                       grouped));
  EXPECT_EQ(GroupSize(4, 2), 2);
  EXPECT_EQ(GroupSize(4, 3), std::nullopt);
  EXPECT_EQ(GroupSize(4, 0), std::nullopt);
}

TEST_F(Lemmas, RotationFused) {
  Inputs in = {{"x", Random({1, 2, 3, 4}, rng_)},
               {"c", Random({1, 3, 2}, rng_)},
               {"s", Random({1, 3, 2}, rng_)}};
  const auto run = [&](const std::string& nodes) {
    return Result(
        "g (float[1,2,3,4] x, float[1,3,2] c, float[1,3,2] s) => (float[1,2,3,4] y) "
        "<int64[1] one = {1}> {\n" +
            nodes + "}",
        in);
  };
  const auto sums = [](const std::string& cosines, const std::string& sines) {
    return fmt::format(
        "c2 = Concat<axis = 2>({})\n s2 = Concat<axis = 2>({})\n"
        "cc = Unsqueeze(c2, one)\n ss = Unsqueeze(s2, one)\n"
        "a, b = Split<axis = 3, num_outputs = 2>(x)\n m = Neg(b)\n"
        "t = Concat<axis = 3>(m, a)\n u = Mul(x, cc)\n w = Mul(t, ss)\n"
        "y = Add(u, w)\n",
        cosines, sines);
  };
  const std::vector<double> fused = run("y = RotaryEmbedding(x, c, s)\n");
  EXPECT_TRUE(AreNear(fused, run(sums("c, c", "s, s"))));
  // The source's tables do not repeat themselves.
  EXPECT_FALSE(AreNear(fused, run(sums("c, s", "s, s"))));
  EXPECT_FALSE(AreNear(fused, run(sums("c, c", "s, c"))));
  // Pairs are neighbours.
  EXPECT_FALSE(
      AreNear(run("y = RotaryEmbedding<interleaved = 1>(x, c, s)\n"), run(sums("c, c", "s, s"))));
  // A part of the head is rotated.
  in["c"].dims = in["s"].dims = {1, 3, 1};
  in["c"].values.resize(3);
  in["s"].values.resize(3);
  const auto part = Result(
      "g (float[1,2,3,4] x, float[1,3,1] c, float[1,3,1] s) => (float[1,2,3,4] y) "
      "{ y = RotaryEmbedding<rotary_embedding_dim = 2>(x, c, s) }",
      in);
  EXPECT_FLOAT_EQ(static_cast<float>(part.at(3)), static_cast<float>(in["x"].values[3]));
}

// The largest of lengths is at least each of them; a mean, a minimum, or the first one is not.
TEST_F(Lemmas, Quotient) {
  const auto graph = [](const std::string& nodes, const std::string& type = "float") {
    return fmt::format(
        "g ({0}[2,3] x, {0}[2,1] d) => (float[?,?] y) {{ one = Constant<value = float {{1}}>()\n"
        "two = Constant<value = float {{2}}>()\n {1} }}",
        type, nodes);
  };
  Inputs inputs;
  inputs["x"] = {{2, 3}, {1, -2, 3, 0.5, -0.25, 7}};
  inputs["d"] = {{2, 1}, {3, -0.7}};
  const std::vector<double> quotient = Result(graph("y = Div(x, d)"), inputs);
  EXPECT_TRUE(AreNear(Result(graph("r = Reciprocal(d) y = Mul(x, r)"), inputs), quotient));
  EXPECT_TRUE(AreNear(Result(graph("r = Div(one, d) y = Mul(r, x)"), inputs), quotient));
  // Another number than 1 is divided.
  EXPECT_FALSE(AreNear(Result(graph("r = Div(two, d) y = Mul(x, r)"), inputs), quotient));
  // The other operand is inverted.
  EXPECT_FALSE(AreNear(Result(graph("r = Reciprocal(x) y = Mul(r, d)"), inputs), quotient));
  // In integers.
  inputs["x"].values = {7, -2, 9, 5, -6, 8};
  inputs["d"].values = {3, 2};
  const auto integer = [&](const std::string& nodes) {
    return Result(graph("whole = Constant<value = int64 {1}>()\n" + nodes, "int64"), inputs);
  };
  EXPECT_FALSE(AreNear(integer("r = Div(whole, d) z = Mul(x, r) y = Cast<to = 1>(z)"),
                       integer("z = Div(x, d) y = Cast<to = 1>(z)")));
  // 1 / d leaves the range of the type, and x / d does not.
  inputs["x"].values = {1e-40, 2e-40, 3e-40, 1e-40, 2e-40, 3e-40};
  inputs["d"].values = {1e-40, 2e-40};
  EXPECT_FALSE(AreNear(Result(graph("r = Reciprocal(d) y = Mul(x, r)"), inputs),
                       Result(graph("y = Div(x, d)"), inputs)));
}

TEST_F(Lemmas, LongestSequence) {
  const Inputs in = {{"n", Numbers{{3}, {2, 7, 4}}}};
  const auto reduced = [&](const std::string& op) {
    return Result(fmt::format("g (int64[3] n) => (int64[1] y) {{ y = {}(n) }}", op), in).at(0);
  };
  for (const double own : in.at("n").values) EXPECT_GE(reduced("ReduceMax"), own);
  EXPECT_LT(reduced("ReduceMin"), 7);
  EXPECT_LT(reduced("ReduceMean"), 7);
  // Over another axis than that of the sequences it is none of the others' lengths.
  const Inputs two = {{"n", Numbers{{3, 1}, {2, 7, 4}}}};
  const std::vector<double> each = Result(
      "g (int64[3,1] n) => (int64[3] y) <int64[1] last = {1}> "
      "{ y = ReduceMax<keepdims = 0>(n, last) }",
      two);
  EXPECT_LT(each.at(0), 7);
}

TEST_F(Lemmas, LongerTable) {
  const auto lookup = [&](int rows, const std::string& index) {
    Inputs in = {{"i", Numbers{{2}, {}}}, {"t", Numbers{{rows}, {}}}};
    in["i"].values = index == "front" ? std::vector<double>{0, 2} : std::vector<double>{0, -1};
    for (int k = 0; k < rows; ++k) in["t"].values.push_back(10.0 * k);
    return Result(
        fmt::format("g (float[{}] t, int64[2] i) => (float[2] y) {{ y = Gather(t, i) }}", rows), in,
        true);
  };
  EXPECT_EQ(lookup(3, "front"), lookup(5, "front"));
  EXPECT_NE(lookup(3, "end"), lookup(5, "end"));
  // A shorter table lacks the row.
  EXPECT_NE(lookup(2, "front"), lookup(3, "front"));
}

}  // namespace
}  // namespace kvlift
