// LIBS: oracle onnxio proof
// The lemmas of lib/proof/lemmas, held against the oracle: each statement holds for random numbers,
// and without each of its side conditions it does not.
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model.h"
#include "oracle/interpreter.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Numbers {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

using Inputs = std::map<std::string, Numbers>;

oracle::Value Given(const Numbers& numbers, int32_t type) {
  TensorProto tensor;
  tensor.set_data_type(type);
  for (int64_t dim : numbers.dims) tensor.add_dims(dim);
  for (double x : numbers.values) {
    if (type == TensorProto::FLOAT) {
      tensor.add_float_data(static_cast<float>(x));
    } else if (type == TensorProto::INT64) {
      tensor.add_int64_data(static_cast<int64_t>(x));
    } else {
      tensor.add_int32_data(static_cast<int32_t>(x));
    }
  }
  auto value = oracle::Value::FromProto(tensor, "");
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}

// What the graph "name (inputs) => (float[...] y) {nodes}" of opset 24 gives.
std::vector<double> Result(const std::string& graph, const Inputs& inputs) {
  SCOPED_TRACE(graph);
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\" : 24]>\n" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  oracle::Values values;
  for (const auto& input : model->graph().input()) {
    values[input.name()] = Given(inputs.at(input.name()), input.type().tensor_type().elem_type());
  }
  const auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  int64_t work = 0;
  const auto result = interpreter->Run(values, int64_t{1} << 30, &work);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  return result->at("y").reals().value;
}

bool AreNear(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (!(std::abs(a[k] - b[k]) <= 1e-5 * (1 + std::abs(b[k])))) return false;
  }
  return true;
}

Numbers Random(std::vector<int64_t> dims, std::mt19937& rng, double scale = 1) {
  Numbers numbers{std::move(dims), {}};
  int64_t size = 1;
  for (int64_t dim : numbers.dims) size *= dim;
  std::normal_distribution<double> normal(0, scale);
  for (int64_t k = 0; k < size; ++k) numbers.values.push_back(normal(rng));
  return numbers;
}

constexpr char kHead[] = "g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v, ";

// softmax(0.5 q k + bias) v, written out.
std::string WrittenOut(const std::string& guard = "w = Identity(p)") {
  return fmt::format(
      "{}float[1,1,3,5] bias) => (float[1,2,3,4] y) <float half = {{0.5}}, float zero = {{0}}> {{\n"
      "kt = Transpose<perm = [0, 1, 3, 2]>(k)\n s = MatMul(q, kt)\n t = Mul(s, half)\n"
      "b = Add(t, bias)\n p = Softmax<axis = -1>(b)\n {}\n y = MatMul(w, v)\n}}",
      kHead, guard);
}

std::string Operator(const std::string& mask_type, const std::string& attributes = "") {
  return fmt::format("{}{} mask) => (float[1,2,3,4] y) {{ y = Attention<{}>(q, k, v, mask) }}",
                     kHead, mask_type, attributes.empty() ? "is_causal = 0" : attributes);
}

class Lemmas : public testing::Test {
 protected:
  void SetUp() override {
    inputs_["q"] = Random({1, 2, 3, 4}, rng_);
    inputs_["k"] = Random({1, 2, 5, 4}, rng_);
    inputs_["v"] = Random({1, 2, 5, 4}, rng_);
  }

  // A row sees keys [0, seen[row]); others get `number`.
  void SetMask(const std::vector<int>& seen, double number) {
    Numbers bias{{1, 1, 3, 5}, {}}, mask{{1, 1, 3, 5}, {}};
    for (int row = 0; row < 3; ++row) {
      for (int key = 0; key < 5; ++key) {
        bias.values.push_back(key < seen[row] ? 0 : number);
        mask.values.push_back(key < seen[row] ? 1 : 0);
      }
    }
    inputs_["bias"] = bias;
    inputs_["mask"] = mask;
  }

  std::mt19937 rng_{7};
  Inputs inputs_;
};

TEST_F(Lemmas, FiniteMinimum) {
  const std::string masked = Operator("bool[1,1,3,5]");
  for (double number : {-1e4, -1e9, -3.4028234e38}) {
    SetMask({1, 3, 5}, number);
    EXPECT_TRUE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_))) << number;
  }
  // Without a key that is seen, the average of all values takes the place of nothing.
  SetMask({0, 3, 5}, -3.4028234e38);
  EXPECT_FALSE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_)));
  // Without scores that lie near each other, a hidden key is the largest.
  SetMask({1, 3, 5}, -1e4);
  for (double& x : inputs_["q"].values) x *= 1e3;
  for (double& x : inputs_["k"].values) x *= 1e3;
  EXPECT_FALSE(AreNear(Result(WrittenOut(), inputs_), Result(masked, inputs_)));
}

TEST_F(Lemmas, NanGuard) {
  const std::string masked = Operator("bool[1,1,3,5]");
  const std::string guard = "n = IsNaN(p)\n w = Where(n, zero, p)";
  SetMask({2, 3, 5}, -kInf);
  EXPECT_TRUE(AreNear(Result(WrittenOut(guard), inputs_), Result(masked, inputs_)));
  // Where all keys are hidden the guard gives 0.
  SetMask({0, 3, 5}, -kInf);
  const std::vector<double> guarded = Result(WrittenOut(guard), inputs_);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(guarded[k], 0);
  // Another value than the one that is handed on.
  SetMask({2, 3, 5}, -kInf);
  EXPECT_FALSE(AreNear(
      Result(WrittenOut("o = Sub(bias, bias)\n n = IsNaN(o)\n w = Where(n, half, p)"), inputs_),
      Result(masked, inputs_)));
}

TEST_F(Lemmas, ScaleMoved) {
  SetMask({5, 5, 5}, 0);
  const std::vector<double> plain = Result(WrittenOut(), inputs_);
  const std::string moved = Operator("bool[1,1,3,5]", "scale = 0.25");
  EXPECT_FALSE(AreNear(plain, Result(moved, inputs_)));
  for (double& x : inputs_["q"].values) x *= 2;
  EXPECT_TRUE(AreNear(plain, Result(moved, inputs_)));
}

TEST_F(Lemmas, MaskSplit) {
  SetMask({1, 2, 3}, -kInf);
  const std::vector<double> plain = Result(WrittenOut(), inputs_);
  Numbers all{{1, 1, 3, 5}, std::vector<double>(15, 1)};
  inputs_["mask"] = all;
  EXPECT_TRUE(AreNear(plain, Result(Operator("bool[1,1,3,5]", "is_causal = 1"), inputs_)));
  EXPECT_FALSE(AreNear(plain, Result(Operator("bool[1,1,3,5]"), inputs_)));
}

// The largest of lengths is at least each of them; a mean, a minimum, or the first one is not.
TEST_F(Lemmas, LongestSequence) {
  const Inputs in = {{"n", Numbers{{3}, {2, 7, 4}}}};
  const auto reduced = [&](const std::string& op) {
    return Result(fmt::format("g (int64[3] n) => (int64[1] y) {{ y = {}(n) }}", op), in).at(0);
  };
  for (const double own : in.at("n").values) EXPECT_GE(reduced("ReduceMax"), own);
  EXPECT_LT(reduced("ReduceMin"), 7);
  EXPECT_LT(reduced("ReduceMean"), 7);
}

TEST_F(Lemmas, LongerTable) {
  const auto lookup = [&](int rows, const std::string& index) {
    Inputs in = {{"i", Numbers{{2}, {}}}, {"t", Numbers{{rows}, {}}}};
    in["i"].values = index == "front" ? std::vector<double>{0, 2} : std::vector<double>{0, -1};
    for (int k = 0; k < rows; ++k) in["t"].values.push_back(10.0 * k);
    return Result(
        fmt::format("g (float[{}] t, int64[2] i) => (float[2] y) {{ y = Gather(t, i) }}", rows),
        in);
  };
  EXPECT_EQ(lookup(3, "front"), lookup(5, "front"));
  EXPECT_NE(lookup(3, "end"), lookup(5, "end"));
}

}  // namespace
}  // namespace kvlift
