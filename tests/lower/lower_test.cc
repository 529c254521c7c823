// LIBS: lower exec oracle onnxio
// Lowered models give what their sources give: in the executor and in the oracle, on random
// numbers, for every form of the two operators. Forms that are not lowered are refused by name.
#include "lower/lower.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

namespace kvlift {
namespace {

using exec::Feeds;
using exec::Fetches;
using exec::Tensor;
using ::testing::HasSubstr;

constexpr LowerTo kAll[] = {LowerTo::kScatterNd, LowerTo::kWhere, LowerTo::kAttention23,
                            LowerTo::kDecomposed};

onnx::ModelProto Parsed(const std::string& text) {
  auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status() << "\n" << text;
  return model.value_or(onnx::ModelProto());
}

std::string Model(const std::string& signature, const std::string& nodes, int opset = 24) {
  return fmt::format("<ir_version: 12, opset_import: [\"\" : {}]> g {} {{ {} }}", opset, signature,
                     nodes);
}

class Random {
 public:
  Tensor Floats(exec::Shape shape) {
    std::vector<float> values(Count(shape));
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(rng_);
    return Tensor::From<float>(onnx::TensorProto::FLOAT, shape, values);
  }
  Tensor Bools(exec::Shape shape) {
    std::vector<uint8_t> values(Count(shape));
    for (uint8_t& v : values) v = rng_() % 3 != 0 ? 1 : 0;
    return Tensor::From<uint8_t>(onnx::TensorProto::BOOL, shape, values);
  }

 private:
  static size_t Count(const exec::Shape& shape) {
    size_t count = 1;
    for (int64_t d : shape) count *= static_cast<size_t>(d);
    return count;
  }
  std::mt19937 rng_{7};
};

Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64,
                               exec::Shape({static_cast<int64_t>(values.size())}), values);
}

Fetches RunInExecutor(const onnx::ModelProto& model, const Feeds& feeds) {
  auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(model));
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto program = exec::Program::Compile(std::make_shared<const Graph>(*std::move(graph)), {});
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  exec::Session session(*program);
  Fetches fetches;
  const absl::Status done = session.Step(feeds, &fetches);
  EXPECT_TRUE(done.ok()) << done << "\n" << PrintModelText(model);
  return fetches;
}

oracle::Values RunInOracle(const onnx::ModelProto& model, const Feeds& feeds) {
  auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(model), "");
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  oracle::Values values;
  for (const auto& [name, tensor] : feeds) {
    values[name] = *oracle::Value::FromProto(tensor.ToProto(name), "");
  }
  int64_t work = 0;
  auto results = interpreter->Run(values, int64_t{1} << 30, &work);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.value_or(oracle::Values());
}

// Returns the lowered model; empty, with a failure, if it is refused or is not valid ONNX.
onnx::ModelProto Lowered(const onnx::ModelProto& model, LowerTo to) {
  const auto lowered = Lower(model, {to, std::nullopt});
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok()) return {};
  EXPECT_FALSE(lowered->refusal) << lowered->refusal->text;
  if (!lowered->model) return {};
  EXPECT_TRUE(CheckModel(*lowered->model).ok()) << CheckModel(*lowered->model);
  return *lowered->model;
}

// Expects that both models give the same: bit for bit, or with `tolerance` up to that.
void ExpectSame(const onnx::ModelProto& model, const onnx::ModelProto& lowered, const Feeds& feeds,
                double tolerance) {
  const Fetches wanted = RunInExecutor(model, feeds), found = RunInExecutor(lowered, feeds);
  const oracle::Values judged = RunInOracle(lowered, feeds);
  ASSERT_EQ(wanted.size(), found.size());
  for (const auto& [name, tensor] : wanted) {
    const auto it = found.find(name);
    ASSERT_NE(it, found.end()) << name;
    ASSERT_EQ(tensor.shape(), it->second.shape()) << name;
    const auto a = tensor.span<float>(), b = it->second.span<float>();
    const oracle::Value& exact = judged.at(name);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_FALSE(std::isnan(a[i])) << name << " " << i;
      ASSERT_NEAR(a[i], b[i], tolerance) << name << " " << i << "\n" << PrintModelText(lowered);
      ASSERT_NEAR(a[i], exact.reals().value[i], tolerance) << name << " " << i;
    }
  }
}

bool Has(const onnx::ModelProto& model, const std::string& op_type) {
  for (const auto& node : model.graph().node()) {
    if (node.op_type() == op_type) return true;
  }
  return false;
}

struct ScatterCase {
  std::string attributes, indices;
  exec::Shape past, update;
  std::vector<int64_t> write;
};

std::string Dims(const exec::Shape& shape) {
  std::string dims;
  for (size_t k = 0; k < shape.size(); ++k) dims += fmt::format("{}d{}", k == 0 ? "" : ",", k);
  return dims;
}

TEST(Lower, TensorScatter) {
  const std::vector<ScatterCase> cases = {
      {"axis = 2", "w", {3, 2, 8, 4}, {3, 2, 3, 4}, {0, 5, 2}},
      {"", "w", {2, 2, 6, 4}, {2, 2, 1, 4}, {5, 0}},
      {"axis = -2", "", {2, 2, 6, 4}, {2, 2, 2, 4}, {}},
      {"axis = 1", "w", {2, 7, 4}, {2, 3, 4}, {4, 1}},
      {"axis = 3", "w", {2, 3, 4, 6}, {2, 3, 4, 2}, {4, 1}},
      {"axis = -1", "w", {2, 5}, {2, 5}, {0, 0}},
      {"mode = \"circular\"", "w", {3, 2, 8, 4}, {3, 2, 3, 4}, {6, 15, 2}},
      {"mode = \"circular\", axis = 1", "w", {2, 4, 4}, {2, 4, 4}, {3, 101}},
      {"mode = \"linear\"", "w", {1, 1, 1, 1}, {1, 1, 1, 1}, {0}},
  };
  Random random;
  for (const ScatterCase& c : cases) {
    std::string updates = Dims(c.past);
    for (size_t k = 0; k < c.past.size(); ++k) {
      if (c.past[k] != c.update[k]) updates.replace(updates.find(fmt::format("d{}", k)), 2, "S");
    }
    const std::string dims = Dims(c.past);
    const std::string indices = c.indices.empty() ? "" : ", w";
    const std::string attributes = c.attributes.empty() ? "" : fmt::format("<{}>", c.attributes);
    const std::string signature =
        fmt::format("(float[{}] past, float[{}] update{}) => (float[{}] present)", dims, updates,
                    indices.empty() ? "" : ", int64[d0] w", dims);
    const auto model = Parsed(Model(
        signature, fmt::format("present = TensorScatter{}(past, update{})", attributes, indices)));
    Feeds feeds = {{"past", random.Floats(c.past)}, {"update", random.Floats(c.update)}};
    if (!c.write.empty()) feeds["w"] = Int64s(c.write);
    for (const LowerTo to : kAll) {
      SCOPED_TRACE(fmt::format("{} {}", c.attributes, static_cast<int>(to)));
      const auto lowered = Lowered(model, to);
      EXPECT_FALSE(Has(lowered, "TensorScatter"));
      EXPECT_EQ(Has(lowered, "ScatterND"), to != LowerTo::kWhere);
      ExpectSame(model, lowered, feeds, 0);
    }
  }
}

TEST(Lower, WritesOutsideTheBufferAreRefused) {
  const auto model =
      Parsed(Model("(float[B,2,M,4] p, float[B,2,S,4] u, int64[B] w) => (float[B,2,M,4] y)",
                   "y = TensorScatter(p, u, w)"));
  Random random;
  for (const LowerTo to : {LowerTo::kScatterNd, LowerTo::kWhere}) {
    auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(Lowered(model, to)));
    ASSERT_TRUE(graph.ok()) << graph.status();
    auto program = exec::Program::Compile(std::make_shared<const Graph>(*std::move(graph)), {});
    ASSERT_TRUE(program.ok()) << program.status();
    exec::Session session(*program);
    for (const std::vector<int64_t>& w :
         std::vector<std::vector<int64_t>>{{0, 3}, {-1, 0}, {0, 4}, {int64_t{1} << 32, 0}}) {
      const Feeds feeds = {
          {"p", random.Floats({2, 2, 5, 4})}, {"u", random.Floats({2, 2, 2, 4})}, {"w", Int64s(w)}};
      Fetches fetches;
      EXPECT_EQ(session.Step(feeds, &fetches).ok(), w[1] == 3) << w[0] << " " << w[1];
    }
  }
}

struct AttentionCase {
  int rank = 4;
  int64_t heads = 4, kv_heads = 2;
  std::string mask;  // "", "bool", "float"
  std::vector<int64_t> mask_shape = {};
  bool causal = false;
  std::string length;  // "", "nonpad", "past"
  std::string more = {};
};

constexpr int64_t kB = 2, kS = 3, kT = 7, kP = 5, kD = 4, kDv = 6;

std::string TextOf(const AttentionCase& c) {
  const bool past = c.length == "past";
  std::string inputs, operands, outputs, results;
  const auto heads = [&](const char* name, const char* n, const char* rows, const char* size) {
    return c.rank == 4 ? fmt::format("float[B,{},{},{}] {}", n, rows, size, name)
                       : fmt::format("float[B,{},{}] {}", rows,
                                     name[0] == 'q'   ? c.heads * kD
                                     : name[0] == 'k' ? c.kv_heads * kD
                                                      : c.kv_heads * kDv,
                                     name);
  };
  const std::string q = std::to_string(c.heads), kv = std::to_string(c.kv_heads);
  inputs = fmt::format("{}, {}, {}", heads("q", q.c_str(), "S", "4"),
                       heads("k", kv.c_str(), past ? "N" : "T", "4"),
                       heads("v", kv.c_str(), past ? "N" : "T", "6"));
  operands = "q, k, v";
  outputs = heads("y", q.c_str(), "S", "6");
  if (c.rank == 3) outputs = fmt::format("float[B,S,{}] y", c.heads * kDv);
  if (!c.mask.empty()) {
    std::string dims;
    for (size_t k = 0; k < c.mask_shape.size(); ++k) {
      dims += fmt::format("{}m{}", k == 0 ? "" : ",", k);
    }
    if (c.mask_shape.back() == kT && !past) dims.replace(dims.rfind('m'), 2, "T");
    inputs += fmt::format(", {}[{}] mask", c.mask, dims);
    operands += ", mask";
  }
  if (c.length == "nonpad") {
    inputs += ", int64[B] valid";
    operands += fmt::format("{}, , , valid", c.mask.empty() ? ", " : "");
  }
  if (past) {
    inputs += fmt::format(", float[B,{0},P,4] pk, float[B,{0},P,6] pv", kv);
    operands += fmt::format("{}, pk, pv", c.mask.empty() ? ", " : "");
    outputs += fmt::format(", float[B,{0},R,4] nk, float[B,{0},R,6] nv", kv);
    results = ", nk, nv";
  }
  std::string attributes = fmt::format("is_causal = {}", c.causal ? 1 : 0);
  if (c.rank == 3) attributes += fmt::format(", q_num_heads = {}, kv_num_heads = {}", q, kv);
  attributes += c.more;
  return Model(fmt::format("({}) => ({})", inputs, outputs),
               fmt::format("y{} = Attention<{}>({})", results, attributes, operands));
}

Feeds FeedsOf(const AttentionCase& c, Random* random) {
  const bool past = c.length == "past";
  const int64_t keys = past ? kT - kP : kT;
  const auto operand = [&](int64_t heads, int64_t rows, int64_t size) {
    return random->Floats(c.rank == 4 ? exec::Shape({kB, heads, rows, size})
                                      : exec::Shape({kB, rows, heads * size}));
  };
  Feeds feeds = {{"q", operand(c.heads, kS, kD)},
                 {"k", operand(c.kv_heads, keys, kD)},
                 {"v", operand(c.kv_heads, keys, kDv)}};
  const exec::Shape mask(c.mask_shape.begin(), c.mask_shape.end());
  if (c.mask == "bool") feeds["mask"] = random->Bools(mask);
  if (c.mask == "float") feeds["mask"] = random->Floats(mask);
  // The second sequence has fewer valid keys than queries: its first query sees none if causal.
  if (c.length == "nonpad") feeds["valid"] = Int64s({6, 2});
  if (past) {
    feeds["pk"] = random->Floats({kB, c.kv_heads, kP, kD});
    feeds["pv"] = random->Floats({kB, c.kv_heads, kP, kDv});
  }
  return feeds;
}

std::vector<AttentionCase> AttentionCases() {
  std::vector<AttentionCase> cases;
  const std::vector<std::vector<int64_t>> masks = {{kS, kT},      {kB, 1, kS, kT}, {kB, 4, kS, kT},
                                                   {1, 1, 1, kT}, {4, kS, kT},     {kB, 1, 1, kT}};
  for (const char* length : {"", "nonpad", "past"}) {
    for (const bool causal : {false, true}) {
      for (const int rank : {3, 4}) {
        cases.push_back({rank, 4, 2, "", {}, causal, length});
        cases.push_back({rank, 4, 1, "", {}, causal, length, ", softcap = 1.5"});
        cases.push_back({rank, 2, 2, "", {}, causal, length, ", scale = 0.3"});
      }
      for (const auto& mask : masks) {
        cases.push_back({4, 4, 2, "bool", mask, causal, length});
        cases.push_back({4, 4, 2, "float", mask, causal, length, ", softcap = 2.0"});
      }
      // Masks with fewer columns than there are keys hide the others.
      cases.push_back({4, 4, 2, "bool", {kB, 1, kS, 6}, causal, length});
      cases.push_back({3, 4, 4, "float", {kS, 6}, causal, length});
    }
  }
  return cases;
}

TEST(Lower, Attention) {
  Random random;
  int rewritten = 0;
  for (const AttentionCase& c : AttentionCases()) {
    const auto model = Parsed(TextOf(c));
    const Feeds feeds = FeedsOf(c, &random);
    SCOPED_TRACE(TextOf(c));
    const auto decomposed = Lowered(model, LowerTo::kDecomposed);
    EXPECT_FALSE(Has(decomposed, "Attention"));
    ExpectSame(model, decomposed, feeds, 2e-6);
    if (c.length == "past") continue;  // is Attention-23 already, but for masks of unknown width
    const auto older = Lower(model, {LowerTo::kAttention23, std::nullopt});
    ASSERT_TRUE(older.ok()) << older.status();
    if (!older->model) {
      EXPECT_EQ(c.length, "");
      EXPECT_THAT(older->refusal->text, HasSubstr("nothing to lower"));
      continue;
    }
    ++rewritten;
    EXPECT_EQ(older->opset, 23);
    EXPECT_TRUE(CheckModel(*older->model).ok()) << CheckModel(*older->model);
    ExpectSame(model, *older->model, feeds, 2e-6);
  }
  EXPECT_GT(rewritten, 30);
}

TEST(Lower, RowsThatSeeNoKeyAreZero) {
  Random random;
  AttentionCase c{4, 4, 2, "bool", {kB, 1, kS, kT}, true, "nonpad"};
  const auto model = Parsed(TextOf(c));
  Feeds feeds = FeedsOf(c, &random);
  feeds["mask"] = Tensor::Zeros(onnx::TensorProto::BOOL, {kB, 1, kS, kT});
  for (const LowerTo to : {LowerTo::kAttention23, LowerTo::kDecomposed}) {
    const Fetches got = RunInExecutor(Lowered(model, to), feeds);
    for (const float v : got.at("y").span<float>()) ASSERT_EQ(v, 0);
  }
}

// The reason why a model is refused; empty if it is lowered.
std::string Reason(const std::string& text, LowerTo to, std::optional<int64_t> opset = {}) {
  const auto lowered = Lower(Parsed(text), {to, opset});
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok() || !lowered->refusal) return "";
  EXPECT_FALSE(lowered->model);
  EXPECT_EQ(lowered->refusal->code, "KV253");
  return lowered->refusal->text;
}

constexpr char kScatter[] =
    "(float[B,2,M,4] p, float[B,2,S,4] u, int64[B] w) => (float[B,2,M,4] y)";
constexpr char kHeads[] =
    "(float[B,2,S,4] q, float[B,2,T,4] k, float[B,2,T,4] v, int64[B] n) => (float[B,2,S,4] y)";

TEST(Lower, Refusals) {
  const auto scatter = [](const std::string& node) { return Model(kScatter, node); };
  const auto heads = [](const std::string& node) { return Model(kHeads, node); };
  EXPECT_THAT(Reason(scatter("y = Identity(p)"), LowerTo::kScatterNd),
              HasSubstr("nothing to lower"));
  EXPECT_THAT(Reason(Model(kScatter, "y = Identity(p)", 22), LowerTo::kDecomposed),
              HasSubstr("opset 22 has neither"));
  EXPECT_THAT(Reason(scatter("y = TensorScatter<mode = \"odd\">(p, u, w)"), LowerTo::kWhere),
              HasSubstr("its mode odd is not known"));
  EXPECT_THAT(Reason(scatter("y = TensorScatter<axis = 0>(p, u, w)"), LowerTo::kWhere),
              HasSubstr("its axis is out of range"));
  EXPECT_THAT(Reason(scatter("y = TensorScatter<stride = 2>(p, u, w)"), LowerTo::kScatterNd),
              HasSubstr("its attribute stride is not known"));
  EXPECT_THAT(
      Reason(heads("y = Attention<left_window_size = 2>(q, k, v, , , , n)"), LowerTo::kDecomposed),
      HasSubstr("its attribute left_window_size is not known"));
  EXPECT_THAT(Reason(heads("y, a, b, s = Attention(q, k, v)"), LowerTo::kDecomposed),
              HasSubstr("qk_matmul_output"));
  EXPECT_THAT(Reason(heads("y, a, b, s = Attention(q, k, v, , , , n)"), LowerTo::kAttention23),
              HasSubstr("outputs besides Y"));
}

TEST(Lower, BodiesAreRefusedByName) {
  const std::string body =
      Model("(bool c, float[B,2,M,4] p, float[B,2,S,4] u, int64[B] w) => (float[B,2,M,4] y)",
            "y = If(c) <then_branch = t () => (float[B,2,M,4] a) { a = TensorScatter(p, u, w) }, "
            "else_branch = e () => (float[B,2,M,4] b) { b = Identity(p) }>");
  EXPECT_THAT(Reason(body, LowerTo::kScatterNd), HasSubstr("it stands in a body of If y"));
}

TEST(Lower, Opsets) {
  const std::string text = Model(kScatter, "y = TensorScatter(p, u, w)");
  for (const int64_t opset : {15, 18, 22, 24}) {
    const auto lowered = Lower(Parsed(text), {LowerTo::kWhere, opset});
    ASSERT_TRUE(lowered.ok() && lowered->model);
    EXPECT_EQ(lowered->model->opset_import(0).version(), opset);
    EXPECT_LE(lowered->model->ir_version(), opset == 15 ? 8 : 12);
    EXPECT_TRUE(CheckModel(*lowered->model).ok()) << CheckModel(*lowered->model);
  }
  const std::string norm =
      Model("(float[B,2,M,4] p, float[B,2,S,4] u, float[4] g) => (float[B,2,M,4] y)",
            "n = RMSNormalization(u, g) y = TensorScatter(p, n)");
  EXPECT_THAT(Reason(norm, LowerTo::kScatterNd, 22),
              HasSubstr("RMSNormalization n needs opset 23"));
  EXPECT_EQ(Lower(Parsed(norm), {LowerTo::kScatterNd, std::nullopt})->opset, 23);
  EXPECT_THAT(Reason(Model(kScatter, "y = TensorScatter(p, u, w)"), LowerTo::kWhere, 25),
              HasSubstr("opset 25 is newer than the model's"));
  // Shape reads one extent from opset 15 on.
  EXPECT_THAT(Reason(text, LowerTo::kWhere, 14), HasSubstr("needs opset 15"));
  // An Attention with nonpad_kv_seqlen that stays keeps opset 24.
  const std::string both = Model(
      "(float[B,2,M,4] p, float[B,2,S,4] u, int64[B] w, int64[B] n) => "
      "(float[B,2,S,4] y, float[B,2,M,4] c)",
      "c = TensorScatter(p, u, w) y = Attention(u, c, c, , , , n)");
  EXPECT_THAT(Reason(both, LowerTo::kScatterNd, 23), HasSubstr("needs opset 24"));
  EXPECT_EQ(Reason(both, LowerTo::kDecomposed, 18), "");
  EXPECT_EQ(Reason(both, LowerTo::kAttention23, 23), "");
}

}  // namespace
}  // namespace kvlift
