// LIBS: exec onnxio
// Several writes into one cache: in place where every reader of what lies between goes first.
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(kFloat, std::move(shape), values);
}

std::vector<float> Values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

// past and present: [1, 4, 2]; x and y: [1, 1, 2], written at i and then at j.
struct Model {
  std::string outputs, nodes;
};

const Model kPlain = {"", R"(
    first = TensorScatter<axis = 1>(past, x, i)
    present = TensorScatter<axis = 1>(first, y, j)
)"};

std::shared_ptr<const Program> Compile(const Model& model, AliasMode mode = AliasMode::kAuto) {
  const std::string graph = fmt::format(
      "<ir_version: 10, opset_import: [\"\": 24]>"
      "g (float[1,4,2] past, float[1,1,2] x, float[1,1,2] y, int64[1] i, int64[1] j)"
      " => (float[1,4,2] present{})"
      "<int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] rows = {{1}}, int64[2] flat = "
      "{{-1,2}},"
      " int64[3] back = {{1,4,2}}> {{ {} }}",
      model.outputs, model.nodes);
  const auto proto = ParseModelText(graph);
  EXPECT_TRUE(proto.ok()) << proto.status();
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*proto));
  EXPECT_TRUE(built.ok()) << built.status();
  CompileOptions options;
  options.caches = {{"past", "present"}};
  options.alias = mode;
  auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), options);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

class ChainedWrites : public ::testing::Test {
 protected:
  // The cache, and the outputs by name, after a step that begins with 1 to 8 in the cache.
  std::vector<float> Cache(const std::shared_ptr<const Program>& program, int64_t i, int64_t j) {
    Session session(program);
    EXPECT_TRUE(session.SetCache("past", Floats({1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})).ok());
    const std::byte* before = session.Cache("past")->data();
    fetches_.clear();
    status_ = session.Step({{"x", Floats({1, 1, 2}, {-1, -2})},
                            {"y", Floats({1, 1, 2}, {-3, -4})},
                            {"i", Tensor::From<int64_t>(onnx::TensorProto::INT64, {1}, {i})},
                            {"j", Tensor::From<int64_t>(onnx::TensorProto::INT64, {1}, {j})}},
                           &fetches_);
    stayed_ = session.Cache("past")->data() == before;
    return Values(*session.Cache("past"));
  }

  std::vector<float> Output(const std::string& name) { return Values(fetches_[name]); }

  Fetches fetches_;
  absl::Status status_;
  bool stayed_ = false;
};

TEST_F(ChainedWrites, ShareOneBuffer) {
  const auto program = Compile(kPlain, AliasMode::kRequired);
  EXPECT_TRUE(program->aliasing()[0].aliased);
  EXPECT_THAT(Cache(program, 2, 0), ElementsAre(-3, -4, 3, 4, -1, -2, 7, 8));
  EXPECT_TRUE(stayed_);
  EXPECT_THAT(Cache(program, 1, 1), ElementsAre(1, 2, -3, -4, 5, 6, 7, 8));
}

TEST_F(ChainedWrites, ViewsBetweenThemAreSeenThrough) {
  const auto program = Compile({"", R"(
    first = TensorScatter<axis = 1>(past, x, i)
    wide = Reshape(first, flat)
    narrow = Reshape(wide, back)
    written = TensorScatter<axis = 1>(narrow, y, j)
    present = Identity(written)
)"},
                               AliasMode::kRequired);
  EXPECT_THAT(Cache(program, 2, 0), ElementsAre(-3, -4, 3, 4, -1, -2, 7, 8));
  EXPECT_TRUE(stayed_);
}

TEST_F(ChainedWrites, WhoReadsWhatLiesBetweenGoesBeforeTheSecond) {
  for (const char* reader :
       {"z = Neg(first)\n", "part = Slice(first, zero, two, rows)\nz = Neg(part)\n",
        "wide = Reshape(first, flat)\npart = Slice(wide, zero, two, zero)\n"
        "z = Neg(part)\n"}) {
    const Model model = {", float[a,b,c] z", kPlain.nodes + reader};
    const Model flat = {", float[a,b] z", kPlain.nodes + reader};
    const bool is_flat = std::string(reader).find("wide") != std::string::npos;
    const auto program = Compile(is_flat ? flat : model);
    EXPECT_EQ(program->aliasing()[0].reason, "safe") << reader;
    EXPECT_THAT(Cache(program, 1, 0), ElementsAre(-3, -4, -1, -2, 5, 6, 7, 8));
    EXPECT_TRUE(stayed_);
    const auto z = Output("z");
    ASSERT_GE(z.size(), 4u);
    EXPECT_THAT(std::vector<float>(z.begin(), z.begin() + 4), ElementsAre(-1, -2, 1, 2)) << reader;
  }
}

TEST_F(ChainedWrites, AReaderOfBothForbidsIt) {
  const auto program = Compile({", float[1,2,2] z", kPlain.nodes + R"(
    part = Slice(first, zero, two, rows)
    last = Slice(present, zero, two, rows)
    z = Sub(part, last)
)"});
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("reads first after the write"));
  EXPECT_THAT(Cache(program, 1, 0), ElementsAre(-3, -4, -1, -2, 5, 6, 7, 8));
  EXPECT_THAT(Output("z"), ElementsAre(4, 6, 0, 0));
}

TEST_F(ChainedWrites, AnOutputBetweenThemForbidsIt) {
  const auto program = Compile({", float[1,4,2] first", kPlain.nodes});
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(Cache(program, 1, 0), ElementsAre(-3, -4, -1, -2, 5, 6, 7, 8));
  EXPECT_THAT(Output("first"), ElementsAre(1, 2, -1, -2, 5, 6, 7, 8));
}

TEST_F(ChainedWrites, WhatTheSecondWritesMayComeFromTheFirst) {
  const auto program = Compile({"", R"(
    first = TensorScatter<axis = 1>(past, x, i)
    part = Slice(first, zero, rows, rows)
    row = Neg(part)
    present = TensorScatter<axis = 1>(first, row, j)
)"},
                               AliasMode::kRequired);
  EXPECT_THAT(Cache(program, 0, 0), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(Cache(program, 0, 3), ElementsAre(-1, -2, 3, 4, 5, 6, 1, 2));
}

TEST_F(ChainedWrites, RowsOfTheBufferItselfMayNotBeWritten) {
  const auto program = Compile({"", R"(
    first = TensorScatter<axis = 1>(past, x, i)
    part = Slice(first, zero, rows, rows)
    present = TensorScatter<axis = 1>(first, part, j)
)"});
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(Cache(program, 0, 3), ElementsAre(-1, -2, 3, 4, 5, 6, -1, -2));
}

TEST_F(ChainedWrites, AFailureOfTheSecondUndoesTheFirst) {
  const auto program = Compile(kPlain, AliasMode::kRequired);
  EXPECT_THAT(Cache(program, 1, 4), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_FALSE(status_.ok());
}

TEST_F(ChainedWrites, EveryModeGivesTheSame) {
  const Model model = {", float[1,2,2] z",
                       kPlain.nodes + "part = Slice(first, zero, two, rows)\nz = Neg(part)\n"};
  for (const AliasMode mode :
       {AliasMode::kOff, AliasMode::kAuto, AliasMode::kGuard, AliasMode::kPoison}) {
    const auto program = Compile(model, mode);
    EXPECT_THAT(Cache(program, 1, 0), ElementsAre(-3, -4, -1, -2, 5, 6, 7, 8));
    EXPECT_TRUE(status_.ok()) << status_;
    EXPECT_THAT(Output("z"), ElementsAre(-1, -2, 1, 2));
  }
}

}  // namespace
}  // namespace kvlift::exec
