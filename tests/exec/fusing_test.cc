// SRCS: support/models.cc support/case_edits.cc support/case_file.cc
// Fused chains have the bits of the operators that they are made of.
#include "exec/compile/fusing.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/compile/shape_reads.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvlift/inputs/bench_feeds.h"
#include "onnxio/model/model.h"
#include "support/models.h"

namespace kvlift::exec {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Graph> Parse(const std::string& graph) {
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\": 18]>\n" + graph);
  if (!model.ok()) {
    ADD_FAILURE() << model.status() << "\n" << graph;
    return nullptr;
  }
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  EXPECT_TRUE(built.ok()) << built.status();
  return built.ok() ? std::make_shared<const Graph>(*std::move(built)) : nullptr;
}

std::shared_ptr<const Program> Compile(const std::shared_ptr<const Graph>& graph, bool fuse,
                                       CompileOptions options = {}) {
  options.fuse = fuse;
  auto program = Program::Compile(graph, options);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

// Which NaN comes of two is not defined: processors take the first, compilers order operands.
std::string Bytes(const Fetches& fetches) {
  std::string bytes;
  for (const auto& [name, tensor] : fetches) {
    bytes += name + ShapeString(tensor.shape());
    if (tensor.size() == 0) continue;
    const auto size = static_cast<size_t>(tensor.view().bytes() / tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const bool real = IsFloatType(tensor.type());
      if (real && std::isnan(ElementAsDouble(tensor.view(), i))) {
        bytes += "nan";
      } else {
        const std::byte* element = tensor.data() + static_cast<size_t>(i) * size;
        bytes.append(reinterpret_cast<const char*>(element), size);
      }
    }
  }
  return bytes;
}

// Outputs of one step, or the error.
std::string Outcome(const std::shared_ptr<const Program>& program, const Feeds& feeds) {
  if (program == nullptr) return "";
  Session session(program);
  Fetches fetches;
  const absl::Status status = session.Step(feeds, &fetches);
  return status.ok() ? Bytes(fetches) : absl::StatusCodeToString(status.code());
}

// Normal values, with an infinity, a NaN, zeros and extremes here and there.
Tensor Random(int32_t type, Shape shape, std::mt19937& rng, bool odd = false) {
  const float kOdd[] = {0.0f,
                        -0.0f,
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(),
                        65504.0f,
                        -1e30f,
                        1e-40f};
  std::normal_distribution<float> normal;
  Tensor t(type, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    const float x = odd && rng() % 16 == 0 ? kOdd[rng() % 8] : normal(rng);
    if (type == onnx::TensorProto::FLOAT) {
      t.span<float>()[i] = x;
    } else {
      t.span<uint16_t>()[i] =
          type == onnx::TensorProto::FLOAT16 ? FloatToHalf(x) : FloatToBfloat(x);
    }
  }
  return t;
}

int Fused(const Graph& graph) {
  int count = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) count += graph.node(n).domain() == kFusedDomain;
  return count;
}

struct Chain {
  const char* name;
  const char* nodes;  // of x [2,3,S,8] and w [8], making y
  int left = 1;       // nodes of the fused graph
};

constexpr Chain kChains[] = {
    {"rms norm by Pow",
     "s = Pow(x, two) m = ReduceMean<keepdims = 1>(s, last) e = Add(m, eps) "
     "r = Sqrt(e) i = Reciprocal(r) n = Mul(x, i) y = Mul(w, n)"},
    {"rms norm by Mul",
     "s = Mul(x, x) m = ReduceMean<keepdims = 1>(s, three) e = Add(m, eps) "
     "r = Sqrt(e) n = Div(x, r) y = Mul(n, w)"},
    {"norm in float",
     "f = Cast<to = 1>(x) s = Pow(f, ftwo) m = ReduceMean<keepdims = 1>(s, last) "
     "r = Sqrt(m) n = Div(f, r) c = CastLike(n, x) y = Mul(c, w)",
     3},
    {"layer norm",
     "m = ReduceMean(x, last) d = Sub(x, m) s = Pow(d, two) v = ReduceMean(s, last) "
     "e = Add(v, eps) r = Sqrt(e) n = Div(d, r) g = Mul(n, w) y = Add(g, w)"},
    {"halves",
     "a = Slice(x, zero, half, last, one) b = Slice(x, half, far, last, one) c = Neg(b) "
     "r = Concat<axis = -1>(c, a) p = Mul(x, w) q = Mul(r, w) y = Add(p, q)"},
    {"halves, axis counted",
     "a = Slice(x, zero, half, three) b = Slice(x, half, far, three) "
     "c = Neg(b) r = Concat<axis = 3>(c, a) y = Mul(r, w)"},
    {"silu times", "g = Sigmoid(x) h = Mul(x, g) y = Mul(h, w)"},
    {"gelu by erf", "d = Div(x, two) e = Erf(d) f = Add(e, eps) g = Mul(x, f) y = Mul(g, half_x)"},
    {"gelu by tanh",
     "c = Pow(x, cube) d = Mul(c, eps) e = Add(x, d) f = Tanh(e) g = Add(f, two) "
     "y = Mul(x, g)"},
    {"scale and mask", "d = Div(x, two) y = Add(d, w)"},
    {"read twice", "d = Div(x, two) e = Add(d, w) f = Softmax(d) y = Mul(e, f)", 3},
    {"mean of the wrong axis", "m = ReduceMean(x, one) y = Mul(x, m)", 2},
    {"parts of two values",
     "e = Exp(x) a = Slice(x, zero, half, last) "
     "b = Slice(e, half, far, last) c = Concat<axis = -1>(a, b) "
     "y = Mul(c, w)",
     5},
};

TEST(Fusing, ChainsHaveTheSameBits) {
  const struct {
    int32_t type;
    const char* name;
  } kTypes[] = {{onnx::TensorProto::FLOAT, "float"},
                {onnx::TensorProto::FLOAT16, "float16"},
                {onnx::TensorProto::BFLOAT16, "bfloat16"}};
  std::mt19937 rng(5);
  for (const auto& type : kTypes) {
    for (const Chain& chain : kChains) {
      SCOPED_TRACE(fmt::format("{}, {}", chain.name, type.name));
      const auto graph = Parse(fmt::format(
          "g ({0}[2,3,S,8] x, {0}[8] w, {0} two, {0} eps, {0} cube, {0} half_x) => ({0}[A,B,C,D] y)"
          "<int64[1] last = {{-1}}, int64[1] three = {{3}}, int64[1] zero = {{0}}, "
          "int64[1] half = {{4}}, int64[1] far = {{9223372036854775807}}, int64[1] one = {{1}}, "
          "float ftwo = {{2}}> {{ {1} }}",
          type.name, chain.nodes));
      ASSERT_NE(graph, nullptr);
      const auto fused = FuseRows(graph);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_EQ((*fused)->num_nodes(), chain.left);
      for (const int64_t tokens : {1, 5, 0, 700}) {
        for (const bool odd : {false, true}) {
          Feeds feeds = {{"x", Random(type.type, {2, 3, tokens, 8}, rng, odd)},
                         {"w", Random(type.type, {8}, rng)}};
          const std::pair<const char*, float> kScalars[] = {
              {"two", 2}, {"eps", 1e-5f}, {"cube", 3}, {"half_x", 0.5f}};
          for (const auto& [name, value] : kScalars) {
            Tensor t(type.type, {});
            if (type.type == onnx::TensorProto::FLOAT) {
              t.span<float>()[0] = value;
            } else {
              t.span<uint16_t>()[0] = type.type == onnx::TensorProto::FLOAT16
                                          ? FloatToHalf(value)
                                          : FloatToBfloat(value);
            }
            feeds[name] = t;
          }
          for (const int threads : {1, 3}) {
            CompileOptions options;
            options.threads = threads;
            EXPECT_TRUE(Outcome(Compile(graph, true, options), feeds) ==
                        Outcome(Compile(graph, false, options), feeds))
                << tokens << " tokens, odd " << odd << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

// Nodes that make y of x [2,S,48], r [2,S,40], w [48,40] and t, its transpose.
constexpr Chain kProducts[] = {
    {"product and residual", "p = MatMul(x, w) y = Add(r, p)"},
    {"residual first", "p = MatMul(x, w) y = Add(p, r)"},
    {"broadcast to it", "p = MatMul(x, w) y = Add(p, b)"},
    {"broadcast", "a = ReduceMean<keepdims = 1>(x, zero) p = MatMul(a, w) y = Add(p, r)", 2},
    {"transposed", "u = Transpose(t) p = MatMul(x, u) y = Add(r, p)", 2},
    {"two", "p = MatMul(x, w) q = MatMul(x, w) y = Add(p, q)", 2},
    {"itself", "p = MatMul(x, w) y = Add(p, p)", 2},
    {"read twice", "p = MatMul(x, w) s = Add(r, p) q = Softmax(p) y = Sub(s, q)", 3},
    {"computed", "c = Exp(w) p = MatMul(x, c) y = Add(r, p)", 3},
    {"two residuals", "p = MatMul(x, w) s = Add(r, p) q = MatMul(x, w) y = Add(s, q)", 3},
};

// Shapes behind a fused node are known before a step runs.
TEST(Fusing, OperatorsDependOnShapesOnly) {
  int found = 0;
  for (const OpDef& def : AllOps()) {
    if (def.domain != kFusedDomain) continue;
    ++found;
    EXPECT_EQ(ShapeReads(def), 0u) << def.op_type;
  }
  EXPECT_EQ(found, 4);
}

TEST(Fusing, ProductsTakeTheirResidual) {
  std::mt19937 rng(7);
  for (const auto& [type, name] : {std::pair(onnx::TensorProto::FLOAT, "float"),
                                   {onnx::TensorProto::FLOAT16, "float16"},
                                   {onnx::TensorProto::BFLOAT16, "bfloat16"}}) {
    for (const Chain& chain : kProducts) {
      SCOPED_TRACE(fmt::format("{}, {}", chain.name, name));
      const auto model = ParseModelText(fmt::format(
          "<ir_version: 10, opset_import: [\"\": 24]> g ({0}[2,S,48] x, {0}[2,S,40] r, {0}[1,40] b)"
          " => ({0}[A,B,C] y) <int64[1] zero = {{0}}> {{ {1} }}",
          name, chain.nodes));
      ASSERT_TRUE(model.ok()) << model.status();
      auto proto = std::make_shared<onnx::ModelProto>(*model);
      *proto->mutable_graph()->add_initializer() = Random(type, {48, 40}, rng).ToProto("w");
      *proto->mutable_graph()->add_initializer() = Random(type, {40, 48}, rng).ToProto("t");
      auto built = Graph::Build(proto);
      ASSERT_TRUE(built.ok()) << built.status();
      const auto graph = std::make_shared<const Graph>(*std::move(built));
      const auto fused = FuseRows(graph);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_EQ((*fused)->num_nodes(), chain.left);
      for (const int64_t tokens : {1, 3, 0, 20, 300}) {
        const Feeds feeds = {{"x", Random(type, {2, tokens, 48}, rng)},
                             {"r", Random(type, {2, tokens, 40}, rng)},
                             {"b", Random(type, {1, 40}, rng)}};
        for (const int threads : {1, 3}) {
          for (const bool packed : {true, false}) {
            CompileOptions options;
            options.threads = threads;
            options.pack_weights = packed;
            EXPECT_TRUE(Outcome(Compile(graph, true, options), feeds) ==
                        Outcome(Compile(graph, false, options), feeds))
                << tokens << " tokens, " << threads << " threads, packed " << packed;
          }
        }
      }
    }
  }
}

// Random operators on random shapes: fused or not, the same bits or the same refusal.
TEST(Fusing, RandomGraphsHaveTheSameBits) {
  std::mt19937 rng(11);
  const char* const kShapes[] = {"8", "1", "3,8", "3,1", "2,1,8", "2,3,8", "1,1,1", "2,3,1"};
  const std::vector<Shape> shapes = {{8},       {1},       {3, 8},    {3, 1},
                                     {2, 1, 8}, {2, 3, 8}, {1, 1, 1}, {2, 3, 1}};
  const char* const kBinary[] = {"Add", "Sub", "Mul", "Div"};
  const char* const kUnary[] = {"Neg",  "Abs",     "Sqrt", "Reciprocal", "Exp",
                                "Tanh", "Sigmoid", "Erf",  "Sin",        "Cos"};
  int fused_nodes = 0, answered = 0;
  for (int round = 0; round < 400; ++round) {
    const bool half = rng() % 3 == 0;
    const char* type = half ? "float16" : "float";
    std::string inputs, nodes;
    Feeds feeds;
    std::vector<std::string> values;
    for (int i = 0; i < 3; ++i) {
      const size_t s = rng() % shapes.size();
      values.push_back(fmt::format("x{}", i));
      inputs += fmt::format("{}{}[{}] x{}", i == 0 ? "" : ", ", type, kShapes[s], i);
      feeds[values.back()] = Random(half ? onnx::TensorProto::FLOAT16 : onnx::TensorProto::FLOAT,
                                    shapes[s], rng, true);
    }
    for (int i = 0; i < 10; ++i) {
      const std::string out = fmt::format("v{}", i);
      const auto pick = [&] {
        return rng() % 3 == 0 ? values[rng() % values.size()] : values.back();
      };
      const std::string a = pick(), b = pick();
      switch (rng() % 8) {
        case 0:
          nodes += fmt::format("{} = ReduceMean<keepdims = 1>({}, last)\n", out, a);
          break;
        case 1:
          nodes +=
              fmt::format("{} = Slice({}, from{}, to{}, last)\n", out, a, rng() % 3, rng() % 3);
          break;
        case 2:
          nodes += fmt::format("{0}n = Neg({1})\n{0} = Concat<axis = -1>({0}n, {1})\n", out, a);
          break;
        case 3:
        case 4:
          nodes += fmt::format("{} = {}({})\n", out, kUnary[rng() % 10], a);
          break;
        default:
          nodes += fmt::format("{} = {}({}, {})\n", out, kBinary[rng() % 4], a, b);
      }
      values.push_back(out);
    }
    const auto graph = Parse(fmt::format(
        "g ({}) => ({} v9) <int64[1] last = {{-1}}, int64[1] from0 = {{0}}, int64[1] from1 = {{4}},"
        "int64[1] from2 = {{-3}}, int64[1] to0 = {{4}}, int64[1] to1 = {{1000}}, "
        "int64[1] to2 = {{-1}}> {{ {} }}",
        inputs, type, nodes));
    ASSERT_NE(graph, nullptr);
    const auto fused = Compile(graph, true);
    ASSERT_NE(fused, nullptr);
    fused_nodes += Fused(fused->graph());
    const std::string expected = Outcome(Compile(graph, false), feeds);
    answered += expected.find("v9") == 0;
    const std::string got = Outcome(fused, feeds);
    EXPECT_TRUE(got == expected) << inputs << "\n" << nodes;
  }
  EXPECT_GT(fused_nodes, 400);
  EXPECT_GT(answered, 150);
}

class FusedModel : public ::testing::TestWithParam<std::string> {};

TEST_P(FusedModel, HasTheSameBits) {
  const Model model = LoadTestModel(GetParam());
  auto built = Graph::Build(model.proto);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto graph = std::make_shared<const Graph>(*std::move(built));
  const auto inspection = Inspect(model, AllRules());
  ASSERT_TRUE(inspection.ok()) << inspection.status();
  const std::vector<cli::BenchCache> caches = cli::CachesOf(*graph, *inspection);
  if (caches.empty()) GTEST_SKIP() << "no caches to guess feeds from";
  for (const Order order : {Order::kCanonical, Order::kFast}) {
    for (const int64_t tokens : {1, 3}) {
      CompileOptions options;
      options.order = order;
      options.threads = 1;
      options.base_dir = model.base_dir;
      for (const cli::BenchCache& cache : caches) options.caches.push_back(cache.pair);
      const auto plain = Compile(graph, false, options), fused = Compile(graph, true, options);
      ASSERT_TRUE(plain != nullptr && fused != nullptr);
      bool branches = false;  // whose bodies are left as they are
      for (NodeId n = 0; n < graph->num_nodes(); ++n) branches = branches || graph->Is(n, "If");
      EXPECT_TRUE(branches || Fused(fused->graph()) > 0);
      const cli::StepSize size{2, 5, tokens, 32};
      auto feeds = cli::OtherFeeds(*graph, caches, nullptr, size);
      auto past = cli::CacheFeeds(*graph, caches, size);
      ASSERT_TRUE(feeds.ok() && past.ok());
      for (const auto& [name, tensor] : *past) (*feeds)[name] = tensor;
      const std::string expected = Outcome(plain, *feeds);
      EXPECT_TRUE(Outcome(fused, *feeds) == expected) << tokens << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FusedModel, ::testing::ValuesIn(ModelNames()),
                         [](const auto& instance) { return instance.param; });

TEST(Fusing, ModelsMayNotUseItsOperators) {
  const auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\": 18, \"kvlift.fused\": 1]>\n"
      "g (float[2] x) => (float[2] y) { y = kvlift.fused.Rows<code = [5, 0, 0, 0, 0]>(x) }");
  ASSERT_TRUE(model.ok()) << model.status();
  auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), {});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("kvlift.fused.Rows"));
}

}  // namespace
}  // namespace kvlift::exec
