// LIBS: exec onnxio
// Where values live and when shapes are found: sharing memory, and keeping what an earlier step
// knew, change no value.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "exec/memory/arena.h"
#include "exec/memory/memory.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt64 = onnx::TensorProto::INT64;

std::shared_ptr<const Program> Compile(const std::string& graph, CompileOptions options = {}) {
  const auto model =
      ParseModelText(fmt::format("<ir_version: 10, opset_import: [\"\": 24]>\n{}", graph));
  if (!model.ok()) {
    ADD_FAILURE() << model.status() << graph;
    return nullptr;
  }
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  if (!built.ok()) {
    ADD_FAILURE() << built.status();
    return nullptr;
  }
  auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), options);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(kFloat, std::move(shape), values);
}
Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(kInt64, {static_cast<int64_t>(values.size())}, values);
}
Tensor Counting(Shape shape, float first = 1) {
  Tensor t = Tensor::Zeros(kFloat, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) t.span<float>()[i] = first + static_cast<float>(i);
  return t;
}
std::vector<float> Values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

TEST(ArenaTest, BlocksThatLiveTogetherDoNotOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks(1 + random() % 60);
    size_t largest = 0, sum = 0;
    for (Block& block : blocks) {
      block.bytes = random() % 4 == 0 ? 0 : random() % 5000;
      block.first = static_cast<int>(random() % 40);
      block.last = block.first + static_cast<int>(random() % 10);
    }
    std::vector<size_t> offsets;
    const size_t total = PackArena(blocks, &offsets);
    for (int step = 0; step < 50; ++step) {
      size_t live = 0;
      for (const Block& b : blocks) live += b.first <= step && step <= b.last ? b.bytes : 0;
      largest = std::max(largest, live);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      sum += (blocks[i].bytes + 63) / 64 * 64;
      EXPECT_EQ(offsets[i] % kArenaAlignment, 0u);
      EXPECT_LE(offsets[i] + blocks[i].bytes, total);
      for (size_t k = 0; k < i; ++k) {
        if (blocks[i].last < blocks[k].first || blocks[k].last < blocks[i].first) continue;
        EXPECT_TRUE(offsets[i] + blocks[i].bytes <= offsets[k] ||
                    offsets[k] + blocks[k].bytes <= offsets[i] || blocks[i].bytes == 0 ||
                    blocks[k].bytes == 0);
      }
    }
    EXPECT_GE(total, largest);
    EXPECT_LE(total, sum);
  }
}

// The output of a session that has seen other steps equals that of a fresh one.
void ExpectAsFresh(const std::shared_ptr<const Program>& program, const std::vector<Feeds>& steps) {
  Session session(program);
  for (size_t i = 0; i < steps.size(); ++i) {
    Session fresh(program);
    Fetches got, expected;
    const absl::Status status = session.Step(steps[i], &got);
    ASSERT_TRUE(fresh.Step(steps[i], &expected).ok());
    ASSERT_TRUE(status.ok()) << status << " in step " << i;
    for (const auto& [name, tensor] : expected) {
      ASSERT_EQ(got[name].shape(), tensor.shape()) << name << " in step " << i;
      const auto bytes = static_cast<size_t>(tensor.view().bytes());
      ASSERT_TRUE(bytes == 0 || std::memcmp(got[name].data(), tensor.data(), bytes) == 0)
          << name << " in step " << i;
    }
  }
}

TEST(ExecPlan, ShapesThatDependOnElementsAreFoundAnew) {
  const auto program = Compile(
      R"(g (float[8,4] x, int64[1] n) => (float[m,4] cut, int64[k] counted, float[m,r,4] wide,
             float[a,b] turned, float[m,4] again, float[1,8,4] whole) {
        one = Constant<value = int64 {1}>()
        zero = Constant<value = int64 {0}>()
        first = Constant<value = int64[1] {0}>()
        more = Add(n, one)
        cut = Slice(x, first, more)
        scalar = Squeeze(n)
        counted = Range(zero, scalar, one)
        flat = Unsqueeze(cut, unit)
        unit = Constant<value = int64[1] {1}>()
        ones = Constant<value = int64[1] {1}>()
        target = Concat<axis = 0>(ones, more, ones)
        wide = Expand(flat, target)
        shape = Shape(cut)
        back = Gather(shape, flip)
        flip = Constant<value = int64[2] {1, 0}>()
        turned = Reshape(cut, back)
        rows = Slice(x, n, last)
        last = Constant<value = int64[1] {8}>()
        back_rows = Neg(rows)
        padded = Concat<axis = 0>(back_rows, cut)
        start = Sub(last, n)
        again = Slice(padded, start, far)
        far = Constant<value = int64[1] {100}>()
        up = Unsqueeze(x, none)
        none = Constant<value = int64[1] {0}>()
        whole = Neg(up)
      })");
  std::vector<Feeds> steps;
  for (const int64_t n : {2, 3, 3, 0, 7, 1, 1, 7}) {
    steps.push_back({{"x", Counting({8, 4}, static_cast<float>(n))}, {"n", Int64s({n})}});
  }
  ExpectAsFresh(program, steps);
}

TEST(ExecPlan, ShapesThatDependOnResults) {
  const auto program = Compile(
      R"(g (float[n] x) => (float[1,k] y, float[1] total, float[n] same) {
        soft = Softmax(x)
        same = Sub(x, soft)
        picked = NonZero(same)
        y0 = Gather(same, picked)
        y = Abs(y0)
        total = ReduceSum(y, axes)
        axes = Constant<value = int64[1] {1}>()
      })");
  std::vector<Feeds> steps;
  for (const auto& x : std::vector<std::vector<float>>{{1}, {3, 0, 1}, {0, 0}, {5, 6, 7, 8}, {1}}) {
    steps.push_back({{"x", Floats({static_cast<int64_t>(x.size())}, x)}});
  }
  ExpectAsFresh(program, steps);
}

TEST(ExecPlan, AFailedStepLeavesNothingBehind) {
  const auto program = Compile(
      R"(g (float[n,4] x, int64[2] shape) => (float[a,b] y) {
        z = Neg(x)
        r = Reshape(z, shape)
        y = Abs(r)
      })");
  Session session(program);
  Fetches fetches;
  const auto feeds = [](int64_t rows, int64_t a, int64_t b) {
    return Feeds{{"x", Counting({rows, 4})}, {"shape", Int64s({a, b})}};
  };
  ASSERT_TRUE(session.Step(feeds(2, 4, 2), &fetches).ok());
  EXPECT_FALSE(session.Step(feeds(3, 4, 2), &fetches).ok());
  ASSERT_TRUE(session.Step(feeds(3, 2, 6), &fetches).ok());
  EXPECT_EQ(fetches["y"].shape(), Shape({2, 6}));
  EXPECT_EQ(Values(fetches["y"]), Values(Counting({2, 6})));
}

TEST(ExecPlan, AViewOfThePresentSeesTheWriteAndOneOfThePastDoesNot) {
  CompileOptions options;
  options.caches = {{"past", "present"}};
  options.alias = AliasMode::kRequired;
  const auto program = Compile(
      R"(g (float[1,4,2] past, float[1,1,2] x, int64[1] at)
          => (float[1,4,2] present, float[1,2,2] old, float[1,2,2] fresh) {
        zero = Constant<value = int64[1] {0}>()
        one = Constant<value = int64[1] {1}>()
        two = Constant<value = int64[1] {2}>()
        before = Slice(past, zero, two, one)
        present = TensorScatter<axis = 1>(past, x, at)
        after = Slice(present, zero, two, one)
        fresh = Neg(after)
        old = Neg(before)
      })",
      options);
  Session session(program);
  ASSERT_TRUE(session.SetCache("past", Counting({1, 4, 2})).ok());
  Fetches fetches;
  ASSERT_TRUE(
      session.Step({{"x", Floats({1, 1, 2}, {50, 60})}, {"at", Int64s({1})}}, &fetches).ok());
  EXPECT_THAT(Values(fetches["old"]), ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT(Values(fetches["fresh"]), ElementsAre(-1, -2, -50, -60));
}

TEST(ExecPlan, MemoryIsWhatThePlanSays) {
  const auto program = Compile(
      R"(g (float[n,64] x, float[1,8,64] past, int64[1] at)
          => (float[1,8,64] present, float[n,64] y, int64[2] shape) {
        a = Neg(x)
        b = Exp(a)
        c = Add(b, x)
        d = Mul(c, b)
        e = Sub(d, c)
        picked = NonZero(e)
        counts = Shape(picked)
        zero = Constant<value = int64[1] {0}>()
        one = Constant<value = int64[1] {1}>()
        row0 = Slice(x, zero, one, zero)
        row = Unsqueeze(row0, zero)
        present = TensorScatter<axis = 1>(past, row, at)
        shape = Shape(e)
        flat = Constant<value = int64[1] {-1}>()
        f = Reshape(e, flat)
        g0 = Abs(f)
        y = Reshape(g0, shape)
      })",
      [] {
        CompileOptions options;
        options.caches = {{"past", "present"}};
        return options;
      }());
  // a, b, c in turn, at most three of them at a time: exp and d take over a block.
  const auto row = static_cast<int64_t>(64 * sizeof(float));
  for (const bool small_first : {true, false}) {
    std::vector<Feeds> steps;
    for (const int64_t n : {7, 2, 7, 30}) {
      steps.push_back({{"x", Counting({small_first ? n : 32 - n, 64}, 0)}, {"at", Int64s({1})}});
    }
    steps[0]["past"] = Counting({1, 8, 64});
    const int64_t before = AllocatedBytes();
    Session session(program);
    int64_t largest = 0;
    for (const Feeds& feeds : steps) {
      Fetches fetches;
      ASSERT_TRUE(session.Step(feeds, &fetches).ok());
      fetches.clear();
      largest = std::max(largest, feeds.at("x").shape()[0]);
      const MemoryUse use = session.memory();
      EXPECT_EQ(AllocatedBytes() - before, use.total());
      EXPECT_GE(use.arena, 2 * largest * row);
      EXPECT_LE(use.arena, 3 * largest * row * 5 / 4 + 1024);  // a quarter of room to grow
    }
  }
}

TEST(ExecPlan, TransposesOfAnyExtentAndElement) {
  const Shape dims = {3, 37, 50};
  for (const auto& [type, bytes] : std::vector<std::pair<std::string, int64_t>>{
           {"uint8", 1}, {"float16", 2}, {"float", 4}, {"double", 8}}) {
    std::vector<int64_t> perm = {0, 1, 2};
    do {
      const auto program = Compile(
          fmt::format("g ({}[3,37,50] x) => ({}[a,b,c] y) {{ y = Transpose<perm = [{}, {}, {}]>(x) "
                      "}}",
                      type, type, perm[0], perm[1], perm[2]));
      const int32_t id = program->graph().type(program->graph().graph_inputs()[0]).elem_type;
      Tensor x = Tensor::Zeros(id, dims);
      for (int64_t i = 0; i < x.size() * bytes; ++i) x.data()[i] = static_cast<std::byte>(i * 37);
      Session session(program);
      Fetches fetches;
      ASSERT_TRUE(session.Step({{"x", x}}, &fetches).ok());
      const Shape shape = {dims[perm[0]], dims[perm[1]], dims[perm[2]]};
      ASSERT_EQ(fetches["y"].shape(), shape);
      int64_t strides[3] = {37 * 50, 50, 1};
      int64_t wrong = 0, at = 0;
      for (int64_t i = 0; i < shape[0]; ++i) {
        for (int64_t j = 0; j < shape[1]; ++j) {
          for (int64_t k = 0; k < shape[2]; ++k, ++at) {
            const int64_t from = i * strides[perm[0]] + j * strides[perm[1]] + k * strides[perm[2]];
            wrong += std::memcmp(fetches["y"].data() + at * bytes, x.data() + from * bytes,
                                 static_cast<size_t>(bytes)) != 0;
          }
        }
      }
      EXPECT_EQ(wrong, 0) << type << " " << fmt::format("{} {} {}", perm[0], perm[1], perm[2]);
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
}

// Random graphs on [n, 4] with views, parts and in-place results. The same graph with every value
// as an output keeps each in memory of its own.
class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937& random) : random_(random) {
    for (int i = 0; i < 16; ++i) Add(fmt::format("v{}", i));
  }
  std::string Text(bool all) const {
    std::string outputs = "float[n,4] y";
    if (all) {
      for (const std::string& v : values_) {
        if (v != "x") outputs += fmt::format(", float[n,4] {}", v);
      }
    }
    return fmt::format(R"(g (float[n,4] x) => ({}) {{
      zero = Constant<value = int64[1] {{0}}>()
      one = Constant<value = int64[1] {{1}}>()
      two = Constant<value = int64[1] {{2}}>()
      many = Constant<value = int64[1] {{1000}}>()
      flat = Constant<value = int64[1] {{-1}}>()
      wide = Constant<value = int64[2] {{-1, 4}}>()
      {}
      y = Sub({}, {})
    }})",
                       outputs, nodes_, values_.back(), values_[values_.size() / 2]);
  }

 private:
  std::string Pick() { return values_[random_() % values_.size()]; }

  void Add(const std::string& v) {
    const std::string a = Pick(), b = Pick();
    switch (random_() % 9) {
      case 0:
        nodes_ += fmt::format("{0}_f = Reshape({1}, flat)\n{0} = Reshape({0}_f, wide)\n", v, a);
        break;
      case 1:
        nodes_ += fmt::format("{} = Neg({})\n", v, a);
        break;
      case 2:
        nodes_ += fmt::format(
            "{0}_t = Transpose<perm = [1, 0]>({1})\n{0}_n = Abs({0}_t)\n"
            "{0} = Transpose<perm = [1, 0]>({0}_n)\n",
            v, a);
        break;
      case 3:
        nodes_ += fmt::format(
            "{0}_h, {0}_t = Split<axis = 1, num_outputs = 2>({1})\n"
            "{0} = Concat<axis = 1>({0}_t, {0}_h)\n",
            v, a);
        break;
      case 4:
        nodes_ += fmt::format(
            "{0}_h = Slice({1}, zero, one, zero)\n{0}_t = Slice({1}, one, many, zero)\n"
            "{0}_r = Concat<axis = 0>({0}_t, {0}_h)\n{0} = Add({0}_r, {2})\n",
            v, a, b);
        break;
      case 5:
        nodes_ += fmt::format(
            "{0}_u = Unsqueeze({1}, zero)\n{0}_p = Transpose<perm = [1, 0, 2]>({0}_u)\n"
            "{0}_q = Neg({0}_p)\n{0} = Squeeze({0}_q, one)\n",
            v, a);
        break;
      case 6:
        nodes_ += fmt::format(
            "{0}_s = Shape({1})\n{0}_m = ReduceMean({1}, zero)\n{0} = Expand({0}_m, {0}_s)\n", v,
            a);
        break;
      default:
        nodes_ += fmt::format("{} = Add({}, {})\n", v, a, b);
    }
    values_.push_back(v);
  }

  std::mt19937& random_;
  std::vector<std::string> values_ = {"x"};
  std::string nodes_;
};

TEST(ExecPlan, SharedMemoryChangesNoValue) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const RandomGraph graph(random);
    const auto lean = Compile(graph.Text(false)), full = Compile(graph.Text(true));
    ASSERT_TRUE(lean != nullptr && full != nullptr);
    Session a(lean), b(full);
    for (const int64_t n : {3, 1, 1, 7, 2, 7, 40, 1}) {
      const Feeds feeds = {{"x", Counting({n, 4}, static_cast<float>(random() % 9) - 4)}};
      Fetches fetched_a, fetched_b;
      ASSERT_TRUE(a.Step(feeds, &fetched_a).ok());
      ASSERT_TRUE(b.Step(feeds, &fetched_b).ok());
      ASSERT_EQ(Values(fetched_a["y"]), Values(fetched_b["y"])) << graph.Text(false) << n;
    }
  }
}

TEST(ExecPlan, KeysAndValuesOfAttentionMayHaveAPitch) {
  EXPECT_EQ(FindOp("", "Attention", 24)->pitched_inputs, 0b110u);
}

// Rows [from, to) of dimension 2.
Tensor Rows(const Tensor& t, int64_t from, int64_t to) {
  const Shape& shape = t.shape();
  Tensor rows(kFloat, {shape[0], shape[1], to - from, shape[3]});
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    std::copy_n(t.span<float>().data() + (i * shape[2] + from) * shape[3], (to - from) * shape[3],
                rows.span<float>().data() + i * (to - from) * shape[3]);
  }
  return rows;
}

// A part of a cache is not copied for Attention, which takes its heads a pitch apart; all others
// see it dense.
TEST(ExecPlan, AttentionReadsTheVisibleRowsOfACacheWhereTheyLie) {
  const char* const kSliced = R"(
    g (float[b,4,s,16] q, float[b,2,m,16] k, float[b,2,m,16] v, int64[1] from, int64[1] to)
      => (float[b,4,s,16] y) {
      axis = Constant<value = int64[1] {2}>()
      kk = Slice(k, from, to, axis)
      vv = Slice(v, from, to, axis)
      y = Attention(q, kk, vv)
    })";
  const char* const kPlain = R"(
    g (float[b,4,s,16] q, float[b,2,m,16] k, float[b,2,m,16] v) => (float[b,4,s,16] y) {
      y = Attention(q, k, v)
    })";
  for (const Order order : {Order::kCanonical, Order::kFast}) {
    CompileOptions options;
    options.order = order;
    const auto sliced = Compile(kSliced, options), plain = Compile(kPlain, options);
    Session session(sliced), dense(plain);
    struct Slice {
      int64_t batch, capacity, from, to;
    };
    for (const Slice& c : std::vector<Slice>{{2, 9, 0, 5},
                                             {2, 9, 0, 6},
                                             {2, 12, 2, 7},
                                             {1, 12, 0, 12},
                                             {2, 12, 3, 3},
                                             {2, 900, 1, 700}}) {
      Tensor q = Counting({c.batch, 4, 1, 16}), k = Counting({c.batch, 2, c.capacity, 16});
      for (Tensor* t : {&q, &k}) {
        for (float& x : t->span<float>()) x = std::sin(x);
      }
      const Tensor v = Counting({c.batch, 2, c.capacity, 16}, 5);
      std::map<std::string, Tensor> seen;
      session.set_observer([&](NodeId node, absl::Span<const View> outputs) {
        seen[sliced->graph().node(node).output(0)] = Tensor::Wrap(outputs[0], nullptr).Clone();
      });
      Fetches got, expected;
      ASSERT_TRUE(session
                      .Step({{"q", q},
                             {"k", k},
                             {"v", v},
                             {"from", Int64s({c.from})},
                             {"to", Int64s({c.to})}},
                            &got)
                      .ok());
      const Tensor rows = Rows(k, c.from, c.to);
      ASSERT_TRUE(
          dense.Step({{"q", q}, {"k", rows}, {"v", Rows(v, c.from, c.to)}}, &expected).ok());
      EXPECT_EQ(Values(got["y"]), Values(expected["y"]));
      EXPECT_EQ(seen["kk"].shape(), rows.shape());
      EXPECT_EQ(Values(seen["kk"]), Values(rows));
    }
  }
}

}  // namespace
}  // namespace kvlift::exec
