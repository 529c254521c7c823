// LIBS: exec onnxio
// Sequences, optional values and strings, where they are not lowered to plain tensors; Scan-8.
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

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(onnx::TensorProto::FLOAT, std::move(shape), values);
}
Tensor Int64s(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64, std::move(shape), values);
}
std::vector<float> Values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

absl::StatusOr<Fetches> Execute(const std::string& graph, const Feeds& feeds, int opset = 21) {
  const auto model =
      ParseModelText(fmt::format("<ir_version: 10, opset_import: [\"\": {}]>\n{}", opset, graph));
  if (!model.ok()) return model.status();
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  if (!built.ok()) return built.status();
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), {});
  if (!program.ok()) return program.status();
  Session session(*program);
  Fetches fetches;
  const absl::Status status = session.Step(feeds, &fetches);
  if (!status.ok()) return status;
  return fetches;
}

// Runs twice, so that what the first step left is used again.
Tensor Y(const std::string& graph, const Feeds& feeds, int opset = 21) {
  const auto fetches = Execute(graph, feeds, opset);
  if (!fetches.ok()) {
    ADD_FAILURE() << fetches.status();
    return Tensor();
  }
  return fetches->at("y");
}

const char kEdit[] =
    "g (float[2] a, float[2] b, int64 i) => (float[N] y) {"
    "  s = SequenceConstruct (a, a) t = SequenceInsert (s, b, i)"
    "  y = ConcatFromSequence <axis = 0> (t) }";

TEST(ObjectsTest, InsertsAtAPosition) {
  const Tensor a = Floats({2}, {1, 2}), b = Floats({2}, {3, 4});
  const auto at = [&](int64_t i) {
    return Values(Y(kEdit, {{"a", a}, {"b", b}, {"i", Int64s({}, {i})}}));
  };
  EXPECT_THAT(at(0), ElementsAre(3, 4, 1, 2, 1, 2));
  EXPECT_THAT(at(-1), ElementsAre(1, 2, 3, 4, 1, 2));
  EXPECT_THAT(at(2), ElementsAre(1, 2, 1, 2, 3, 4));
  for (const int64_t i : {3, -3}) {
    const auto run = Execute(kEdit, {{"a", a}, {"b", b}, {"i", Int64s({}, {i})}});
    EXPECT_THAT(run.status().ToString(), HasSubstr("out of range"));
  }
}

// Found by fuzzing, in an opset that has no such operator: nothing may be looked up of a value that
// has no name.
// An operator that came with a later version than the imported one is no exception.
TEST(ObjectsTest, SequencesWithoutANameAreRefused) {
  auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\": 10]> "
      "g (float[2] a) => (float[2] y) { s = SequenceConstruct (a) y = Identity (a) }");
  ASSERT_TRUE(model.ok()) << model.status();
  model->mutable_graph()->mutable_node(0)->set_output(0, "");
  const auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*std::move(model)));
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.status().message(), ::testing::HasSubstr("SequenceConstruct omits output 0"));
}

TEST(ObjectsTest, ErasesAndPicksAndCounts) {
  const std::string graph =
      "g (float[1] a, float[1] b, int64 i) => (float[N] y, int64 n) {"
      "  s = SequenceEmpty () t = SequenceInsert (s, a) u = SequenceInsert (t, b)"
      "  v = SequenceErase (u, i) n = SequenceLength (v) zero = Constant <value_int = 0> ()"
      "  y = SequenceAt (v, zero) }";
  Feeds feeds = {{"a", Floats({1}, {1})}, {"b", Floats({1}, {2})}, {"i", Int64s({}, {0})}};
  const auto run = Execute(graph, feeds);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(Values(run->at("y")), ElementsAre(2));
  EXPECT_EQ(run->at("n").span<int64_t>()[0], 1);
  feeds["i"] = Int64s({}, {-1});
  EXPECT_THAT(Values(Y(graph, feeds)), ElementsAre(1));
}

TEST(ObjectsTest, SplitsAtLengthsKnownAtRunTime) {
  const std::string graph =
      "g (float[R,C] x, int64 i, int64[P] parts) => (float[R,W] y) {"
      "  s = SplitToSequence <axis = -1> (x, parts) y = SequenceAt (s, i) }";
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto part = [&](int64_t i, const std::vector<int64_t>& parts) {
    const Shape shape = {static_cast<int64_t>(parts.size())};
    return Execute(graph, {{"x", x}, {"i", Int64s({}, {i})}, {"parts", Int64s(shape, parts)}});
  };
  EXPECT_THAT(Values(part(0, {2, 1})->at("y")), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Values(part(-1, {2, 1})->at("y")), ElementsAre(3, 6));
  EXPECT_THAT(part(0, {2, 2}).status().ToString(), HasSubstr("longer than the axis"));
  EXPECT_THAT(part(0, {1, 1}).status().ToString(), HasSubstr("shorter than the axis"));
  EXPECT_THAT(part(0, {-1, 4}).status().ToString(), HasSubstr("a part of -1"));
}

TEST(ObjectsTest, EqualPartsTheLastOneShorter) {
  const std::string graph =
      "g (float[N] x, int64 i, int64 length) => (float[W] y) {"
      "  s = SplitToSequence (x, length) y = SequenceAt (s, i) }";
  const auto part = [&](int64_t i, int64_t length) {
    return Execute(graph, {{"x", Floats({5}, {1, 2, 3, 4, 5})},
                           {"i", Int64s({}, {i})},
                           {"length", Int64s({}, {length})}});
  };
  EXPECT_THAT(Values(part(-1, 2)->at("y")), ElementsAre(5));
  EXPECT_THAT(Values(part(1, 2)->at("y")), ElementsAre(3, 4));
  EXPECT_FALSE(part(0, 0).ok());
}

TEST(ObjectsTest, JoinsOnANewAxis) {
  const std::string graph =
      "g (float[2] a, float[2] b, bool c) => (float[R,C] y) {"
      "  s = If (c) <then_branch = t () => (seq(float) p) { p = SequenceConstruct (a, b) },"
      "              else_branch = e () => (seq(float) q) { q = SequenceConstruct (b, a, a) }>"
      "  y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }";
  Tensor c = Tensor::Zeros(onnx::TensorProto::BOOL, {});
  Feeds feeds = {{"a", Floats({2}, {1, 2})}, {"b", Floats({2}, {3, 4})}, {"c", c}};
  const Tensor y = Y(graph, feeds);
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_THAT(Values(y), ElementsAre(3, 1, 1, 4, 2, 2));
}

TEST(ObjectsTest, JoinsOfShapesThatDoNotFitAreErrors) {
  const std::string graph =
      "g (float[A,B] a, float[C,D] b, int64 i) => (float[M,N] y) {"
      "  s = SequenceConstruct (a, a) t = SequenceInsert (s, b, i)"
      "  y = ConcatFromSequence <axis = 0> (t) }";
  Feeds feeds = {{"a", Floats({1, 2}, {1, 2})}, {"b", Floats({1, 1}, {3})}, {"i", Int64s({}, {0})}};
  EXPECT_THAT(Execute(graph, feeds).status().ToString(), HasSubstr("do not fit"));
  // A plain tensor where a sequence is needed.
  const auto run = Execute("g (seq(float) s) => (int64 y) { y = SequenceLength (s) }",
                           {{"s", Floats({1}, {1})}});
  EXPECT_THAT(run.status().ToString(), HasSubstr("no sequence"));
}

TEST(ObjectsTest, OptionalValues) {
  const auto run = Execute(
      "g (float[1] a) => (bool z, float[N] w) { o = Optional (a)"
      " z = OptionalHasElement (o) w = OptionalGetElement (o) }",
      {{"a", Floats({1}, {7})}});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->at("z").span<uint8_t>()[0], 1);
  EXPECT_THAT(Values(run->at("w")), ElementsAre(7));
  const auto empty =
      Execute("g (optional(float[1]) a) => (float[N] y) { y = OptionalGetElement (a) }",
              {{"a", Tensor::Nothing()}});
  EXPECT_THAT(empty.status().ToString(), HasSubstr("is empty"));
}

TEST(ObjectsTest, StringsCompareAndPassThrough) {
  const auto strings = [](Shape shape, const std::vector<std::string>& values) {
    return Tensor::From<std::string>(onnx::TensorProto::STRING, std::move(shape), values);
  };
  const auto run = Execute(
      "g (string[2,1] a, string[2] b) => (bool[R,C] y, string[N] z) {"
      "  y = Equal (a, b) shape = Constant <value_ints = [-1]> ()"
      "  z = Reshape (a, shape) }",
      {{"a", strings({2, 1}, {"p", "a longer string than fits"})},
       {"b", strings({2}, {"p", "q"})}});
  ASSERT_TRUE(run.ok()) << run.status();
  const auto y = run->at("y").span<uint8_t>();
  EXPECT_THAT(std::vector<int>(y.begin(), y.end()), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(run->at("z").span<std::string>(), ElementsAre("p", "a longer string than fits"));
}

TEST(ObjectsTest, OperatorsWithoutStringsRefuseThem) {
  const Tensor a = Tensor::From<std::string>(onnx::TensorProto::STRING, {1}, {{"p"}});
  for (const char* node : {"y = Cast <to = 1> (a)", "y = Concat <axis = 0> (a, a)",
                           "y = Gather (a, i)", "y = Where (c, a, a)", "y = Add (a, a)",
                           "y = IsNaN (a)", "y = NonZero (a)", "y = Transpose (a)"}) {
    const auto run =
        Execute(fmt::format("g (string[N] a) => (y) {{ i = Constant <value_ints = [0]> ()"
                            " c = Constant <value = bool[1] {{1}}> () {} }}",
                            node),
                {{"a", a}});
    EXPECT_FALSE(run.ok()) << node;
  }
}

TEST(ObjectsTest, Scan8RunsEachSequenceToItsLength) {
  const std::string graph =
      "g (int64[B] lengths, float[B] start, float[B,T] x) => (float[B] last, float[B,T] y) {"
      "  last, y = Scan <num_scan_inputs = 1, directions = [1], body = step (float s, float v) =>"
      "    (float t, float o) { t = Add (s, v) o = Identity (t) }> (lengths, start, x) }";
  Feeds feeds = {{"lengths", Int64s({2}, {2, 3})},
                 {"start", Floats({2}, {100, 200})},
                 {"x", Floats({2, 3}, {1, 2, 3, 4, 5, 6})}};
  const auto run = Execute(graph, feeds, 8);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(Values(run->at("last")), ElementsAre(103, 215));
  EXPECT_THAT(Values(run->at("y")), ElementsAre(102, 103, 0, 206, 211, 215));
  feeds["lengths"] = Int64s({2}, {2, 4});
  EXPECT_THAT(Execute(graph, feeds, 8).status().ToString(), HasSubstr("has length 4"));
}

}  // namespace
}  // namespace kvlift::exec
