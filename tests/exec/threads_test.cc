// LIBS: exec onnxio
// SRCS: support/count_news.cc
// Every node of a step has the same bits on 1, 2, 3 and 8 threads, in both orders of summation.
#include <cstring>
#include <map>
#include <random>
#include <string>

#include "exec/memory/memory.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "support/count_news.h"

namespace kvlift::exec {
namespace {

// Large enough that every kernel splits its work, with extents that no unit divides.
constexpr char kGraph[] = R"(
g (float[1,101,512] x, float[512,1030] w, float[512] gamma, float[1030,512] v, float[8192,64] table,
   int64[1,101] ids, int64[2] at, float[2,4,700,64] past_key, float[2,4,700,64] past_value,
   int64[2] valid, bool[1,101,512] seen, uint8[512,96] bytes)
  => (float[2,4,700,64] present_key, float[2,4,700,64] present_value, float[1,101,1030] y) {
  half_w = Cast<to = 10>(w)
  one_scalar = Constant<value = int64 {1}>()
  seven = Constant<value = int64[1] {7}>()
  zero = Constant<value = int64[1] {0}>()
  four = Constant<value = int64[1] {4}>()
  hundred = Constant<value = int64[1] {100}>()
  norm = LayerNormalization<axis = -1>(x, gamma)
  rms = RMSNormalization<axis = -1>(norm, gamma)
  up = MatMul(rms, w)
  gate = Sigmoid(up)
  gated = Mul(up, gate)
  down = MatMul(gated, v)
  sum = Add(x, down)
  one = Constant<value = int64[1] {1}>()
  two = Constant<value = int64[1] {2}>()
  mean = ReduceMean(sum, one)
  most = ReduceMax(sum, two)
  total = ReduceSum(sum)
  half = Cast<to = 10>(sum)
  halves = MatMul(half, half_w)
  wide = Cast<to = 1>(halves)
  soft = Softmax<axis = -1>(wide)
  across = Softmax<axis = 1>(wide)
  logged = LogSoftmax<axis = -1>(wide)
  turned = Transpose<perm = [0, 2, 1]>(sum)
  square = MatMul(sum, turned)
  picked = Where(seen, sum, x)
  rows = Gather<axis = 0>(table, ids)
  joined = Concat<axis = -1>(sum, rows)
  power = Pow(square, square)
  error = Erf(sum)
  wave = Sin(sum)
  gelu = Gelu(sum)
  running = CumSum(sum, one_scalar)
  bigger, places = TopK<axis = -1>(sum, seven)
  norms = ReduceL2(sum, two)
  heads = Constant<value = int64[4] {2, 50, 8, 64}>()
  front = Slice(sum, zero, hundred, one)
  split = Reshape(front, heads)
  query = Transpose<perm = [0, 2, 1, 3]>(split)
  fresh = Slice(query, zero, four, one)
  present_key = TensorScatter(past_key, fresh, at)
  present_value = TensorScatter(past_value, fresh, at)
  mixed = Attention<is_causal = 1>(query, present_key, present_value, , , , valid)
  single = Slice(query, zero, one, two)
  token = Attention(single, present_key, present_value, , , , valid)
  turned_key = Transpose<perm = [0, 1, 3, 2]>(present_key)
  explicit = MatMul(present_key, turned_key)
  shared = Einsum<equation = "bhtd,bhsd->bhts">(present_key, present_value)
  quantised, scale, zero_point = DynamicQuantizeLinear(sum)
  integer = MatMulInteger(quantised, bytes, zero_point)
  sum_up = Identity(gated)
  y = Add(sum_up, up)
}
)";

std::shared_ptr<const Graph> Parse() {
  const auto model =
      ParseModelText(fmt::format("<ir_version: 10, opset_import: [\"\": 24]>\n{}", kGraph));
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

Feeds MakeFeeds(const Graph& graph) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  Feeds feeds;
  for (const ValueId v : graph.graph_inputs()) {
    const TensorType& type = graph.type(v);
    Shape shape;
    for (const Dim& dim : *type.shape) shape.push_back(*dim.value);
    Tensor t = Tensor::Zeros(type.elem_type, shape);
    for (int64_t i = 0; i < t.size(); ++i) {
      if (type.elem_type == onnx::TensorProto::FLOAT) {
        t.span<float>()[i] = normal(rng) * 0.25f;
      } else if (type.elem_type == onnx::TensorProto::INT64) {
        t.span<int64_t>()[i] = 600 + 37 * i % 40;
      } else if (type.elem_type == onnx::TensorProto::BOOL) {
        t.span<uint8_t>()[i] = rng() % 2;
      } else {
        t.span<uint8_t>()[i] = static_cast<uint8_t>(rng());
      }
    }
    feeds[graph.name(v)] = t;
  }
  return feeds;
}

// By node and output: its bytes.
using Trace = std::map<std::string, std::string>;

Trace TraceOf(const std::shared_ptr<const Graph>& graph, const Feeds& feeds, int threads,
              Order order) {
  CompileOptions options;
  options.threads = threads;
  options.order = order;
  const auto program = Program::Compile(graph, options);
  EXPECT_TRUE(program.ok()) << program.status();
  Session session(*program);
  Fetches fetches;
  Trace trace;
  // The second step has its threads from the start.
  for (int step = 0; step < 2; ++step) {
    trace.clear();
    session.set_observer([&](NodeId node, absl::Span<const View> outputs) {
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].bytes() <= 0) continue;
        trace[fmt::format("{}:{}", graph->NodeName(node), i)] =
            std::string(reinterpret_cast<const char*>(outputs[i].data),
                        static_cast<size_t>(outputs[i].bytes()));
      }
    });
    const absl::Status status = session.Step(feeds, &fetches);
    EXPECT_TRUE(status.ok()) << status;
  }
  return trace;
}

TEST(ExecThreads, EveryNodeHasTheSameBits) {
  const auto graph = Parse();
  ASSERT_NE(graph, nullptr);
  const Feeds feeds = MakeFeeds(*graph);
  for (const Order order : {Order::kCanonical, Order::kFast}) {
    const Trace expected = TraceOf(graph, feeds, 1, order);
    ASSERT_GT(expected.size(), 40u);
    for (const int threads : {2, 3, 8}) {
      const Trace got = TraceOf(graph, feeds, threads, order);
      ASSERT_EQ(got.size(), expected.size());
      for (const auto& [name, bytes] : expected) {
        EXPECT_TRUE(got.at(name) == bytes) << name << " differs on " << threads << " threads";
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Whoever gets a unit of work has room for it, since each thread takes as much as any needed.
TEST(ExecThreads, AWarmedUpStepAllocatesNothing) {
  const auto graph = Parse();
  ASSERT_NE(graph, nullptr);
  const Feeds feeds = MakeFeeds(*graph);
  for (const int threads : {1, 2, 3}) {
    for (const Order order : {Order::kCanonical, Order::kFast}) {
      CompileOptions options;
      options.threads = threads;
      options.order = order;
      options.fuse = order == Order::kFast;
      const auto program = Program::Compile(graph, options);
      ASSERT_TRUE(program.ok()) << program.status();
      Session session(*program);
      Fetches fetches;
      for (int step = 0; step < 8; ++step) {
        const int64_t blocks = AllocationCount(), news = CountedNews();
        const absl::Status status = session.Step(feeds, &fetches);
        const int64_t more_blocks = AllocationCount() - blocks, more_news = CountedNews() - news;
        ASSERT_TRUE(status.ok()) << status;
        if (step < 3) continue;
        EXPECT_EQ(more_blocks, 0) << threads << " threads, step " << step;
        EXPECT_EQ(more_news, 0) << threads << " threads, step " << step;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace kvlift::exec
