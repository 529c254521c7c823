// LIBS: exec
// Attention over int8 caches: the same bits as over rows that were widened before, or, where sums
// of integers are used, as close to what is asked for.
#include "exec/kernels/attention/attention_quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/kernel_harness.h"
#include "exec/kernels/attention/attention_isa.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "onnxio/model/model.h"

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

// Attention and its fused form over the same caches.
struct Pair {
  Pair(Rng& rng, std::vector<int64_t> queries) {
    const int64_t Nk = 1 + rng() % 3;
    B = 1 + rng() % 2;
    G = Pick(rng, {1, 2, 3, 4, 5, 8});
    S = Pick(rng, std::move(queries));
    const int64_t T = S + Pick(rng, {0, 3, 60, 511, 512, 1100});
    group = Pick(rng, {4, 16, 32, 32, 64});
    value_group = Pick(rng, {8, 16, 32});
    const int64_t D = group * (1 + rng() % 4), Dv = value_group * (1 + rng() % 3);
    q = Floats(rng, {B, Nk * G, S, D});
    k = Bytes(rng, {B, Nk, T, D});
    v = Bytes(rng, {B, Nk, T, Dv});
    ks = Floats(rng, {B, Nk, T, D / group});
    vs = Floats(rng, {B, Nk, T, Dv / value_group});
    lengths = Tensor(TensorProto::INT64, {B});
    for (int64_t& n : lengths.span<int64_t>()) n = S + static_cast<int64_t>(rng() % (T - S + 1));
    if (rng() % 3 == 0) mask = Floats(rng, {S, T});
    if (rng() % 4 == 0) softcap = 20;
    shapes = fmt::format("B {} Nk {} G {} S {} T {} D {} / {} Dv {} / {}", B, Nk, G, S, T, D, group,
                         Dv, value_group);
  }
  OpRun Call(bool quantized) const {
    OpRun call(quantized ? std::string(kQuantizedAttention) : "Attention", 24,
               quantized ? std::string(kFusedDomain) : "");
    call.Int("is_causal", 1).Float("softcap", softcap).Fast();
    if (quantized) call.Int(kKeyGroup, group).Int(kValueGroup, value_group);
    return call;
  }
  Tensor Narrow(int threads = 2) const {
    return Result(Call(true).Threads(threads), {q, k, v, mask, {}, {}, lengths, ks, vs});
  }
  Tensor Wide() const {
    return Result(Call(false),
                  {q, Widened(k, ks, group), Widened(v, vs, value_group), mask, {}, {}, lengths});
  }
  // In double, from the widened rows.
  Tensor Exact() const {
    return Result(Call(false).Fast(false), {Doubles(q),
                                            Doubles(Widened(k, ks, group)),
                                            Doubles(Widened(v, vs, value_group)),
                                            Doubles(mask),
                                            {},
                                            {},
                                            lengths});
  }
  static Tensor Doubles(const Tensor& x) {
    if (x.empty()) return x;
    Tensor out(TensorProto::DOUBLE, x.shape());
    for (int64_t i = 0; i < x.size(); ++i) out.span<double>()[i] = x.span<float>()[i];
    return out;
  }
  static Tensor Result(const OpRun& call, const std::vector<Tensor>& inputs) {
    const auto results = call.Run(inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? (*results)[0] : Tensor();
  }

  int64_t B, G, S, group, value_group;
  float softcap = 0;
  Tensor q, k, v, ks, vs, mask, lengths;
  std::string shapes;
};

// The table that sums integers, if this process uses it.
const AttentionKernels* Dots() {
#if defined(__x86_64__)
  // The table itself is made with instructions that it is for.
  if (__builtin_cpu_supports("avx512vnni") && &AttentionIsa() == VnniAttention()) {
    return VnniAttention();
  }
#endif
  return nullptr;
}
bool SumsIntegers() { return Dots() != nullptr; }

TEST(AttentionQuantizedTest, GivesTheBitsOfWidenedRows) {
  Rng rng(3);
  for (int i = 0; i < 120; ++i) {
    // A tile of rows is widened for many queries, whatever the instruction set.
    const Pair pair(rng, SumsIntegers() ? std::vector<int64_t>{17, 40}
                                        : std::vector<int64_t>{1, 1, 1, 2, 7, 40});
    ASSERT_TRUE(Same(pair.Wide(), pair.Narrow())) << pair.shapes;
  }
}

void TakeAbsolutes(Tensor* t) {
  for (float& x : t->span<float>()) x = std::fabs(x);
}

// Scales are positive, as quantisers make them; others are left to sums of floats.
TEST(AttentionQuantizedTest, IsAsCloseAsWidenedRows) {
  Rng rng(4);
  double of_wide = 0, of_narrow = 0;
  for (int i = 0; i < 240; ++i) {
    Pair pair(rng, {1, 1, 1, 2, 4});
    TakeAbsolutes(&pair.vs);
    if (i % 2 == 0) TakeAbsolutes(&pair.ks);
    // Scores around 1: large ones would leave one key, whose value any sum gives.
    for (float& x : pair.ks.span<float>()) x *= 0.002f;
    const Tensor exact = pair.Exact(), wide = pair.Wide(), narrow = pair.Narrow();
    double largest = 0, wide_error = 0, narrow_error = 0;
    for (int64_t k = 0; k < exact.size(); ++k) {
      const double y = exact.span<double>()[k];
      largest = std::max(largest, std::fabs(y));
      wide_error = std::max(wide_error, std::fabs(wide.span<float>()[k] - y));
      narrow_error = std::max(narrow_error, std::fabs(narrow.span<float>()[k] - y));
    }
    ASSERT_LE(narrow_error, 3e-6 * largest) << pair.shapes;
    of_wide += wide_error / largest;
    of_narrow += narrow_error / largest;
  }
  EXPECT_LE(of_narrow, of_wide);
  RecordProperty("of_narrow", std::to_string(of_narrow));
  RecordProperty("of_wide", std::to_string(of_wide));
}

TEST(AttentionQuantizedTest, ThreadsGiveTheSameBits) {
  Rng rng(5);
  for (int i = 0; i < 40; ++i) {
    Pair pair(rng, {1, 3});
    if (i % 2 == 0) TakeAbsolutes(&pair.vs);
    ASSERT_TRUE(Same(pair.Narrow(1), pair.Narrow(2))) << pair.shapes;
  }
}

// Rows of int8 and what reads them.
struct Rows {
  Rows(Rng& rng, int64_t rows, int64_t groups, int64_t group, int64_t count)
      : heads(count), ld(rows + 3), size(groups * group) {
    bytes = Bytes(rng, {rows, size});
    scales = Floats(rng, {rows, groups});
    queries = Floats(rng, {heads, size});
    weights = Floats(rng, {heads, ld});
    block = {bytes.data(), Storage::kNative, size, rows, size};
    block.scales = scales.span<float>().data();
    block.scale_stride = groups;
    block.group = group;
  }
  float* scale(int64_t i) { return &scales.span<float>()[i]; }
  Tensor Scores(const AttentionKernels& ops) const {
    Tensor out = Tensor::Zeros(TensorProto::FLOAT, {heads, ld});
    ops.scores(block, queries.span<float>().data(), heads, out.span<float>().data(), ld);
    return out;
  }
  Tensor Sums(const AttentionKernels& ops) const {
    Tensor out = Tensor::Zeros(TensorProto::FLOAT, {heads, size});
    ops.values(block, weights.span<float>().data(), ld, heads, out.span<float>().data());
    return out;
  }

  int64_t heads, ld, size;
  Tensor bytes, scales, queries, weights;
  RowBlock block;
};

std::vector<const AttentionKernels*> FloatTables() {
  std::vector<const AttentionKernels*> tables = {&GenericAttention()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(Avx2Attention());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    tables.push_back(Avx512Attention());
  }
#endif
  std::erase(tables, nullptr);
  return tables;
}

void ExpectNear(const Tensor& got, const Tensor& expected, double absolute, double relative) {
  for (int64_t k = 0; k < got.size(); ++k) {
    const double x = expected.span<float>()[k];
    ASSERT_NEAR(got.span<float>()[k], x, absolute + relative * std::fabs(x));
  }
}

TEST(AttentionQuantizedTest, TablesAgree) {
  const std::vector<const AttentionKernels*> tables = FloatTables();
  Rng rng(8);
  for (int i = 0; i < 100; ++i) {
    const Rows rows(rng, 1 + rng() % 70, Pick(rng, {1, 2, 3, 4}), Pick(rng, {16, 32, 64}),
                    1 + rng() % 9);
    for (size_t t = 1; t < tables.size(); ++t) {
      EXPECT_TRUE(Same(rows.Scores(*tables[t]), rows.Scores(*tables[1])));
      EXPECT_TRUE(Same(rows.Sums(*tables[t]), rows.Sums(*tables[1])));
      ExpectNear(rows.Scores(*tables[t]), rows.Scores(*tables[0]), 1e-2, 1e-4);
      ExpectNear(rows.Sums(*tables[t]), rows.Sums(*tables[0]), 1e-2, 1e-4);
    }
  }
}

// What is asked of sums of integers: the error of each is a part of the largest terms that
// belong together, of one segment or of one tile and group.
TEST(AttentionQuantizedTest, SumsOfIntegersAreClose) {
  if (!SumsIntegers()) GTEST_SKIP() << "no such instructions";
  Rng rng(9);
  for (int i = 0; i < 200; ++i) {
    const int64_t group = Pick(rng, {16, 32, 48, 64, 128});
    Rows rows(rng, 16 + rng() % 300, 1 + rng() % std::min<int64_t>(8, 512 / group), group,
              1 + rng() % 20);
    TakeAbsolutes(&rows.weights);
    TakeAbsolutes(&rows.scales);
    const Tensor scores = rows.Scores(*Dots()), sums = rows.Sums(*Dots());
    const auto weight = [&](int64_t h, int64_t t) {
      return double{rows.weights.span<float>()[h * rows.ld + t]};
    };
    for (int64_t h = 0; h < rows.heads; ++h) {
      const float* q = &rows.queries.span<float>()[h * rows.size];
      double largest = 0;
      for (int64_t d = 0; d < rows.size; ++d) largest = std::max<double>(largest, std::fabs(q[d]));
      std::vector<double> sum(static_cast<size_t>(rows.size)), all(sum.size());
      for (int64_t t = 0; t < rows.block.rows; ++t) {
        double score = 0, most = 0;
        for (int64_t d = 0; d < rows.size; ++d) {
          const double x = double{*rows.scale((t * rows.size + d) / group)} *
                           rows.bytes.span<int8_t>()[t * rows.size + d];
          score += q[d] * x;
          most += largest * std::fabs(x);
          sum[d] += weight(h, t) * x;
          all[d] += std::fabs(weight(h, t) * x);
        }
        ASSERT_NEAR(scores.span<float>()[h * rows.ld + t], score, 0x1p-23 * most);
      }
      // Nothing behind the last row is touched.
      ASSERT_EQ(scores.span<float>()[h * rows.ld + rows.block.rows], 0);
      for (int64_t d = 0; d < rows.size; ++d) {
        ASSERT_NEAR(sums.span<float>()[h * rows.size + d], sum[static_cast<size_t>(d)],
                    0x1p-21 * all[static_cast<size_t>(d)]);
      }
    }
  }
}

TEST(AttentionQuantizedTest, WhatSumsOfIntegersCannotHoldIsSummedInFloats) {
  if (!SumsIntegers()) GTEST_SKIP() << "no such instructions";
  const float inf = std::numeric_limits<float>::infinity();
  Rng rng(10);
  for (float odd : {inf, -inf, std::nanf(""), 1e30f, -1.0f}) {
    Rows rows(rng, 100, 2, 32, 4);
    TakeAbsolutes(&rows.weights);
    TakeAbsolutes(&rows.scales);
    *rows.scale(77) = odd;
    const AttentionKernels &dots = *Dots(), &floats = *FloatTables().back();
    EXPECT_TRUE(Same(rows.Sums(dots), rows.Sums(floats))) << odd;
    EXPECT_TRUE(odd == -1.0f || Same(rows.Scores(dots), rows.Scores(floats))) << odd;
    *rows.scale(77) = 1;
    rows.weights.span<float>()[3] = odd;
    EXPECT_TRUE(Same(rows.Sums(dots), rows.Sums(floats))) << odd;
    rows.queries.span<float>()[70] = odd;
    EXPECT_TRUE(odd == -1.0f || Same(rows.Scores(dots), rows.Scores(floats))) << odd;
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

Tensor Int64s(const std::vector<int64_t>& x) {
  return Tensor::From<int64_t>(TensorProto::INT64, {static_cast<int64_t>(x.size())}, x);
}

// y of a step in order fast with every node by itself, where so many are of these operators, and
// with those taken in.
void RunBothWays(const std::shared_ptr<const Graph>& graph, const Feeds& feeds,
                 const std::vector<std::string>& ops, int alone, std::vector<Tensor>* results) {
  for (const bool fuse : {false, true}) {
    CompileOptions options;
    options.order = Order::kFast;
    options.fuse = fuse;
    const auto program = Program::Compile(graph, options);
    ASSERT_TRUE(program.ok()) << program.status();
    const Graph& compiled = (*program)->graph();
    int count = 0;
    for (NodeId n = 0; n < compiled.num_nodes(); ++n) {
      for (const std::string& op : ops) count += compiled.Is(n, op) ? 1 : 0;
    }
    EXPECT_EQ(count, fuse ? 0 : alone);
    Session session(*program);
    Fetches fetches;
    const absl::Status status = session.Step(feeds, &fetches);
    ASSERT_TRUE(status.ok()) << status;
    results->push_back(fetches.at("y").Clone());
  }
}

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
  feeds["q"] = Floats(rng, {2, 4, 3, 32});
  feeds["k"] = Bytes(rng, {2, 2, 3, 32});
  feeds["pk"] = Bytes(rng, {2, 2, 50, 32});
  feeds["at"] = Int64s({4, 20});
  feeds["valid"] = Int64s({7, 23});
  feeds["end"] = Int64s({23});
  std::vector<Tensor> results;
  ASSERT_NO_FATAL_FAILURE(RunBothWays(shared, feeds, {"DequantizeLinear", "Mul"}, 3, &results));
  ExpectNear(results[1], results[0], 1e-5, 1e-5);
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
  feeds["at"] = Int64s({4, 20});
  feeds["valid"] = Int64s({7, 23});
  feeds["end"] = Int64s({23});
  std::vector<Tensor> results;
  ASSERT_NO_FATAL_FAILURE(RunBothWays(shared, feeds, {"DequantizeLinear"}, 2, &results));
  EXPECT_TRUE(SumsIntegers() || Same(results[0], results[1]));
  ExpectNear(results[1], results[0], 1e-5, 1e-5);
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
