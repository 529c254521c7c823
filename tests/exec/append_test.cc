// LIBS: exec onnxio
// Caches that grow by Concat stay where they are while there is room.
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;

Tensor Int64s(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64, std::move(shape), values);
}
std::vector<float> Values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

// The cache is "past" and "present".
std::shared_ptr<const Program> CompileOneCache(const std::string& graph, AliasMode mode,
                                               bool fetch = true, int threads = 1) {
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\": 24]>\n" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  EXPECT_TRUE(built.ok()) << built.status();
  CompileOptions options;
  options.caches = {{"past", "present"}};
  options.alias = mode;
  options.fetch_caches = fetch;
  options.threads = threads;
  auto program = Program::Compile(std::make_shared<Graph>(*std::move(built)), options);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

// Where the rows of a cache follow each other, a Concat appends to it while there is room. The past
// stays what it was, for readers after the write and if the step fails.
TEST(ExecAppend, AGrowingCacheIsAppendedTo) {
  const auto run = [](AliasMode mode, int64_t batch, int* moves) {
    const auto program = CompileOneCache(
        "g (float[B,P,2] past, float[B,S,2] x, int64 row) => (float[B,T,2] present, float[B,2] r,"
        " float late) { present = Concat<axis = 1>(past, x)\n r = Gather<axis = 1>(present, row)\n"
        "all = ReduceSum<keepdims = 0>(present)\n old = ReduceSum<keepdims = 0>(past)\n"
        "late = Sub(all, old) }",
        mode);
    Session session(program);
    EXPECT_TRUE(session.SetCache("past", Tensor(kFloat, {batch, 0, 2})).ok());
    std::vector<float> seen;
    const std::byte* before = nullptr;
    *moves = 0;
    for (int step = 0; step < 40; ++step) {
      Tensor x(kFloat, {batch, 1 + step % 2, 2});
      for (int64_t i = 0; i < x.size(); ++i) {
        x.span<float>()[i] = static_cast<float>(100 * step + i);
      }
      Fetches fetches;
      if (step == 20) {  // fails behind the write
        EXPECT_FALSE(session.Step({{"x", x}, {"row", Int64s({}, {1000})}}, &fetches).ok());
        const auto kept = Values(*session.Cache("past"));
        seen.insert(seen.end(), kept.begin(), kept.end());
      }
      const absl::Status status = session.Step({{"x", x}, {"row", Int64s({}, {0})}}, &fetches);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return seen;
      for (const char* name : {"present", "r", "late"}) {
        const auto values = Values(fetches[name]);
        seen.insert(seen.end(), values.begin(), values.end());
      }
      *moves += fetches["present"].data() != before;
      before = fetches["present"].data();
    }
    // A shorter value in the same memory: the session's own stays until the step is done.
    const Tensor cache = *session.Cache("past");
    View view = cache.view();
    view.shape[1] = 2;
    Feeds feeds = {{"past", Tensor::Wrap(view, cache.storage())},
                   {"x", Tensor::Zeros(kFloat, {batch, 1, 2})},
                   {"row", Int64s({}, {1000})}};
    const auto values = Values(cache);
    Fetches fetches;
    EXPECT_FALSE(session.Step(feeds, &fetches).ok());
    EXPECT_EQ(Values(*session.Cache("past")), values);
    feeds["row"] = Int64s({}, {1});
    EXPECT_TRUE(session.Step(feeds, &fetches).ok());
    const auto present = Values(fetches["present"]);
    seen.insert(seen.end(), present.begin(), present.end());
    return seen;
  };
  for (const int64_t batch : {1, 2}) {
    int moves = 0;
    const std::vector<float> expected = run(AliasMode::kOff, batch, &moves);
    EXPECT_EQ(moves, 40);
    for (const AliasMode mode : {AliasMode::kAuto, AliasMode::kGuard, AliasMode::kPoison}) {
      EXPECT_EQ(run(mode, batch, &moves), expected) << static_cast<int>(mode);
      const bool appends = batch == 1 && mode != AliasMode::kGuard;
      EXPECT_EQ(moves < 20, appends) << moves << " of 40, mode " << static_cast<int>(mode);
    }
  }
}

// Readers of a cache [B, N, T, D] that take heads with room between them, each with what it gives.
struct Readers {
  const char* nodes;
  const char* outputs;
  bool apart;
};

constexpr Readers kReaders[] = {
    {"r = MatMul(w, present)", "float[B,N,S,D] r", true},
    {"t = Transpose<perm = [0, 1, 3, 2]>(present)\n r = MatMul(x, t)", "float[B,N,S,T] r", true},
    {"t = Transpose<perm = [0, 2, 1, 3]>(present)\n r = MatMul(w, present)",
     "float[B,T,N,D] t, float[B,N,S,D] r", true},
    {"u = Unsqueeze(present, two)\n e = Expand(u, wide)\n r = Reshape(e, heads)",
     "float[B,H,T,D] r", true},
    {"h = Reshape(present, merged)\n r = MatMul(w1, h)", "float[K,S,D] r", true},
    {"r = Reshape(present, flat)", "float[K] r", false},
    {"h = Reshape(present, flat)\n r = Identity(h)", "float[K] r", false},
    {"r = Slice(present, one, far, two)", "float[B,N,U,D] r", true},
    {"r, r2 = Split<axis = 3, num_outputs = 2>(present)", "float[B,N,T,E] r, float[B,N,T,E] r2",
     true},
    {"r = Tile(present, twice)", "float[B,H,T,D] r", true},
    {"r = Concat<axis = 1>(present, present)", "float[B,H,T,D] r", true},
    {"r = Attention<is_causal = 1>(x, present, present)", "float[B,N,S,D] r", true},
    {"i = Identity(present)\n t = Shape(i)\n p = Shape(past)\n r = Sub(t, p)", "int64[4] r", true},
    {"h = Cast<to = 10>(present)\n r = Cast<to = 1>(h)", "float[B,N,T,D] r", true},
    {"o = Expand(past, ones)\n r = MatMul(w, present)", "float[B,N,P,D] o, float[B,N,S,D] r", true},
    {"r = Softmax(present)", "float[B,N,T,D] r", false},
    {"r = Identity(present)", "float[B,N,T,D] r", false},
};

struct Lap {
  std::vector<float> seen;
  int64_t copied = 0;  // steps that copied rows of the cache
};

void Fill(Tensor& t, int seed) {
  for (int64_t i = 0; i < t.size(); ++i) {
    t.span<float>()[i] = static_cast<float>((7 * seed + 3 * i) % 23 - 11) / 4;
  }
}

void Append(const Tensor& t, std::vector<float>* seen) {
  for (int64_t i = 0; i < t.size(); ++i) {
    seen->push_back(static_cast<float>(ElementAsDouble(t.view(), i)));
  }
}

// Steps of one or two tokens; what they give and leave. The 20th fails behind the write.
Lap Drive(const Readers& readers, AliasMode mode, const Shape& front, bool fetch, int threads) {
  const auto program = CompileOneCache(
      std::string("g (float[B,N,P,D] past, float[B,N,S,D] x, float[B,N,U,T] w, float[K,U,T] w1,"
                  " int64 row) => (float[B,N,T,D] present, float late, ") +
          readers.outputs +
          ") <int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {1000}, int64[1] flat = {-1},"
          " int64[5] wide = {1, 1, 2, 1, 1}, int64[4] heads = {0, 4, -1, 6}, int64[3] merged ="
          " {6, -1, 6}, int64[4] twice = {1, 2, 1, 1}, int64[4] ones = {1, 1, 1, 1}> {"
          "present = Concat<axis = -2>(past, x)\n" +
          readers.nodes +
          "\n sum = ReduceSum(x)\n list = Reshape(sum, flat)\n late = Gather(list, row) }",
      mode, fetch, threads);
  Lap lap;
  if (program == nullptr) return lap;
  Session session(program);
  const Shape empty = {front[0], front[1], 0, 6};
  EXPECT_TRUE(session.SetCache("past", Tensor(kFloat, empty)).ok());
  int64_t total = 0;
  for (int step = 0; step < 60; ++step) {
    const int64_t count = 1 + step % 2;
    Tensor x(kFloat, {front[0], front[1], count, 6});
    Tensor w(kFloat, {front[0], front[1], 2, total + count});
    Tensor w1(kFloat, {front[0] * front[1], 2, total + count});
    Fill(x, step);
    Fill(w, step + 1);
    Fill(w1, step + 2);
    Feeds feeds = {{"x", x}, {"w", w}, {"w1", w1}, {"row", Int64s({}, {1000})}};
    Fetches fetches;
    if (step == 20) {
      EXPECT_FALSE(session.Step(feeds, &fetches).ok());
      Append(*session.Cache("past"), &lap.seen);
    }
    if (step == 40) {  // the caller's own value, then the session's again
      feeds["past"] = session.Cache("past")->Clone();
    }
    feeds["row"] = Int64s({}, {0});
    const absl::Status status = session.Step(feeds, &fetches);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return lap;
    total += count;
    lap.copied += session.cache_bytes_copied() > 0;
    EXPECT_EQ(fetches.contains("present"), fetch);
    fetches.erase("present");
    for (const auto& [name, value] : fetches) Append(value, &lap.seen);
    Append(*session.Cache("past"), &lap.seen);
  }
  return lap;
}

// Heads before the axis: the cache keeps room behind each, if all its readers can do with that.
TEST(ExecAppend, HeadsKeepRoom) {
  for (const Readers& readers : kReaders) {
    SCOPED_TRACE(readers.nodes);
    const Shape front = {3, 2};
    const Lap expected = Drive(readers, AliasMode::kOff, front, true, 1);
    EXPECT_EQ(expected.copied, 59);
    for (const AliasMode mode : {AliasMode::kAuto, AliasMode::kGuard, AliasMode::kPoison}) {
      for (const int threads : {1, 3}) {
        const Lap lap = Drive(readers, mode, front, false, threads);
        ASSERT_EQ(lap.seen, expected.seen) << static_cast<int>(mode);
        const bool appends = readers.apart && mode != AliasMode::kGuard;
        EXPECT_EQ(lap.copied < 12, appends) << lap.copied << " mode " << static_cast<int>(mode);
      }
    }
    EXPECT_EQ(Drive(readers, AliasMode::kAuto, front, true, 1).seen, expected.seen);
  }
}

}  // namespace
}  // namespace kvlift::exec
