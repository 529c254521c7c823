// LIBS: exec
// Attention over int8 caches: the same bits as over rows that were widened before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "exec/kernels/attention_isa.h"
#include "exec/kernels/attention_quantized.h"
#include "exec/kernels/rows.h"
#include "exec/program.h"
#include "exec/session.h"
#include "exec_kernel_harness.h"
#include "fmt/format.h"
#include "onnxio/model.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;
using Rng = std::mt19937;

int64_t Pick(Rng& rng, std::vector<int64_t> values) { return values[rng() % values.size()]; }

Tensor Floats(Rng& rng, Shape shape) {
  Tensor t(TensorProto::FLOAT, std::move(shape));
  std::normal_distribution<float> normal;
  for (float& x : t.span<float>()) x = normal(rng);
  return t;
}

Tensor Bytes(Rng& rng, Shape shape) {
  Tensor t(TensorProto::INT8, std::move(shape));
  for (int8_t& x : t.span<int8_t>()) x = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
  return t;
}

// value * scale, one scale per group of elements.
Tensor Widened(const Tensor& values, const Tensor& scales, int64_t group) {
  Tensor out(TensorProto::FLOAT, values.shape());
  for (int64_t i = 0; i < out.size(); ++i) {
    out.span<float>()[i] =
        static_cast<float>(values.span<int8_t>()[i]) * scales.span<float>()[i / group];
  }
  return out;
}

bool Same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.view().bytes())) == 0;
}

TEST(AttentionQuantizedTest, GivesTheBitsOfWidenedRows) {
  Rng rng(3);
  for (int i = 0; i < 120; ++i) {
    const int64_t B = 1 + rng() % 2, Nk = 1 + rng() % 3, G = Pick(rng, {1, 2, 3, 4, 5, 8});
    const int64_t S = Pick(rng, {1, 1, 1, 2, 7, 40}), T = S + Pick(rng, {0, 3, 60, 511, 512, 1100});
    const int64_t group = Pick(rng, {4, 16, 32, 32, 64}), D = group * (1 + rng() % 4);
    const int64_t value_group = Pick(rng, {8, 16, 32}), Dv = value_group * (1 + rng() % 3);
    const Tensor q = Floats(rng, {B, Nk * G, S, D});
    const Tensor k = Bytes(rng, {B, Nk, T, D}), v = Bytes(rng, {B, Nk, T, Dv});
    const Tensor ks = Floats(rng, {B, Nk, T, D / group});
    const Tensor vs = Floats(rng, {B, Nk, T, Dv / value_group});
    Tensor lengths(TensorProto::INT64, {B}), mask;
    for (int64_t& n : lengths.span<int64_t>()) n = S + static_cast<int64_t>(rng() % (T - S + 1));
    if (rng() % 3 == 0) mask = Floats(rng, {S, T});
    const auto run = [&](const std::string& op, const std::string& domain, bool quantized) {
      OpRun call(op, 24, domain);
      call.Int("is_causal", 1).Float("softcap", i % 4 == 0 ? 20.0f : 0.0f).Fast();
      std::vector<Tensor> inputs = {q, k, v, mask, Tensor(), Tensor(), lengths};
      if (quantized) {
        call.Int(kKeyGroup, group).Int(kValueGroup, value_group);
        inputs.insert(inputs.end(), {ks, vs});
      } else {
        inputs[1] = Widened(k, ks, group);
        inputs[2] = Widened(v, vs, value_group);
      }
      return call.Run(inputs);
    };
    const auto wide = run("Attention", "", false);
    const auto narrow = run(std::string(kQuantizedAttention), std::string(kFusedDomain), true);
    ASSERT_TRUE(wide.ok()) << wide.status();
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    ASSERT_TRUE(Same((*wide)[0], (*narrow)[0]))
        << fmt::format("B {} Nk {} G {} S {} T {} D {} / {} Dv {} / {}", B, Nk, G, S, T, D, group,
                       Dv, value_group);
  }
}

TEST(AttentionQuantizedTest, TablesAgree) {
  std::vector<const AttentionKernels*> tables = {&AttentionIsa()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(Avx2Attention());
  }
#endif
  Rng rng(8);
  for (int i = 0; i < 100; ++i) {
    const int64_t heads = 1 + rng() % 9, rows = 1 + rng() % 70, group = Pick(rng, {16, 32, 64});
    const int64_t size = group * Pick(rng, {1, 2, 3, 4});
    const Tensor values = Bytes(rng, {rows, size}), scales = Floats(rng, {rows, size / group});
    const Tensor queries = Floats(rng, {heads, size});
    RowBlock block = {values.data(), Storage::kNative, size, rows, size};
    block.scales = scales.span<float>().data();
    block.scale_stride = size / group;
    block.group = group;
    const int64_t ld = rows + 3;
    const auto run = [&](const AttentionKernels& ops) {
      Tensor scores = Tensor::Zeros(TensorProto::FLOAT, {heads, ld});
      Tensor out = Tensor::Zeros(TensorProto::FLOAT, {heads, size});
      ops.scores(block, queries.span<float>().data(), heads, scores.span<float>().data(), ld);
      ops.values(block, scores.span<float>().data(), ld, heads, out.span<float>().data());
      return std::pair(scores, out);
    };
    const auto generic = run(GenericAttention());
    for (const AttentionKernels* ops : tables) {
      if (ops == nullptr) continue;
      const auto fast = run(*ops), first = run(*tables[0]);
      EXPECT_TRUE(Same(fast.first, first.first) && Same(fast.second, first.second));
      for (int64_t k = 0; k < fast.first.size(); ++k) {
        const double expected = generic.first.span<float>()[k];
        ASSERT_NEAR(fast.first.span<float>()[k], expected, 1e-2 + 1e-4 * std::fabs(expected));
      }
      for (int64_t k = 0; k < fast.second.size(); ++k) {
        const double expected = generic.second.span<float>()[k];
        ASSERT_NEAR(fast.second.span<float>()[k], expected, 10 + 1e-2 * std::fabs(expected));
      }
    }
  }
}

constexpr char kModel[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,4,S,32] q, int8[B,2,S,32] k, float[B,2,S,2] ks, int64[B] at, int64[B] valid,
   int64[1] end, int8[B,2,M,32] pk, float[B,2,M,2] ps)
=> (float[B,4,S,32] y, int8[B,2,M,32] nk, float[B,2,M,2] ns)
<int64[1] none = {0}, int64[1] two = {2}>
{
  nk = TensorScatter <axis = 2> (pk, k, at)
  ns = TensorScatter <axis = 2> (ps, ks, at)
  k_rows = Slice (nk, none, end, two)
  s_rows = Slice (ns, none, end, two)
  keys = DequantizeLinear <axis = 3, block_size = 16> (k_rows, s_rows)
  values = DequantizeLinear <axis = -1, block_size = 16> (k_rows, s_rows)
  y = Attention <is_causal = 1> (q, keys, values, , , , valid)
})";

// One scale for all keys, and one for each element of each head of the values.
constexpr char kConstantScales[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,4,S,32] q, int8[B,2,S,32] k, int64[B] at, int64[B] valid, int64[1] end,
   int8[B,2,M,32] pk)
=> (float[B,4,S,32] y, int8[B,2,M,32] nk)
<int64[1] none = {0}, int64[1] two = {2}, float step = {0.03}, float unit = {1}, CHANNELS>
{
  nk = TensorScatter <axis = 2> (pk, k, at)
  k_rows = Slice (nk, none, end, two)
  keys = DequantizeLinear (k_rows, step)
  wide = DequantizeLinear (k_rows, unit)
  values = Mul (wide, by_channel)
  y = Attention <is_causal = 1> (q, keys, values, , , , valid)
})";

TEST(AttentionQuantizedTest, ConstantScalesAreTakenIn) {
  Rng rng(6);
  std::string numbers = "float[1,2,1,32] by_channel = {";
  for (int k = 0; k < 64; ++k) numbers += fmt::format("{}{}", k > 0 ? ", " : "", 0.01 + 0.002 * k);
  std::string text = kConstantScales;
  const std::string_view place = "CHANNELS";
  text.replace(text.find(place), place.size(), numbers + "}");
  const auto model = ParseModelText(text);
  ASSERT_TRUE(model.ok()) << model.status();
  auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*model));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  Feeds feeds;
  const auto int64s = [](std::vector<int64_t> x) {
    return Tensor::From<int64_t>(TensorProto::INT64, {static_cast<int64_t>(x.size())}, x);
  };
  feeds["q"] = Floats(rng, {2, 4, 3, 32});
  feeds["k"] = Bytes(rng, {2, 2, 3, 32});
  feeds["pk"] = Bytes(rng, {2, 2, 50, 32});
  feeds["at"] = int64s({4, 20});
  feeds["valid"] = int64s({7, 23});
  feeds["end"] = int64s({23});
  std::vector<Tensor> results;
  for (const bool fuse : {false, true}) {
    CompileOptions options;
    options.order = Order::kFast;
    options.fuse = fuse;
    const auto program = Program::Compile(shared, options);
    ASSERT_TRUE(program.ok()) << program.status();
    const Graph& compiled = (*program)->graph();
    int read = 0;
    for (NodeId n = 0; n < compiled.num_nodes(); ++n) {
      read += compiled.Is(n, "DequantizeLinear") || compiled.Is(n, "Mul") ? 1 : 0;
    }
    EXPECT_EQ(read, fuse ? 0 : 3);
    Session session(*program);
    Fetches fetches;
    const absl::Status status = session.Step(feeds, &fetches);
    ASSERT_TRUE(status.ok()) << status;
    results.push_back(fetches.at("y").Clone());
  }
  EXPECT_TRUE(Same(results[0], results[1]));
}

TEST(AttentionQuantizedTest, ProgramsReadCachesInPlace) {
  Rng rng(4);
  const auto model = ParseModelText(kModel);
  ASSERT_TRUE(model.ok()) << model.status();
  auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*model));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  Feeds feeds;
  feeds["q"] = Floats(rng, {2, 4, 3, 32});
  feeds["k"] = Bytes(rng, {2, 2, 3, 32});
  feeds["ks"] = Floats(rng, {2, 2, 3, 2});
  feeds["pk"] = Bytes(rng, {2, 2, 50, 32});
  feeds["ps"] = Floats(rng, {2, 2, 50, 2});
  const auto int64s = [](std::vector<int64_t> x) {
    return Tensor::From<int64_t>(TensorProto::INT64, {static_cast<int64_t>(x.size())}, x);
  };
  feeds["at"] = int64s({4, 20});
  feeds["valid"] = int64s({7, 23});
  feeds["end"] = int64s({23});
  std::vector<Tensor> results;
  for (const bool fuse : {false, true}) {
    CompileOptions options;
    options.order = Order::kFast;
    options.fuse = fuse;
    const auto program = Program::Compile(shared, options);
    ASSERT_TRUE(program.ok()) << program.status();
    const Graph& compiled = (*program)->graph();
    int dequantize = 0;
    for (NodeId n = 0; n < compiled.num_nodes(); ++n) {
      dequantize += compiled.Is(n, "DequantizeLinear") ? 1 : 0;
    }
    EXPECT_EQ(dequantize, fuse ? 0 : 2);
    Session session(*program);
    Fetches fetches;
    const absl::Status status = session.Step(feeds, &fetches);
    ASSERT_TRUE(status.ok()) << status;
    results.push_back(fetches.at("y").Clone());
  }
  EXPECT_TRUE(Same(results[0], results[1]));
  // The canonical order sums otherwise, and joins nothing.
  CompileOptions canonical;
  canonical.fuse = true;
  const auto program = Program::Compile(shared, canonical);
  ASSERT_TRUE(program.ok()) << program.status();
  Session session(*program);
  Fetches fetches;
  ASSERT_TRUE(session.Step(feeds, &fetches).ok());
  for (int64_t i = 0; i < results[0].size(); ++i) {
    ASSERT_NEAR(fetches.at("y").span<float>()[i], results[0].span<float>()[i], 1e-3);
  }
}

}  // namespace
}  // namespace kvlift::exec
