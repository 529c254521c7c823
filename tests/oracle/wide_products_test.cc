// LIBS: oracle
// Products that are too much for the oracle: some columns of one that only the host reads, and no
// work for nothing.
#include <cmath>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

namespace kvlift::oracle {
namespace {

constexpr int64_t kDepth = 8, kWidth = 6000, kRows = 3;

// An initializer [8, columns].
void Add(const std::string& name, int64_t columns, onnx::ModelProto* model) {
  onnx::TensorProto& weights = *model->mutable_graph()->add_initializer();
  weights.set_name(name);
  weights.set_data_type(onnx::TensorProto::FLOAT);
  weights.add_dims(kDepth);
  weights.add_dims(columns);
  std::string bytes;
  for (int64_t i = 0; i < kDepth * columns; ++i) {
    const float number = static_cast<float>(i % 997) / 500 - 1;
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  weights.set_raw_data(bytes);
}

// A graph of these nodes, with x [3, 8], w [8, 6000] and square [8, 8].
Interpreter Make(const std::string& rest) {
  auto model = ParseModelText(fmt::format(
      R"(<ir_version: 10, opset_import: ["" : 24]>
      g (float[{0},{1}] x) => (float[a,b] y) {{ {2} }})",
      kRows, kDepth, rest));
  EXPECT_TRUE(model.ok()) << model.status();
  Add("w", kWidth, &*model);
  Add("square", kDepth, &*model);
  auto made = Interpreter::Create(std::make_shared<const onnx::ModelProto>(*std::move(model)), "");
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

Values Inputs() {
  Reals x(kRows * kDepth);
  for (size_t i = 0; i < x.value.size(); ++i) x.value[i] = std::sin(static_cast<double>(i));
  return {{"x", Value::FromReals(onnx::TensorProto::FLOAT, {kRows, kDepth}, std::move(x))}};
}

TEST(WideProducts, SomeColumnsAreComputedWhereAllAreTooMany) {
  const Interpreter oracle = Make("y = MatMul (x, w)");
  int64_t all_work = 0, work = 0;
  const auto all = oracle.Run(Inputs(), 1'000'000'000, &all_work);
  const auto some = oracle.Run(Inputs(), all_work / 2, &work);
  ASSERT_TRUE(all.ok() && some.ok()) << some.status();
  EXPECT_LE(work, all_work / 2);
  const Value &whole = all->at("y"), &part = some->at("y");
  EXPECT_FALSE(whole.columns.has_value());
  ASSERT_EQ(part.dims(), whole.dims());
  int64_t known = 0;
  for (int64_t i = 0; i < part.size(); ++i) {
    const Number a = part.reals().At(i), b = whole.reals().At(i);
    if (std::isinf(BoundOf(a.worst, a.spread))) continue;
    ++known;
    EXPECT_EQ(a.value, b.value) << i;
    EXPECT_EQ(a.worst, b.worst) << i;
  }
  ASSERT_TRUE(part.columns.has_value());
  EXPECT_EQ(known, *part.columns * kRows);
}

TEST(WideProducts, WhatOtherNodesReadIsComputedWhole) {
  const Interpreter oracle = Make("p = MatMul (x, w)\ny = Softmax (p)");
  int64_t work = 0;
  EXPECT_TRUE(absl::IsResourceExhausted(oracle.Run(Inputs(), 200'000, &work).status()));
  EXPECT_TRUE(oracle.Run(Inputs(), 1'000'000'000, &work).ok());
}

TEST(WideProducts, TooMuchIsSeenBeforeTheFirst) {
  const Interpreter oracle = Make("h = MatMul (x, square)\np = MatMul (h, w)\ny = Softmax (p)");
  EXPECT_EQ(oracle.work_per_row(), 4 * kDepth * (kDepth + kWidth));
  int64_t work = 0, first = 0;
  EXPECT_TRUE(Make("y = Identity (x)").Run(Inputs(), 1'000'000, &first).ok());
  const int64_t budget = oracle.work_per_row() * kRows - 1;
  EXPECT_TRUE(absl::IsResourceExhausted(oracle.Run(Inputs(), budget, &work).status()));
  EXPECT_LE(work, first);
}

}  // namespace
}  // namespace kvlift::oracle
