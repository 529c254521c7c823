// LIBS: exec oracle onnxio
// com.microsoft's operators that ONNX has no cases for: the executor in canonical order against the
// oracle, within the oracle's bounds.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "exec/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model.h"
#include "oracle/interpreter.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

struct Feed {
  std::string name;
  std::vector<int64_t> dims;
  int64_t below = 0;  // whole numbers [0, below); 0: reals
  int32_t type = TensorProto::FLOAT;
};

TensorProto Random(const Feed& feed, std::mt19937& rng) {
  TensorProto tensor;
  tensor.set_data_type(feed.type);
  int64_t size = 1;
  for (int64_t dim : feed.dims) {
    tensor.add_dims(dim);
    size *= dim;
  }
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < size; ++i) {
    if (feed.below > 0) {
      tensor.add_int32_data(static_cast<int32_t>(rng() % static_cast<uint64_t>(feed.below)));
    } else {
      tensor.add_float_data(normal(rng));
    }
  }
  return tensor;
}

// Elements, and how many of them differ beyond the bound.
void ExpectWithin(const std::string& text, const std::vector<Feed>& feeds, uint32_t seed) {
  SCOPED_TRACE(text);
  const auto parsed = ParseModelText(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto model = std::make_shared<const onnx::ModelProto>(*parsed);
  std::mt19937 rng(seed);
  exec::Feeds given;
  oracle::Values values;
  for (const Feed& feed : feeds) {
    const TensorProto proto = Random(feed, rng);
    auto tensor = exec::Tensor::FromProto(proto, "");
    auto value = oracle::Value::FromProto(proto, "");
    ASSERT_TRUE(tensor.ok() && value.ok());
    given[feed.name] = *tensor;
    values[feed.name] = *value;
  }
  auto graph = Graph::Build(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  exec::CompileOptions options;
  options.order = exec::Order::kCanonical;
  const auto program =
      exec::Program::Compile(std::make_shared<const Graph>(*std::move(graph)), options);
  ASSERT_TRUE(program.ok()) << program.status();
  exec::Session session(*program);
  exec::Fetches fetches;
  ASSERT_TRUE(session.Step(given, &fetches).ok());
  const auto interpreter = oracle::Interpreter::Create(model, "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  EXPECT_TRUE(interpreter->unknown().empty());
  int64_t work = 0;
  const auto wanted = interpreter->Run(values, int64_t{1} << 40, &work);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const auto& [name, tensor] : fetches) {
    const oracle::Value& want = wanted->at(name);
    ASSERT_EQ(want.size(), tensor.size()) << name;
    for (int64_t i = 0; i < want.size(); ++i) {
      const oracle::Number n = want.reals().At(i);
      const double got = exec::ElementAsDouble(tensor.view(), i);
      const double bound = oracle::BoundOf(n.worst, n.spread);
      ASSERT_LE(std::fabs(got - n.value), bound) << name << " " << i;
      // A bound that takes anything shows nothing.
      ASSERT_LE(bound, 1e-3 * (1 + std::fabs(n.value))) << name << " " << i;
    }
  }
}

TEST(OracleFused, MultiHeadAttention) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,8] q, "
      "float[B,L,8] k, float[B,L,8] v{}) => (float[B,S,8] y, float[B,2,T,4] a, float[B,2,T,4] b) "
      "{{ y, a, b = com.microsoft.MultiHeadAttention <num_heads = 2{}> (q, k, v{}) }}";
  const std::vector<Feed> plain = {{"q", {2, 3, 8}}, {"k", {2, 3, 8}}, {"v", {2, 3, 8}}};
  const auto with = [&](std::vector<Feed> more) {
    more.insert(more.begin(), plain.begin(), plain.end());
    return more;
  };
  ExpectWithin(fmt::format(fmt::runtime(head), "", "", ""), plain, 1);
  ExpectWithin(fmt::format(fmt::runtime(head), "", ", unidirectional = 1, scale = 0.3", ""), plain,
               2);
  ExpectWithin(
      fmt::format(fmt::runtime(head), ", float[24] c, float[B,2,P,4] pk, float[B,2,P,4] pv",
                  ", unidirectional = 1", ", c, , , pk, pv"),
      with({{"c", {24}}, {"pk", {2, 2, 5, 4}}, {"pv", {2, 2, 5, 4}}}), 3);
  ExpectWithin(fmt::format(fmt::runtime(head), ", float[1,2,S,T] m", "", ", , , m"),
               with({{"m", {1, 2, 3, 3}}}), 4);
  ExpectWithin(
      fmt::format(fmt::runtime(head), ", int32[B,T] m", ", mask_filter_value = -2.5", ", , m"),
      with({{"m", {2, 3}, 2, TensorProto::INT32}}), 5);
}

TEST(OracleFused, MatMulNBits) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,40] x, "
      "uint8[6,3,{}] w, float[18] s{}) => (float[B,S,6] y) {{ y = com.microsoft.MatMulNBits <K = "
      "40, N = 6, bits = {}, block_size = 16> (x, w, s{}) }}";
  for (const int64_t bits : {2, 4, 8}) {
    const std::vector<Feed> plain = {
        {"x", {2, 3, 40}}, {"w", {6, 3, 2 * bits}, 256, TensorProto::UINT8}, {"s", {18}}};
    ExpectWithin(fmt::format(fmt::runtime(head), 2 * bits, "", bits, ""), plain, 6);
    std::vector<Feed> more = plain;
    more.push_back({"z", {6, (3 * bits + 7) / 8}, 256, TensorProto::UINT8});
    more.push_back({"c", {6}});
    ExpectWithin(fmt::format(fmt::runtime(head), 2 * bits,
                             fmt::format(", uint8[6,{}] z, float[6] c", (3 * bits + 7) / 8), bits,
                             ", z, , c"),
                 more, 7);
  }
}

}  // namespace
}  // namespace kvlift
