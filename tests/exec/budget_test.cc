// LIBS: exec onnxio
// What a running model may take: elements of a value, memory of all, time of a step.
#include "exec/memory/budget.h"

#include <string>

#include "base/coded.h"
#include "exec/memory/memory.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {
namespace {

class Budget : public ::testing::Test {
 protected:
  ~Budget() override { SetRunLimits(Limits()); }

  static absl::Status Run(const std::string& graph, const Feeds& feeds, const Limits& limits) {
    const auto model =
        ParseModelText(fmt::format("<ir_version: 10, opset_import: [\"\": 21]>\n{}", graph));
    if (!model.ok()) return model.status();
    auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
    if (!built.ok()) return built.status();
    SetRunLimits(limits);
    const auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), {});
    if (!program.ok()) return program.status();
    Session session(*program);
    Fetches fetches;
    return session.Step(feeds, &fetches);
  }

  static Tensor Int64s(Shape shape, const std::vector<int64_t>& values) {
    return Tensor::From<int64_t>(onnx::TensorProto::INT64, std::move(shape), values);
  }

  // The code of the error, or "" where it runs.
  static std::string Code(const std::string& graph, const Feeds& feeds, const Limits& limits) {
    const absl::Status status = Run(graph, feeds, limits);
    EXPECT_TRUE(status.ok() || IsOverBudget(status)) << status;
    return CodeOf(status);
  }
};

constexpr char kFill[] = "g (int64[N] s) => (float y) { y = ConstantOfShape (s) }";

TEST_F(Budget, ElementsOfAValue) {
  Limits limits;
  limits.elements = 12;
  EXPECT_EQ(Code(kFill, {{"s", Int64s({2}, {3, 4})}}, limits), "");
  EXPECT_EQ(Code(kFill, {{"s", Int64s({2}, {13, 1})}}, limits), "KV020");
  // Without elements, but as long.
  EXPECT_EQ(Code(kFill, {{"s", Int64s({2}, {12, 0})}}, limits), "");
  EXPECT_EQ(Code(kFill, {{"s", Int64s({2}, {13, 0})}}, limits), "KV020");
}

TEST_F(Budget, MoreElementsThanCanBeCounted) {
  const int64_t most = Limits().elements;
  EXPECT_FALSE(CheckElements({most, most, most}).ok());
  EXPECT_FALSE(CheckElements({INT64_MAX, 2}).ok());
  EXPECT_TRUE(CheckElements({most, most, most, 0}).ok());
  const auto status = WithinMemory([&] {
    return Tensor(onnx::TensorProto::FLOAT, {most, most, most}).data() == nullptr
               ? absl::InternalError("a tensor without memory")
               : absl::OkStatus();
  });
  EXPECT_TRUE(IsOverBudget(status)) << status;
}

TEST_F(Budget, ElementsByDefault) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{int64_t{1} << 16, int64_t{1} << 16}, {int64_t{1} << 40, 0}}) {
    EXPECT_EQ(Code(kFill, {{"s", Int64s({2}, shape)}}, Limits()), "KV020");
  }
  // 2^31 - 1 numbers are within, and 8 GiB for their copies are not.
  constexpr char kGrid[] =
      "g (int64[N] s) => (float y) {"
      "  a = ConstantOfShape (s) b = Tanh (a) c = Add (a, b) d = Tanh (c) y = Add (d, a) }";
  EXPECT_EQ(Code(kGrid, {{"s", Int64s({1}, {INT32_MAX})}}, Limits()), "KV021");
}

TEST_F(Budget, MemoryOfAllValues) {
  constexpr char kTwo[] = "g (int64[N] s) => (float y) { a = ConstantOfShape (s) y = Tanh (a) }";
  const Feeds feeds = {{"s", Int64s({1}, {10000})}};
  int64_t fails = 0, runs = 1'000'000;
  while (runs - fails > 1) {
    Limits limits;
    limits.run_bytes = (fails + runs) / 2;
    const std::string code = Code(kTwo, feeds, limits);
    ASSERT_THAT(code, ::testing::AnyOf("", "KV021"));
    (code.empty() ? runs : fails) = limits.run_bytes;
  }
  // Between one value and three.
  EXPECT_GE(runs, 40'000);
  EXPECT_LE(runs, 130'000);
}

TEST_F(Budget, WhatALoopGathers) {
  Limits limits;
  limits.run_bytes = 1'000'000;
  constexpr char kEndless[] =
      "g (bool c, float[0] x) => (float y) {"
      "  y = Loop (, c) <body = b (int64 i, bool p) => (bool q, float[0] r) {"
      "    q = Identity (p) r = Identity (x) }> }";
  const Feeds feeds = {{"c", Tensor::From<uint8_t>(onnx::TensorProto::BOOL, {}, {1})},
                       {"x", Tensor(onnx::TensorProto::FLOAT, {0})}};
  const int64_t before = AllocatedBytes();
  EXPECT_EQ(Code(kEndless, feeds, limits), "KV021");
  EXPECT_EQ(AllocatedBytes(), before);
}

TEST_F(Budget, WhatDoubles) {
  constexpr char kDoubling[] =
      "g (bool c, float[N] x) => (float y) {"
      "  y = Loop (, c, x) <body = b (int64 i, bool p, float[M] v) => (bool q, float[L] w) {"
      "    q = Identity (p) w = Concat <axis = 0> (v, v) }> }";
  Limits limits;
  limits.run_bytes = 10'000'000;
  const Feeds feeds = {{"c", Tensor::From<uint8_t>(onnx::TensorProto::BOOL, {}, {1})},
                       {"x", Tensor::Zeros(onnx::TensorProto::FLOAT, {1})}};
  EXPECT_EQ(Code(kDoubling, feeds, limits), "KV021");
  limits.elements = 1000;
  EXPECT_EQ(Code(kDoubling, feeds, limits), "KV020");
}

TEST_F(Budget, PartsOfASequence) {
  constexpr char kParts[] =
      "g (int64[2] s, int64 i) => (float y) {"
      "  a = ConstantOfShape (s) b = SplitToSequence (a) c = SequenceInsert (b, a)"
      "  y = SequenceAt (c, i) }";
  Limits limits;
  const auto feeds = [](int64_t n) {
    return Feeds{{"s", Int64s({2}, {n, 0})}, {"i", Int64s({}, {0})}};
  };
  EXPECT_EQ(Code(kParts, feeds(1000), limits), "");
  EXPECT_EQ(Code(kParts, feeds(INT32_MAX), limits), "KV021");
}

TEST_F(Budget, TimeOfAStep) {
  constexpr char kIdle[] =
      "g (int64 n, bool c) => (bool y) {"
      "  y = Loop (n, c, c) <body = b (int64 i, bool p, bool v) => (bool q, bool w) {"
      "    q = Identity (p) w = Not (v) }> }";
  Limits limits;
  limits.step_seconds = 1;
  const auto feeds = [](int64_t n) {
    return Feeds{{"n", Int64s({}, {n})},
                 {"c", Tensor::From<uint8_t>(onnx::TensorProto::BOOL, {}, {1})}};
  };
  EXPECT_EQ(Code(kIdle, feeds(10), limits), "");
  EXPECT_EQ(Code(kIdle, feeds(INT64_MAX), limits), "KV022");
}

TEST_F(Budget, ASessionGoesOnAfterwards) {
  const auto model =
      ParseModelText(std::string("<ir_version: 10, opset_import: [\"\": 21]>\n") + kFill);
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), {});
  ASSERT_TRUE(program.ok());
  Session session(*program);
  Fetches fetches;
  EXPECT_EQ(CodeOf(session.Step({{"s", Int64s({1}, {int64_t{1} << 33})}}, &fetches)), "KV020");
  ASSERT_TRUE(session.Step({{"s", Int64s({1}, {7})}}, &fetches).ok());
  EXPECT_EQ(fetches.at("y").size(), 7);
}

}  // namespace
}  // namespace kvlift::exec
