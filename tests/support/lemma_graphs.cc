#include "support/lemma_graphs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

oracle::Value Given(const Numbers& numbers, int32_t type) {
  TensorProto tensor;
  tensor.set_data_type(type);
  for (int64_t dim : numbers.dims) tensor.add_dims(dim);
  for (double x : numbers.values) {
    if (type == TensorProto::DOUBLE) {
      tensor.add_double_data(x);
    } else if (type == TensorProto::FLOAT) {
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

oracle::Reals Run(const std::string& graph, const Inputs& inputs, bool may_fail) {
  SCOPED_TRACE(graph);
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\" : 24]>\n" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return oracle::Reals();
  oracle::Values values;
  for (const auto& input : model->graph().input()) {
    values[input.name()] = Given(inputs.at(input.name()), input.type().tensor_type().elem_type());
  }
  const auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  int64_t work = 0;
  const auto result = interpreter->Run(values, int64_t{1} << 30, &work);
  EXPECT_TRUE(result.ok() || may_fail) << result.status();
  if (!result.ok()) return oracle::Reals();
  return result->at("y").reals();
}

}  // namespace

std::vector<double> Result(const std::string& graph, const Inputs& inputs, bool may_fail) {
  return Run(graph, inputs, may_fail).value;
}

double Bound(const std::string& graph, const Inputs& inputs) {
  const std::vector<double> worst = Run(graph, inputs, false).worst;
  return worst.empty() ? 0 : *std::max_element(worst.begin(), worst.end());
}

bool AreNear(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (!(std::abs(a[k] - b[k]) <= 1e-5 * (1 + std::abs(b[k])))) return false;
  }
  return true;
}

Numbers Random(std::vector<int64_t> dims, std::mt19937& rng, double scale) {
  Numbers numbers{std::move(dims), {}};
  int64_t size = 1;
  for (int64_t dim : numbers.dims) size *= dim;
  std::normal_distribution<double> normal(0, scale);
  for (int64_t k = 0; k < size; ++k) numbers.values.push_back(normal(rng));
  return numbers;
}

std::string WrittenOut(const std::string& weights, const std::string& scores) {
  return fmt::format(
      "{}float[1,1,3,5] bias) => (float[1,2,3,4] y) <float half = {{0.5}}, float zero = {{0}}, "
      "float minus = {{-1}}, float two = {{2}}, float none = {{inf}}> {{\n"
      "kt = Transpose<perm = [0, 1, 3, 2]>(k)\n s = MatMul(q, kt)\n {}\n"
      "p = Softmax<axis = -1>(b)\n {}\n y = MatMul(w, v)\n}}",
      kHead, scores, weights);
}

std::string Operator(const std::string& mask_type, const std::string& attributes) {
  return fmt::format("{}{} mask) => (float[1,2,3,4] y) {{ y = Attention<{}>(q, k, v, mask) }}",
                     kHead, mask_type, attributes.empty() ? "is_causal = 0" : attributes);
}

}  // namespace kvlift
