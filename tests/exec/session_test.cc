// LIBS: exec onnxio
// SRCS: support/count_news.cc
// Compile and Step: values, caches, aliasing, undo, errors, memory after warm-up.
#include "exec/session/session.h"

#include <random>
#include <string>
#include <vector>

#include "exec/memory/memory.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "support/count_news.h"

namespace kvlift::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt64 = onnx::TensorProto::INT64;
constexpr int32_t kBool = onnx::TensorProto::BOOL;

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(kFloat, std::move(shape), values);
}
Tensor Int64s(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(kInt64, std::move(shape), values);
}
Tensor Bool(bool value) {
  const Shape scalar;
  Tensor t = Tensor::Zeros(kBool, scalar);
  *t.view().as<uint8_t>() = value ? 1 : 0;
  return t;
}
std::vector<float> Values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

std::shared_ptr<const Graph> Parse(const std::string& graph, const std::string& functions = "",
                                   const std::string& imports = "\"\": 24") {
  const auto model = ParseModelText(
      fmt::format("<ir_version: 10, opset_import: [{}]>\n{}\n{}", imports, graph, functions));
  if (!model.ok()) {
    ADD_FAILURE() << model.status();
    return nullptr;
  }
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  if (!built.ok()) {
    ADD_FAILURE() << built.status();
    return nullptr;
  }
  return std::make_shared<Graph>(*std::move(built));
}

std::shared_ptr<const Program> Compile(const std::string& graph, CompileOptions options = {}) {
  auto program = Program::Compile(Parse(graph), options);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

CompileOptions OneCache(AliasMode mode = AliasMode::kAuto) {
  CompileOptions options;
  options.caches = {{"past", "present"}};
  options.alias = mode;
  return options;
}

// past and present: [1, 4, 2]; update: [1, 1, 2].
std::string ScatterModel(const std::string& extra_outputs, const std::string& nodes,
                         const std::string& extra_inputs = "") {
  return fmt::format(
      "g (float[1,4,2] past, float[1,1,2] update, int64[1] at{}) => (float[1,4,2] present{}) "
      "{{ {} }}",
      extra_inputs, extra_outputs, nodes);
}
constexpr char kScatter[] = "present = TensorScatter<axis = 1>(past, update, at)\n";
const std::vector<float> kPast = {1, 2, 3, 4, 5, 6, 7, 8};

Feeds ScatterFeeds(int64_t at) {
  return {{"update", Floats({1, 1, 2}, {-1, -2})}, {"at", Int64s({1}, {at})}};
}

TEST(ExecSession, RunsAChainWithConstantsAndViews) {
  const auto program = Compile(R"(
    g (float[2,3] x) => (float[3,2] y, float[6] z) <float[3] w = {10, 20, 30}> {
      a = Add(x, w)
      shape = Constant<value = int64[2] {3, 2}>()
      y = Reshape(a, shape)
      flat = Constant<value = int64[1] {-1}>()
      b = Reshape(y, flat)
      z = Neg(b)
    })");
  Session session(program);
  Fetches fetches;
  ASSERT_TRUE(session.Step({{"x", Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}, &fetches).ok());
  EXPECT_THAT(fetches["y"].shape(), ElementsAre(3, 2));
  EXPECT_THAT(Values(fetches["y"]), ElementsAre(11, 22, 33, 14, 25, 36));
  EXPECT_THAT(Values(fetches["z"]), ElementsAre(-11, -22, -33, -14, -25, -36));
}

TEST(ExecSession, OutputsAreTheCallers) {
  const auto program = Compile(
      "g (float[2] x) => (float[2] y, float[2] same, float[2] y2) {"
      "y = Neg(x)\n same = Identity(x)\n y2 = Identity(y) }");
  Session session(program);
  Fetches first, second;
  const Tensor x = Floats({2}, {1, 2});
  ASSERT_TRUE(session.Step({{"x", x}}, &first).ok());
  EXPECT_NE(first["same"].data(), x.data());
  EXPECT_NE(first["y2"].data(), first["y"].data());
  ASSERT_TRUE(session.Step({{"x", Floats({2}, {5, 6})}}, &second).ok());
  EXPECT_THAT(Values(first["y"]), ElementsAre(-1, -2));
  EXPECT_THAT(Values(first["same"]), ElementsAre(1, 2));
  EXPECT_THAT(Values(first["y2"]), ElementsAre(-1, -2));
  EXPECT_THAT(Values(second["y"]), ElementsAre(-5, -6));
}

TEST(ExecSession, WritesTheCacheInPlace) {
  const auto program = Compile(ScatterModel("", kScatter), OneCache(AliasMode::kRequired));
  ASSERT_EQ(program->aliasing().size(), 1u);
  EXPECT_TRUE(program->aliasing()[0].aliased);
  EXPECT_EQ(program->aliasing()[0].reason, "safe");
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  const std::byte* before = session.Cache("past")->data();
  Fetches fetches;
  ASSERT_TRUE(session.Step(ScatterFeeds(2), &fetches).ok());
  EXPECT_EQ(session.Cache("past")->data(), before);
  EXPECT_EQ(fetches["present"].data(), before);
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAre(1, 2, 3, 4, -1, -2, 7, 8));
  ASSERT_TRUE(session.Step(ScatterFeeds(0), &fetches).ok());
  EXPECT_EQ(session.Cache("past")->data(), before);
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAre(-1, -2, 3, 4, -1, -2, 7, 8));
}

TEST(ExecSession, AliasOffCopies) {
  const auto program = Compile(ScatterModel("", kScatter), OneCache(AliasMode::kOff));
  EXPECT_FALSE(program->aliasing()[0].aliased);
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  const std::byte* before = session.Cache("past")->data();
  Fetches fetches;
  ASSERT_TRUE(session.Step(ScatterFeeds(2), &fetches).ok());
  EXPECT_NE(session.Cache("past")->data(), before);
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAre(1, 2, 3, 4, -1, -2, 7, 8));
}

TEST(ExecSession, AReaderListedAfterTheWriterRunsBeforeIt) {
  const auto program =
      Compile(ScatterModel(", float[1,4,2] old", std::string(kScatter) + "old = Neg(past)"),
              OneCache(AliasMode::kRequired));
  EXPECT_THAT(program->aliasing()[0].readers, ElementsAre("old"));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  Fetches fetches;
  ASSERT_TRUE(session.Step(ScatterFeeds(0), &fetches).ok());
  EXPECT_THAT(Values(fetches["old"]), ElementsAre(-1, -2, -3, -4, -5, -6, -7, -8));
  EXPECT_THAT(Values(fetches["present"]), ElementsAre(-1, -2, 3, 4, 5, 6, 7, 8));
}

TEST(ExecSession, AReaderThatNeedsThePresentForbidsAliasing) {
  const std::string model =
      ScatterModel(", float[1,4,2] both", std::string(kScatter) + "both = Add(past, present)");
  const auto program = Compile(model, OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("Add \"both\" reads the past after"));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  Fetches fetches;
  ASSERT_TRUE(session.Step(ScatterFeeds(1), &fetches).ok());
  EXPECT_THAT(Values(fetches["both"]), ElementsAre(2, 4, 2, 2, 10, 12, 14, 16));
  const auto required = Program::Compile(Parse(model), OneCache(AliasMode::kRequired));
  EXPECT_EQ(required.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(required.status().message()), HasSubstr("\"both\""));
}

TEST(ExecSession, ALateReaderBehindAViewForbidsAliasing) {
  const auto program = Compile(
      ScatterModel(", float[8] both", std::string(kScatter) +
                                          "flat = Constant<value = int64[1] {8}>()\n"
                                          "a = Reshape(past, flat)\n b = Reshape(present, flat)\n"
                                          "both = Add(a, b)"),
      OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("\"both\""));
}

TEST(ExecSession, AViewOfThePastThatEscapesForbidsAliasing) {
  const auto program =
      Compile(ScatterModel(", float[1,4,2] old", std::string(kScatter) + "old = Identity(past)"),
              OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("graph output \"old\""));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  Fetches fetches;
  ASSERT_TRUE(session.Step(ScatterFeeds(0), &fetches).ok());
  EXPECT_THAT(Values(fetches["old"]), ElementsAreArray(kPast));
}

TEST(ExecSession, TheUpdateMayNotLiveInThePast) {
  const auto program = Compile(
      "g (float[1,4,2] past, int64[1] at) => (float[1,4,2] present) {"
      "present = TensorScatter<axis = 1>(past, past, at) }",
      OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
}

TEST(ExecSession, ACaptureInABodyIsAReader) {
  const auto program = Compile(
      ScatterModel(
          ", float[1,4,2] y",
          std::string(kScatter) +
              "flag = ReduceMax<keepdims = 0>(present)\n zero = Constant<value = float {0}>()\n"
              "c = Greater(flag, zero)\n"
              "y = If(c)<then_branch = t () => (float[1,4,2] r) { r = Neg(past) },"
              "else_branch = e () => (float[1,4,2] s) { s = Identity(past) }>"),
      OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("If \"y\""));
}

TEST(ExecSession, AFailedStepLeavesTheCachesAsTheyWere) {
  const auto program =
      Compile(ScatterModel(", float[2] picked",
                           std::string(kScatter) + "flat = Constant<value = int64[2] {4, 2}>()\n"
                                                   "rows = Reshape(present, flat)\n"
                                                   "picked = Gather(rows, index)",
                           ", int64 index"),
              OneCache(AliasMode::kRequired));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  const std::byte* before = session.Cache("past")->data();
  Feeds feeds = ScatterFeeds(1);
  feeds["index"] = Int64s({}, {4});
  Fetches fetches;
  const absl::Status status = session.Step(feeds, &fetches);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"picked\""));
  EXPECT_EQ(session.Cache("past")->data(), before);
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAreArray(kPast));
  // The same with a fed cache: the session keeps its own value.
  feeds["past"] = Floats({1, 4, 2}, {0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_FALSE(session.Step(feeds, &fetches).ok());
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAreArray(kPast));
  feeds["index"] = Int64s({}, {1});
  ASSERT_TRUE(session.Step(feeds, &fetches).ok());
  EXPECT_THAT(Values(fetches["picked"]), ElementsAre(-1, -2));
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAre(0, 0, -1, -2, 0, 0, 0, 0));
}

TEST(ExecSession, AWriteIndexOutOfRangeChangesNothing) {
  const auto program = Compile(ScatterModel("", kScatter), OneCache(AliasMode::kRequired));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  Fetches fetches;
  EXPECT_EQ(session.Step(ScatterFeeds(4), &fetches).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAreArray(kPast));
}

TEST(ExecSession, UndoRestoresScatterNdAndScatterElements) {
  const auto run = [](const std::string& writer, const std::string& index_type,
                      const Tensor& indices, const Tensor& updates, const char* update_type) {
    const auto program = Compile(
        fmt::format("g (float[3,2] past, {} i, {} u, int64 bad) => (float[3,2] present, float[2] y)"
                    "{{ present = {}(past, i, u)\n y = Gather(present, bad) }}",
                    index_type, update_type, writer),
        OneCache(AliasMode::kRequired));
    Session session(program);
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    ASSERT_TRUE(session.SetCache("past", Floats({3, 2}, values)).ok());
    Fetches fetches;
    Feeds feeds = {{"i", indices}, {"u", updates}, {"bad", Int64s({}, {9})}};
    EXPECT_FALSE(session.Step(feeds, &fetches).ok());
    EXPECT_THAT(Values(*session.Cache("past")), ElementsAreArray(values)) << writer;
    feeds["bad"] = Int64s({}, {2});
    const std::byte* before = session.Cache("past")->data();
    ASSERT_TRUE(session.Step(feeds, &fetches).ok());
    EXPECT_EQ(fetches["present"].data(), before) << writer;
    EXPECT_THAT(Values(fetches["y"]), ElementsAre(7, 8)) << writer;
  };
  run("ScatterND", "int64[2,1]", Int64s({2, 1}, {2, 2}), Floats({2, 2}, {0, 0, 7, 8}),
      "float[2,2]");
  run("ScatterElements<axis = 0>", "int64[1,2]", Int64s({1, 2}, {-1, 2}), Floats({1, 2}, {7, 8}),
      "float[1,2]");
}

TEST(ExecSession, AGrowingCacheIsThreadedThrough) {
  const auto program = Compile(
      "g (float[P,2] past, float[S,2] x) => (float[T,2] present, float[2] sum) {"
      "present = Concat<axis = 0>(past, x)\n axes = Constant<value = int64[1] {0}>()\n"
      "sum = ReduceSum<keepdims = 0>(present, axes) }",
      OneCache());
  EXPECT_FALSE(program->aliasing()[0].aliased);
  EXPECT_THAT(program->aliasing()[0].reason, HasSubstr("Concat"));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Tensor(kFloat, {0, 2})).ok());
  Fetches fetches;
  for (int step = 1; step <= 5; ++step) {
    const float v = static_cast<float>(step);
    ASSERT_TRUE(session.Step({{"x", Floats({1, 2}, {v, -v})}}, &fetches).ok());
    EXPECT_THAT(fetches["present"].shape(), ElementsAre(step, 2));
    EXPECT_EQ(fetches["present"].data(), session.Cache("past")->data());
    EXPECT_EQ(fetches["sum"].span<float>()[0], v * (v + 1) / 2);
  }
  EXPECT_THAT(Values(*session.Cache("past")), ElementsAre(1, -1, 2, -2, 3, -3, 4, -4, 5, -5));
}

TEST(ExecSession, CachesMayTradePlaces) {
  CompileOptions options;
  options.caches = {{"a", "a2"}, {"b", "b2"}};
  const auto program = Compile(
      "g (float[1] a, float[1] b) => (float[1] a2, float[1] b2) {"
      "a2 = Identity(b)\n b2 = Identity(a) }",
      options);
  Session session(program);
  ASSERT_TRUE(session.SetCache("a", Floats({1}, {1})).ok());
  ASSERT_TRUE(session.SetCache("b", Floats({1}, {2})).ok());
  Fetches fetches;
  ASSERT_TRUE(session.Step({}, &fetches).ok());
  EXPECT_THAT(Values(*session.Cache("a")), ElementsAre(2));
  EXPECT_THAT(Values(*session.Cache("b")), ElementsAre(1));
  ASSERT_TRUE(session.Step({}, &fetches).ok());
  EXPECT_THAT(Values(*session.Cache("a")), ElementsAre(1));
}

TEST(ExecSession, RefusesFeedsThatDoNotFit) {
  const auto program = Compile(ScatterModel("", kScatter), OneCache());
  Session session(program);
  Fetches fetches;
  const auto message = [&](const Feeds& feeds) {
    const absl::Status status = session.Step(feeds, &fetches);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(ScatterFeeds(0)), HasSubstr("\"past\" has no value"));
  ASSERT_TRUE(session.SetCache("past", Floats({1, 4, 2}, kPast)).ok());
  EXPECT_THAT(message({{"at", Int64s({1}, {0})}}), HasSubstr("\"update\" is missing"));
  Feeds feeds = ScatterFeeds(0);
  feeds["nonsense"] = Int64s({1}, {0});
  EXPECT_THAT(message(feeds), HasSubstr("\"nonsense\""));
  feeds = ScatterFeeds(0);
  feeds["at"] = Floats({1}, {0});
  EXPECT_THAT(message(feeds), HasSubstr("float32"));
  feeds["at"] = Int64s({2}, {0, 0});
  EXPECT_THAT(message(feeds), HasSubstr("[2]"));
  EXPECT_EQ(session.SetCache("at", Int64s({1}, {0})).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(session.SetCache("past", Floats({1, 3, 2}, {1, 2, 3, 4, 5, 6})).ok());
  CompileOptions options;
  options.caches = {{"past", "missing"}};
  EXPECT_EQ(Program::Compile(Parse(ScatterModel("", kScatter)), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ExecSession, NamesTheOperatorWithoutKernel) {
  const auto program =
      Program::Compile(Parse("g (float[1,1,4,4] x) => (float[1,1,2,2] y) {"
                             "[pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }"),
                       {});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("MaxPool-24"));
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("\"pool\""));
}

// An optional operand with a name is given, although its data is sparse.
TEST(ExecSession, RefusesSparseInitializers) {
  const auto text = "g (float[2] x, float[2] bias) => (float[2] y) { y = Clip(x, bias) }";
  auto model = std::make_shared<onnx::ModelProto>(Parse(text)->model());
  onnx::GraphProto& graph = *model->mutable_graph();
  graph.mutable_input()->RemoveLast();
  onnx::SparseTensorProto& sparse = *graph.add_sparse_initializer();
  sparse.mutable_values()->set_name("bias");
  sparse.mutable_values()->set_data_type(kFloat);
  auto built = Graph::Build(model);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), {});
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("bias, a sparse initializer"));
}

TEST(ExecSession, IfRunsOneBranchOnCapturedValues) {
  const auto program = Compile(
      "g (bool c, float[2] x) => (float[2] y) { k = Neg(x)\n"
      "y = If(c)<then_branch = t () => (float[2] r) { r = Add(k, k) },"
      "else_branch = e () => (float[2] s) { s = Identity(k) }> }");
  Session session(program);
  Fetches fetches;
  const Tensor x = Floats({2}, {1, 2});
  ASSERT_TRUE(session.Step({{"c", Bool(true)}, {"x", x}}, &fetches).ok());
  const Tensor kept = fetches["y"];
  EXPECT_THAT(Values(kept), ElementsAre(-2, -4));
  ASSERT_TRUE(session.Step({{"c", Bool(false)}, {"x", x}}, &fetches).ok());
  EXPECT_THAT(Values(fetches["y"]), ElementsAre(-1, -2));
  EXPECT_THAT(Values(kept), ElementsAre(-2, -4));
}

TEST(ExecSession, LoopCarriesAndStacks) {
  const auto program = Compile(
      "g (int64 n, float[1] x) => (float[1] last, float[M,1] all) {"
      "yes = Constant<value = bool {1}>()\n"
      "last, all = Loop(n, yes, x)<body = b (int64 i, bool c, float[1] v) =>"
      "(bool c2, float[1] w, float[1] out) { c2 = Identity(c)\n w = Add(v, x)\n out = Neg(w) }> }");
  Session session(program);
  Fetches fetches;
  ASSERT_TRUE(session.Step({{"n", Int64s({}, {3})}, {"x", Floats({1}, {2})}}, &fetches).ok());
  EXPECT_THAT(Values(fetches["last"]), ElementsAre(8));
  EXPECT_THAT(fetches["all"].shape(), ElementsAre(3, 1));
  EXPECT_THAT(Values(fetches["all"]), ElementsAre(-4, -6, -8));
}

TEST(ExecSession, ModelLocalFunctionsBindTheirAttributes) {
  const auto graph = Parse("g (float[2,2] x) => (float[4,2] y) { y = local.twice<at = 0>(x) }",
                           "<domain: \"local\", opset_import: [\"\": 24]> twice <at> (a) => (b) {"
                           "b = Concat<axis: int = @at>(a, a) }",
                           "\"\": 24, \"local\": 1");
  const auto program = Program::Compile(graph, {});
  ASSERT_TRUE(program.ok()) << program.status();
  Session session(*program);
  Fetches fetches;
  ASSERT_TRUE(session.Step({{"x", Floats({2, 2}, {1, 2, 3, 4})}}, &fetches).ok());
  EXPECT_THAT(Values(fetches["y"]), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4));
}

// A model defines an operator by a function of its name: in the graph, in bodies and in functions.
TEST(ExecSession, AFunctionDefinesTheOperatorOfItsName) {
  const std::string functions =
      "<domain: \"com.microsoft\", opset_import: [\"\": 24]> FusedMatMul (a) => (b) { b = Neg(a) "
      "}\n"
      "<domain: \"com.microsoft\", opset_import: [\"\": 24]>"
      "MatMulNBits (a) => (b) { b = Identity(a) }\n"
      "<domain: \"local\", opset_import: [\"\": 24, \"com.microsoft\": 1]>"
      "f (a) => (b) { b = com.microsoft.FusedMatMul(a) }";
  for (const char* nodes :
       {"y = com.microsoft.FusedMatMul(x)", "y = local.f(x)",
        "z = com.microsoft.FusedMatMul(x)\n y = com.microsoft.MatMulNBits(z)",
        "t = Constant<value = bool {1}>()\n y = If(t)<then_branch = a () => (y1) {"
        "y1 = com.microsoft.FusedMatMul(x) }, else_branch = b () => (y2) { y2 = Identity(x) }>"}) {
    const auto graph = Parse(fmt::format("g (float[2] x) => (float[2] y) {{ {} }}", nodes),
                             functions, "\"\": 24, \"local\": 1, \"com.microsoft\": 1");
    for (const bool bodies : {false, true}) {
      CompileOptions options;
      options.bodies = bodies;
      const auto program = Program::Compile(graph, options);
      ASSERT_TRUE(program.ok()) << program.status();
      Session session(*program);
      Fetches fetches;
      ASSERT_TRUE(session.Step({{"x", Floats({2}, {1, 2})}}, &fetches).ok()) << nodes;
      EXPECT_THAT(Values(fetches["y"]), ElementsAre(-1, -2)) << nodes;
    }
  }
}

TEST(ExecSession, AFunctionThatCallsItselfIsRefused) {
  const auto graph = Parse("g (float[2] x) => (float[2] y) { y = local.f(x) }",
                           "<domain: \"local\", opset_import: [\"\": 24, \"local\": 1]>"
                           "f (a) => (b) { b = local.f(a) }",
                           "\"\": 24, \"local\": 1");
  EXPECT_EQ(Program::Compile(graph, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExecSession, TheObserverSeesEveryNode) {
  const auto program =
      Compile("g (float[2] x) => (float[2] y) { a = Neg(x)\n b = Identity(a)\n y = Add(a, b) }");
  Session session(program);
  std::vector<std::pair<std::string, float>> seen;
  session.set_observer([&](NodeId node, absl::Span<const View> outputs) {
    seen.emplace_back(program->graph().NodeName(node), outputs[0].span<float>()[1]);
  });
  Fetches fetches;
  ASSERT_TRUE(session.Step({{"x", Floats({2}, {1, 2})}}, &fetches).ok());
  EXPECT_THAT(seen, ElementsAre(std::pair("a", -2.f), std::pair("b", -2.f), std::pair("y", -4.f)));
}

TEST(ExecSession, AllocatesNothingAfterWarmUp) {
  const auto program = Compile(
      R"(g (float[1,8,4] past, float[1,1,4] x, int64[1] at)
          => (float[1,8,4] present, float[1,1,4] y) {
        n = Neg(x)
        present = TensorScatter<axis = 1>(past, n, at)
        last = Gather<axis = 1>(present, at)
        shape = Shape(last)
        e = Expand(x, shape)
        s = Concat<axis = 2>(last, e)
        starts = Constant<value = int64[1] {0}>()
        ends = Constant<value = int64[1] {4}>()
        axes = Constant<value = int64[1] {2}>()
        cut = Slice(s, starts, ends, axes)
        t = Transpose<perm = [0, 2, 1]>(cut)
        u = Reshape(t, shape)
        c = Less(u, e)
        w = Where(c, u, e)
        y = Add(w, cut)
      })",
      OneCache(AliasMode::kRequired));
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Tensor::Zeros(kFloat, {1, 8, 4})).ok());
  Feeds feeds = {{"x", Floats({1, 1, 4}, {1, 2, 3, 4})}, {"at", Int64s({1}, {0})}};
  Fetches fetches;
  for (int64_t step = 0; step < 8; ++step) {
    feeds["at"].span<int64_t>()[0] = step;
    const int64_t blocks = AllocationCount(), allocations = CountedNews();
    const absl::Status status = session.Step(feeds, &fetches);
    const int64_t more_blocks = AllocationCount() - blocks;
    const int64_t more_allocations = CountedNews() - allocations;
    ASSERT_TRUE(status.ok()) << status;
    if (step < 2) continue;
    EXPECT_EQ(more_blocks, 0) << "step " << step;
    EXPECT_EQ(more_allocations, 0) << "step " << step;
  }
  EXPECT_THAT(Values(fetches["y"]), ElementsAre(-2, -4, -6, -8));
}

// Random chains: reusing memory must not change any value. The same graph with every value as an
// output keeps each in memory of its own.
TEST(ExecSession, SharedMemoryChangesNoValue) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> values = {"x"};
    std::string nodes = "flat = Constant<value = int64[1] {-1}>()\n";
    std::string outputs;
    for (int i = 0; i < 14; ++i) {
      const std::string out = fmt::format("v{}", i);
      const auto pick = [&] { return values[random() % values.size()]; };
      switch (random() % 5) {
        case 0:
          nodes += fmt::format("{} = Reshape({}, flat)\n", out, pick());
          break;
        case 1:
          nodes += fmt::format("{} = Neg({})\n", out, pick());
          break;
        case 2:
          nodes += fmt::format("{} = Abs({})\n", out, pick());
          break;
        default:
          nodes += fmt::format("{} = Add({}, {})\n", out, pick(), pick());
      }
      outputs += fmt::format(", float[4] {}", out);
      values.push_back(out);
    }
    nodes += "y = Sub(v13, v12)\n";
    const auto lean = Compile(fmt::format("g (float[4] x) => (float[4] y) {{ {} }}", nodes));
    const auto full =
        Compile(fmt::format("g (float[4] x) => (float[4] y{}) {{ {} }}", outputs, nodes));
    Session a(lean), b(full);
    for (int step = 0; step < 3; ++step) {
      Fetches fetched_a, fetched_b;
      const Feeds feeds = {{"x", Floats({4}, {1, -2, 3, static_cast<float>(step)})}};
      ASSERT_TRUE(a.Step(feeds, &fetched_a).ok());
      ASSERT_TRUE(b.Step(feeds, &fetched_b).ok());
      ASSERT_EQ(Values(fetched_a["y"]), Values(fetched_b["y"])) << nodes;
    }
  }
}

}  // namespace
}  // namespace kvlift::exec
