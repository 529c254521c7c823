// LIBS: exec oracle onnxio
// Operators of other domains, which ONNX has no cases for: the executor in canonical order against
// the oracle, within the oracle's bounds.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

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
  const absl::Status stepped = session.Step(given, &fetches);
  ASSERT_TRUE(stepped.ok()) << stepped;
  const auto interpreter = oracle::Interpreter::Create(model, "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  EXPECT_TRUE(interpreter->unknown().empty());
  int64_t work = 0;
  const auto wanted = interpreter->Run(values, int64_t{1} << 40, &work);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const auto& [name, tensor] : fetches) {
    const oracle::Value& want = wanted->at(name);
    ASSERT_EQ(want.size(), tensor.size()) << name;
    EXPECT_FALSE(want.doubtful) << name;
    for (int64_t i = 0; i < want.size() && !want.real(); ++i) {
      const double got = exec::ElementAsDouble(tensor.view(), i);
      ASSERT_EQ(got, static_cast<double>(want.integers()[i])) << name << " " << i;
    }
    for (int64_t i = 0; i < want.size() && want.real(); ++i) {
      const oracle::Number n = want.reals().At(i);
      const double got = exec::ElementAsDouble(tensor.view(), i);
      const double bound = oracle::BoundOf(n.worst, n.spread);
      ASSERT_LE(std::fabs(got - n.value), bound) << name << " " << i;
      // A bound that takes anything shows nothing.
      ASSERT_LE(bound, 1e-3 * (1 + std::fabs(n.value))) << name << " " << i;
    }
  }
}

TEST(OracleFused, QuickGelu) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,8] x) => "
      "(float[B,S,8] y) {{ y = com.microsoft.QuickGelu{} (x) }}";
  ExpectWithin(fmt::format(fmt::runtime(head), ""), {{"x", {2, 3, 8}}}, 1);
  ExpectWithin(fmt::format(fmt::runtime(head), " <alpha = 1.0>"), {{"x", {2, 3, 8}}}, 2);
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
  ExpectWithin(fmt::format(fmt::runtime(head), "", ", unidirectional = 1", ""),
               {{"q", {2, 3, 8}}, {"k", {2, 7, 8}}, {"v", {2, 7, 8}}}, 6);
}

TEST(OracleFused, Attention) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,6] x, "
      "float[6,W] w{}) => (float[B,S,V] y{}) "
      "{{ y{} = com.microsoft.Attention <num_heads = 2{}> (x, w{}) }}";
  const auto text = [&](const char* inputs, const char* attributes, const char* operands,
                        bool present = true) {
    return fmt::format(fmt::runtime(head), inputs, present ? ", float[2,B,2,T,4] a" : "",
                       present ? ", a" : "", attributes, operands);
  };
  const auto with = [&](std::vector<Feed> more, int64_t columns = 24) {
    more.insert(more.begin(), {{"x", {2, 3, 6}}, {"w", {6, columns}}});
    return more;
  };
  const Feed bias{"c", {24}}, past{"p", {2, 2, 2, 5, 4}};
  ExpectWithin(text("", "", ""), with({}), 1);
  ExpectWithin(text(", float[24] c", ", unidirectional = 1, scale = 0.3", ", c"), with({bias}), 2);
  ExpectWithin(text(", float[24] c, float[2,B,2,P,4] p", ", unidirectional = 1", ", c, , p"),
               with({bias, past}), 3);
  ExpectWithin(text(", float[1,2,S,T] m", "", ", , , , m"), with({{"m", {1, 2, 3, 3}}}), 4);
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{2, 8}, std::vector<int64_t>{2, 3, 8}, std::vector<int64_t>{2}}) {
    const std::string letters = dims.size() == 1 ? "B" : dims.size() == 2 ? "B,T" : "B,S,T";
    const int64_t below = dims.size() == 1 ? 9 : 2;
    ExpectWithin(text(fmt::format(", int32[{}] m, float[2,B,2,P,4] p", letters).c_str(),
                      ", mask_filter_value = -2.5", ", , m, p"),
                 with({{"m", dims, below, TensorProto::INT32}, past}), 5);
  }
  ExpectWithin(text("", ", qkv_hidden_sizes = [8, 8, 12]", "", false), with({}, 28), 6);
}

TensorProto Reals(std::vector<int64_t> dims, std::vector<float> values) {
  TensorProto tensor;
  tensor.set_data_type(TensorProto::FLOAT);
  *tensor.mutable_dims() = {dims.begin(), dims.end()};
  *tensor.mutable_float_data() = {values.begin(), values.end()};
  return tensor;
}

// What ONNX Runtime 1.31 gives for a past of one row, a pad and tokens in causal order.
TEST(OracleFused, AttentionIsThatOfOnnxRuntime) {
  const auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[1,2,2] x, "
      "float[2,1,2,1,1] p) => (float[1,2,2] y, float[2,1,2,3,1] a) "
      "<float[2,6] w = {0.5, -1, 0.25, 2, 1, -0.5, 1.5, 0.75, -0.5, 1, 0.125, 2}, "
      "float[6] c = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6}, int32[1,3] m = {1, 0, 1}> "
      "{ y, a = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (x, w, c, m, p) }");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto x = oracle::Value::FromProto(Reals({1, 2, 2}, {0.5, -1, 2, 0.25}), "");
  const auto p = oracle::Value::FromProto(Reals({2, 1, 2, 1, 1}, {0.5, -0.25, 1, -2}), "");
  ASSERT_TRUE(x.ok() && p.ok());
  const auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  int64_t work = 0;
  const auto got = interpreter->Run({{"x", *x}, {"p", *p}}, int64_t{1} << 30, &work);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<std::pair<const char*, std::vector<double>>> wanted = {
      {"y", {1.0, -2.0, 1.5332109928131104, -1.9996668100357056}},
      {"a", {0.5, 0.325, 0.075, -0.25, 0.4, 4.65, 1, 0.875, 2.53125, -2, -2.85, -1.1}}};
  for (const auto& [name, numbers] : wanted) {
    const oracle::Value& value = got->at(name);
    ASSERT_EQ(value.size(), static_cast<int64_t>(numbers.size()));
    for (int64_t i = 0; i < value.size(); ++i) {
      EXPECT_NEAR(value.reals().At(i).value, numbers[i], 1e-6) << name << " " << i;
    }
  }
}

// Along each axis and both ways; the body reads what is around it.
TEST(OracleFused, EmbedLayerNormalization) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (int32[B,S] ids, "
      "float[7,4] w, float[9,4] p, float[4] c, float[4] d{}) => "
      "(float[B,S,4] y, int32[B] kept, float[B,S,4] sum) "
      "{{ y, kept, sum = com.microsoft.EmbedLayerNormalization <epsilon = 0.001> "
      "(ids, {}, w, p, {}, c, d, {}) }}";
  const auto with = [](std::vector<Feed> more) {
    more.insert(more.begin(), {{"ids", {2, 3}, 6, TensorProto::INT32},
                               {"w", {7, 4}},
                               {"p", {9, 4}},
                               {"c", {4}},
                               {"d", {4}}});
    return more;
  };
  ExpectWithin(fmt::format(fmt::runtime(head), "", "", "", ""), with({}), 1);
  ExpectWithin(
      fmt::format(fmt::runtime(head), ", int32[B,S] g, float[2,4] t, int32[B,S] m", "g", "t", "m"),
      with({{"g", {2, 3}, 2, TensorProto::INT32},
            {"t", {2, 4}},
            {"m", {2, 3}, 2, TensorProto::INT32}}),
      2);
  for (const int64_t rows : {1, 2}) {
    ExpectWithin(fmt::format(fmt::runtime(head), ", int32[L,S] at", "", "", ", at"),
                 with({{"at", {rows, 3}, 8, TensorProto::INT32}}), 3);
  }
}

TEST(OracleFused, Scan) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20]> g (float[3] s, float[2,4,3] x, float[3] k) => "
      "(float[3] last, float[{}] y, float[{}] z) {{ last, y, z = Scan <num_scan_inputs = 2, "
      "body = b (float[3] before, float[2,3] row, float[2,3] other) => (float[3] after, "
      "float[2,3] out, float[3] seen) {{ scaled = Mul (row, k) "
      "sum = ReduceSum <keepdims = 0, noop_with_empty_axes = 0> (scaled) "
      "after = Add (before, sum) out = Mul (other, after) seen = Neg (after) }}{}> (s, x, x) }}";
  const std::vector<Feed> feeds = {{"s", {3}}, {"x", {2, 4, 3}}, {"k", {3}}};
  ExpectWithin(fmt::format(fmt::runtime(head), "4,2,3", "4,3", ", scan_input_axes = [1, 1]"), feeds,
               1);
  ExpectWithin(fmt::format(fmt::runtime(head), "2,3,4", "3,4",
                           ", scan_input_axes = [1, -2], scan_input_directions = [1, 0], "
                           "scan_output_axes = [-1, 1], scan_output_directions = [0, 1]"),
               feeds, 2);
}

// What operators refuse, the oracle refuses, too.
void ExpectRefused(const std::string& text) {
  SCOPED_TRACE(text);
  const auto parsed = ParseModelText(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*parsed), "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  int64_t work = 0;
  EXPECT_EQ(interpreter->Run({}, int64_t{1} << 40, &work).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OracleRefuses, OperandsThatDoNotFit) {
  const auto model = [](const std::string& result, const std::string& weights,
                        const std::string& node) {
    return fmt::format("<ir_version: 12, opset_import: [\"\" : 24]> g () => ({} y) <{}> {{ {} }}",
                       result, weights, node);
  };
  // TensorScatter takes as many sequences, heads and columns as the cache has, and one index each.
  for (const char* update : {"float[1,1,1,1] u = {1}", "float[2,1,1,2] u = {1, 2, 3, 4}"}) {
    ExpectRefused(model("float[2,1,3,1]",
                        fmt::format("float[2,1,3,1] p = {{1, 2, 3, 4, 5, 6}}, {}, "
                                    "int64[2] w = {{0, 1}}",
                                    update),
                        "y = TensorScatter <axis = 2> (p, u, w)"));
  }
  ExpectRefused(model("float[2,1,3,1]",
                      "float[2,1,3,1] p = {1, 2, 3, 4, 5, 6}, float[2,1,1,1] u = {1, 2}, "
                      "int64[1] w = {0}",
                      "y = TensorScatter <axis = 2> (p, u, w)"));
  ExpectRefused(model("float[N]", "float[1] x = {1}, int64[1] s = {-2}", "y = Expand (x, s)"));
  ExpectRefused(model("float[N]", "int64[1] s = {-2}", "y = ConstantOfShape (s)"));
  ExpectRefused(model("int64[N]", "int64 a = {0}, int64[2] n = {3, 4}, int64 d = {1}",
                      "y = Range (a, n, d)"));
}

// Returns a model of an EmbedLayerNormalization whose tables and weights have these types and
// constants.
std::string EmbeddingOf(const std::string& places, const std::string& gamma) {
  return fmt::format(
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g () => (float[B,S,H] y) "
      "<int32[1,2] ids = {{0, 1}}, float[2,2] w = {{1, 2, 3, 4}}, {}, {}, float[2] d = {{0, 0}}> "
      "{{ y = com.microsoft.EmbedLayerNormalization (ids, , w, p, , c, d) }}",
      places, gamma);
}

TEST(OracleRefuses, EmbeddingsOfOtherExtents) {
  for (const auto& [places, gamma] : std::vector<std::pair<const char*, const char*>>{
           {"float[2] p = {1, 2}", "float[2] c = {1, 1}"},
           {"float[2,1,2] p = {1, 2, 3, 4}", "float[2] c = {1, 1}"},
           {"float[1,2] p = {1, 2}", "float[2] c = {1, 1}"},
           {"float[2,2] p = {1, 2, 3, 4}", "float[0,2] c = {}"},
           {"float[2,2] p = {1, 2, 3, 4}", "float[1,2] c = {1, 1}"}}) {
    ExpectRefused(EmbeddingOf(places, gamma));
    const auto model = ParseModelText(EmbeddingOf(places, gamma));
    ASSERT_TRUE(model.ok()) << model.status();
    auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*model));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto program =
        exec::Program::Compile(std::make_shared<const Graph>(*std::move(graph)), {});
    if (!program.ok()) continue;
    exec::Session session(*program);
    exec::Fetches fetches;
    EXPECT_FALSE(session.Step({}, &fetches).ok()) << places << " " << gamma;
  }
}

TEST(OracleRefuses, GroupQueryAttentionOfOtherExtents) {
  const auto model = [](const std::string& lengths, const std::string& past) {
    return fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g () => "
        "(float[B,S,4] y, float[B,1,T,4] a, float[B,1,T,4] b) <int64[3] rows = {{2, 1, 4}}, "
        "int64[4] kept = {{{1}}}, {0}, int32 total = {{2}}, float one = {{1}}> "
        "{{ x = Expand (one, rows) past = Expand (one, kept) "
        "y, a, b = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1> "
        "(x, x, x, past, past, last, total) }}",
        lengths, past);
  };
  ExpectRefused(model("int32[1] last = {1}", "2, 1, 1, 4"));     // one length for two sequences
  ExpectRefused(model("int32[2] last = {1, 1}", "1, 1, 1, 4"));  // caches of one sequence
  ExpectRefused(model("int32[2] last = {1, 1}", "2, 3, 1, 4"));  // of other heads
  ExpectRefused(model("int32[2] last = {1, 1}", "2, 1, 1, 3"));  // of another width
}

TEST(OracleFused, GroupQueryAttentionOverFewBits) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,16] q, "
      "float[B,S,8] k, float[B,S,8] v, {0}[B,2,P,{1}] pk, {0}[B,2,P,{1}] pv{2}) => "
      "(float[B,S,16] y, {0}[B,2,T,{1}] a, {0}[B,2,T,{1}] b) "
      "<int32[2] last = {{7, 7}}, int32 total = {{8}}, float step = {{0.07}}, float one = "
      "{{0.01}}> "
      "{{ {3} y, a, b = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, "
      "kv_cache_bit_width = {4}, k_quant_type = \"{5}\", v_quant_type = \"{5}\"> "
      "(q, k, v, pk, pv, last, total, , , , , , ks, vs) }}";
  for (const int64_t bits : {8, 4}) {
    const bool packed = bits == 4;
    const int64_t width = packed ? 2 : 4;
    const int32_t type = packed ? TensorProto::UINT8 : TensorProto::INT8;
    std::vector<Feed> feeds = {{"q", {2, 3, 16}},
                               {"k", {2, 3, 8}},
                               {"v", {2, 3, 8}},
                               {"pk", {2, 2, 5, width}, packed ? 256 : 100, type},
                               {"pv", {2, 2, 5, width}, packed ? 256 : 100, type}};
    const char* const name = packed ? "uint8" : "int8";
    ExpectWithin(fmt::format(fmt::runtime(head), name, width, "",
                             "ks = Identity (step) vs = Identity (step)", bits, "PER_TENSOR"),
                 feeds, 8);
    feeds.push_back({"sizes", {1, 2, 1, 4}, 9, TensorProto::INT32});
    ExpectWithin(fmt::format(fmt::runtime(head), name, width, ", int32[1,2,1,4] sizes",
                             "reals = Cast <to = 1> (sizes) more = Mul (reals, one) "
                             "ks = Add (more, one) vs = Add (more, step)",
                             bits, "PER_CHANNEL"),
                 feeds, 9);
  }
}

// Three sequences of 3, 1 and 2 new rows behind 2, 0 and 1 old ones, in one piece or in pages of 2.
TEST(OracleFused, KeyValueCacheOfJoinedSequences) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"pmx.dynamic_batching\" : 1]> g "
      "(float[6,2,4] k, float[6,2,4] v, {0}[{1},4] c{2}) => "
      "(float[9,6,4] a, float[9,6,4] b, {0}[{1},4] d{3}) "
      "<int64[4] rows = {{0, 3, 4, 6}}, int64[4] all = {{0, 5, 6, 9}}, int64[3] past = {{2, 0, 1}},"
      " int64 most = {{3}}, int64 longest = {{5}}, int64{4}> "
      "{{ a, b, d{5} = pmx.dynamic_batching.KeyValueCache <num_layer = 3, layer_idx = 1, "
      "num_repeat = 3, page_size = 2, quant_group = 2, cache_layout = {6}, {7}> "
      "(k, v, rows, all, places, past, most, longest, c{8}) }}";
  const std::vector<std::vector<int64_t>> shapes = {
      {14, 3, 2, 2}, {3, 14, 2, 2}, {3, 2, 14, 2}, {3, 2, 2, 14}};
  for (size_t layout = 0; layout < shapes.size(); ++layout) {
    std::vector<int64_t> packed = shapes[layout], scales = packed;
    const std::string sizes = fmt::format("{}", fmt::join(packed, ","));
    packed.push_back(4);
    scales.push_back(2);
    std::vector<Feed> feeds = {{"k", {6, 2, 4}}, {"v", {6, 2, 4}}, {"c", packed}};
    ExpectWithin(fmt::format(fmt::runtime(head), "float", sizes, "", "", "[3] places = {9, 0, 4}",
                             "", layout, "cache_mode = 0", ""),
                 feeds, 20);
    feeds.back() = {"c", packed, 100, TensorProto::INT8};
    feeds.push_back({"s", scales});
    const std::string scale = fmt::format("float[{},2]", sizes);
    ExpectWithin(fmt::format(fmt::runtime(head), "int8", sizes, ", " + scale + " s",
                             ", " + scale + " t", "[3,3] places = {6, 2, 12, 4, 0, 0, 8, 10, 0}",
                             ", t", layout, "cache_mode = 1, quant_bit = 8", ", s"),
                 feeds, 21);
  }
}

TEST(OracleFused, GatherBlockQuantized) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]> "
      "g ({0}[{1}] w, int32[2,3] i, float[{2}] s{3}) => (float[A,B,C,D] y) {{ "
      "y = com.microsoft.GatherBlockQuantized <bits = {4}, block_size = 16, gather_axis = {5}, "
      "quantize_axis = {6}> (w, i, s{7}) }}";
  const Feed indices{"i", {2, 3}, 5, TensorProto::INT32};
  for (const int64_t bits : {2, 4, 8}) {
    const int64_t width = 40 * bits / 8;
    const std::vector<Feed> plain = {
        {"w", {5, 3, width}, 256, TensorProto::UINT8}, indices, {"s", {5, 3, 3}}};
    const std::string dims = fmt::format("5,3,{}", width);
    ExpectWithin(fmt::format(fmt::runtime(head), "uint8", dims, "5,3,3", "", bits, 0, -1, ""),
                 plain, 8);
    std::vector<Feed> more = plain;
    const int64_t zeros = (3 * bits + 7) / 8;
    more.push_back({"z", {5, 3, zeros}, 256, TensorProto::UINT8});
    ExpectWithin(fmt::format(fmt::runtime(head), "uint8", dims, "5,3,3",
                             fmt::format(", uint8[5,3,{}] z", zeros), bits, 0, 2, ", z"),
                 more, 9);
  }
  // Blocks along the first axis, rows along the second.
  ExpectWithin(fmt::format(fmt::runtime(head), "uint8", "33,5,4", "3,5,8", "", 4, 1, 0, ""),
               {{"w", {33, 5, 4}, 256, TensorProto::UINT8}, indices, {"s", {3, 5, 8}}}, 10);
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

TEST(OracleFused, MatMulBnb4) {
  for (const int type : {0, 1}) {
    const std::string model = fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (float[B,S,40] x, "
        "uint8[120] w, float[15] s) => (float[B,S,6] y) {{ y = com.microsoft.MatMulBnb4 <K = 40, N "
        "= 6, block_size = 16, quant_type = {}, transB = 1> (x, w, s) }}",
        type);
    ExpectWithin(model, {{"x", {2, 3, 40}}, {"w", {120}, 256, TensorProto::UINT8}, {"s", {15}}}, 6);
  }
}

// Codes with their scales and zero points.
TEST(OracleFused, QuantizedOperators) {
  const char* head =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (uint8[2,3,5] a, "
      "uint8[3,1] b, uint8[5,4] m, bool[2,1,5] c, int32[4] d) => (uint8[I,J,K] y) "
      "<float s = {{0.031}}, float t = {{0.027}}, float u = {{0.0437}}, uint8 i = {{131}}, uint8 "
      "j = {{120}}, uint8 k = {{9}}> {{ y = {} }}";
  const auto feed = [](const char* name, std::vector<int64_t> dims, int64_t below, int32_t type) {
    return Feed{name, std::move(dims), below, type};
  };
  const std::vector<Feed> feeds = {
      feed("a", {2, 3, 5}, 256, TensorProto::UINT8), feed("b", {3, 1}, 256, TensorProto::UINT8),
      feed("m", {5, 4}, 256, TensorProto::UINT8), feed("c", {2, 1, 5}, 2, TensorProto::BOOL),
      feed("d", {4}, 900, TensorProto::INT32)};
  for (const char* node : {"com.microsoft.QLinearAdd (a, s, i, b, t, j, u, k)",
                           "com.microsoft.QLinearMul (a, s, i, b, t, j, u, k)",
                           "com.microsoft.QLinearSigmoid (a, s, i, u, k)",
                           "com.microsoft.QLinearLeakyRelu <alpha = 0.3> (a, s, i, u, j)",
                           "com.microsoft.QLinearSoftmax <axis = 1, opset = 13> (a, s, i, u, k)",
                           "com.microsoft.QLinearSoftmax <axis = 1, opset = 11> (a, s, i, u, k)",
                           "com.microsoft.QLinearConcat <axis = 1> (u, j, a, u, j, a, t, i)",
                           "com.microsoft.QLinearWhere (c, a, s, i, b, u, j, u, j)",
                           "QLinearMatMul (a, s, i, m, t, j, u, k)"}) {
    ExpectWithin(fmt::format(fmt::runtime(head), node), feeds, 3);
  }
  const char* gemm =
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]> g (uint8[3,5] a, "
      "int8[{}] b, int32[4] d) => ({}[3,4] y) <float s = {{0.031}}, float[4] t = {{0.027, 0.02, "
      "0.01, 0.05}}, float u = {{0.237}}, uint8 i = {{131}}, int8[4] j = {{0, 1, -2, 3}}, uint8 k "
      "= {{90}}> {{ y = com.microsoft.QGemm {} }}";
  const std::vector<Feed> rows = {feed("a", {3, 5}, 256, TensorProto::UINT8),
                                  feed("b", {5, 4}, 120, TensorProto::INT8),
                                  feed("d", {4}, 900, TensorProto::INT32)};
  ExpectWithin(fmt::format(fmt::runtime(gemm), "5,4", "uint8", "(a, s, i, b, t, j, d, u, k)"), rows,
               3);
  std::vector<Feed> turned = rows;
  turned[1].dims = {4, 5};
  ExpectWithin(fmt::format(fmt::runtime(gemm), "4,5", "float",
                           "<alpha = 0.5, transB = 1> (a, s, i, b, t, j)"),
               turned, 4);
}

}  // namespace
}  // namespace kvlift
