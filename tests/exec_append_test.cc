// LIBS: exec onnxio
// Caches that grow by Concat stay where they are while there is room.
#include <string>
#include <vector>

#include "exec/session.h"
#include "gtest/gtest.h"
#include "onnxio/model.h"

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
std::shared_ptr<const Program> CompileOneCache(const std::string& graph, AliasMode mode) {
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\": 24]>\n" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  auto built = Graph::Build(std::make_shared<onnx::ModelProto>(*model));
  EXPECT_TRUE(built.ok()) << built.status();
  CompileOptions options;
  options.caches = {{"past", "present"}};
  options.alias = mode;
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

}  // namespace
}  // namespace kvlift::exec
