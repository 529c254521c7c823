// LIBS: oracle onnxio proof
// The places that an operator is said to read (proof/graphs/operand_places.h), held against the
// oracle: an element of an operand that changes a result is among that result's places.
#include "proof/graphs/operand_places.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"
#include "proof/lower/opset13.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// One node that makes y of inputs named a, b, c, ..., of reals or of codes (uint8); other operands
// are initializers.
struct Case {
  std::string what;
  int opset;
  std::string inputs;       // "float[2,3] a"
  std::string result;       // "float[2,3] y"
  std::string constants;    // "int64[1] axes = {1}"; may be empty
  std::string node;         // "y = Neg(a)"
  std::string domain = {};  // a second domain, whose operators have version 1; may be empty
};

std::string TextOf(const Case& c) {
  const std::string second = c.domain.empty() ? "" : ", \"" + c.domain + "\" : 1";
  return "<ir_version: 10, opset_import: [\"\" : " + std::to_string(c.opset) + second + "]>\ng (" +
         c.inputs + ") => (" + c.result + ") <" + c.constants + "> {\n" + c.node + "\n}\n";
}

std::vector<int64_t> DimsOf(const onnx::ValueInfoProto& value) {
  std::vector<int64_t> dims;
  for (const auto& dim : value.type().tensor_type().shape().dim()) dims.push_back(dim.dim_value());
  return dims;
}

int64_t SizeOf(const std::vector<int64_t>& dims) {
  int64_t size = 1;
  for (int64_t dim : dims) size *= dim;
  return size;
}

// Returns the index of element number `k` of a tensor.
std::vector<int64_t> IndexOf(int64_t k, const std::vector<int64_t>& dims) {
  std::vector<int64_t> index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = k % dims[axis];
    k /= dims[axis];
  }
  return index;
}

// Returns true if `place` reads the operand's element at `theirs` for the result's one at `own`.
bool Reads(const OperandPlace& place, const std::vector<int64_t>& own,
           const std::vector<int64_t>& theirs) {
  for (size_t axis = 0; axis < theirs.size(); ++axis) {
    const sym::Expr at = place.at[axis];
    if (at->kind() == sym::Kind::kInteger) {
      if (at->value() != theirs[axis]) return false;
      continue;
    }
    if (at->kind() == sym::Kind::kSum) {  // of indices of the result, such as 3 * i0 + i1
      int64_t sum = 0;
      for (const sym::Term& term : at->terms()) {
        int64_t product = term.coefficient;
        for (const sym::Expr atom : term.atoms)
          product *= own.at(static_cast<size_t>(atom->index()));
        sum += product;
      }
      if (sum != theirs[axis]) return false;
      continue;
    }
    const auto index = static_cast<size_t>(at->index());
    if (index < own.size() && own[index] != theirs[axis]) return false;
  }
  return true;
}

class OperandPlacesOf : public testing::TestWithParam<Case> {
 protected:
  // Returns the elements of y; empty if the oracle cannot run the model, which fails the test.
  static std::vector<double> Run(const oracle::Interpreter& interpreter,
                                 const std::map<std::string, TensorProto>& tensors) {
    oracle::Values values;
    for (const auto& [name, tensor] : tensors) {
      auto value = oracle::Value::FromProto(tensor, "");
      EXPECT_TRUE(value.ok()) << value.status();
      if (value.ok()) values[name] = *std::move(value);
    }
    int64_t work = 0;
    const auto results = interpreter.Run(values, int64_t{1} << 24, &work);
    EXPECT_TRUE(results.ok()) << results.status();
    if (!results.ok()) return {};
    const oracle::Value& y = results->at("y");
    if (y.real()) return y.reals().value;
    return {y.integers().begin(), y.integers().end()};
  }
};

TEST_P(OperandPlacesOf, HoldAllThatChangesAResult) {
  auto model = ParseModelText(TextOf(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int64_t> result = DimsOf(model->graph().output(0));
  std::mt19937 rng(11);
  std::uniform_real_distribution<float> numbers(0.5F, 1.5F);
  std::map<std::string, TensorProto> tensors;
  for (const auto& input : model->graph().input()) {
    TensorProto& tensor = tensors[input.name()];
    tensor.set_data_type(input.type().tensor_type().elem_type());
    for (int64_t dim : DimsOf(input)) tensor.add_dims(dim);
    for (int64_t k = SizeOf(DimsOf(input)); k > 0; --k) {
      const bool codes = tensor.data_type() == TensorProto::UINT8;
      codes ? tensor.add_int32_data(static_cast<int32_t>(100 * numbers(rng)))
            : tensor.add_float_data(numbers(rng));
    }
  }
  auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  const std::vector<double> before = Run(*interpreter, tensors);
  ASSERT_EQ(before.size(), static_cast<size_t>(SizeOf(result)));

  const onnx::GraphProto asked = model->graph();
  auto raised = AsOpset13(*std::move(model));
  ASSERT_TRUE(raised.ok()) << raised.status();
  const auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*std::move(raised)));
  ASSERT_TRUE(graph.ok()) << graph.status();
  sym::Forms forms(*graph, {});
  const NodeId node = graph->producer(graph->Find("y"));
  const auto places = OperandPlaces(forms, node, 0);
  ASSERT_TRUE(places.has_value());
  for (const auto& input : asked.input()) {
    const std::vector<int64_t> dims = DimsOf(input);
    int changed = 0;
    for (int64_t k = 0; k < SizeOf(dims); ++k) {
      auto others = tensors;
      TensorProto& other = others[input.name()];
      other.float_data_size() > 0 ? other.set_float_data(static_cast<int>(k), 9.25F)
                                  : other.set_int32_data(static_cast<int>(k), 250);
      const std::vector<double> after = Run(*interpreter, others);
      ASSERT_EQ(after.size(), before.size());
      for (size_t r = 0; r < before.size(); ++r) {
        if (before[r] == after[r]) continue;
        ++changed;
        EXPECT_TRUE(std::any_of(
            places->begin(), places->end(),
            [&](const OperandPlace& place) {
              const ValueId read = graph->inputs(node)[static_cast<size_t>(place.input)];
              return read == graph->Find(input.name()) &&
                     Reads(place, IndexOf(static_cast<int64_t>(r), result), IndexOf(k, dims));
            }))
            << "element " << r << " reads element " << k << " of " << input.name();
      }
    }
    EXPECT_GT(changed, 0) << input.name() << " is read nowhere";
  }
}

// Results are no smaller than two along axes that places tell apart, so that a place too small
// shows.
const Case kCases[] = {
    {"Softmax13", 13, "float[2,3,4] a", "float[2,3,4] y", "", "y = Softmax <axis = 1> (a)"},
    {"Softmax12", 12, "float[2,3,4] a", "float[2,3,4] y", "", "y = Softmax <axis = 1> (a)"},
    {"Softmax12FromTheFirstAxis", 11, "float[2,3] a", "float[2,3] y", "",
     "y = Softmax <axis = 0> (a)"},
    {"Softmax12Default", 12, "float[2,3,4] a", "float[2,3,4] y", "", "y = Softmax (a)"},
    {"Softmax12Last", 12, "float[2,3,4] a", "float[2,3,4] y", "", "y = Softmax <axis = -1> (a)"},
    {"Softmax12LastButOne", 12, "float[2,3,4] a", "float[2,3,4] y", "",
     "y = Softmax <axis = -2> (a)"},
    {"LogSoftmax12", 12, "float[2,3,4] a", "float[2,3,4] y", "", "y = LogSoftmax <axis = 1> (a)"},
    {"Hardmax12", 12, "float[2,3,4] a", "float[2,3,4] y", "", "y = Hardmax <axis = 1> (a)"},
    {"Broadcast", 20, "float[2,1,4] a, float[3,1] b", "float[2,3,4] y", "", "y = Add (a, b)"},
    {"Where", 20, "float[2,3] a, float[3] b", "float[2,3] y", "bool[2,1] c = {1, 0}",
     "y = Where (c, a, b)"},
    {"MatMul", 20, "float[2,2,3] a, float[3,4] b", "float[2,2,4] y", "", "y = MatMul (a, b)"},
    {"Gemm", 20, "float[3,2] a, float[4,3] b, float[4] c", "float[2,4] y", "",
     "y = Gemm <transA = 1, transB = 1> (a, b, c)"},
    {"ReduceSum", 20, "float[2,3,4] a", "float[2,4] y", "int64[1] axes = {1}",
     "y = ReduceSum <keepdims = 0> (a, axes)"},
    {"ReduceMeanOfAll", 20, "float[2,3] a", "float[1,1] y", "", "y = ReduceMean (a)"},
    {"ReduceMaxOfAttribute", 12, "float[2,3,4] a", "float[2,1,4] y", "",
     "y = ReduceMax <axes = [-2]> (a)"},
    {"GlobalAveragePool", 20, "float[2,3,4] a", "float[2,3,1] y", "", "y = GlobalAveragePool (a)"},
    {"Gather", 20, "float[2,3,4] a", "float[2,2,4] y", "int64[2] rows = {2, 0}",
     "y = Gather <axis = 1> (a, rows)"},
    {"GatherElements", 20, "float[2,3] a", "float[2,2] y", "int64[2,2] rows = {2, 0, 1, 1}",
     "y = GatherElements <axis = 1> (a, rows)"},
    {"GatherND", 20, "float[2,3,4] a", "float[2,4] y", "int64[2,1] rows = {2, 0}",
     "y = GatherND <batch_dims = 1> (a, rows)"},
    {"ScatterElements", 20, "float[2,3] a, float[2,1] b", "float[2,3] y", "int64[2,1] at = {2, 0}",
     "y = ScatterElements <axis = 1> (a, at, b)"},
    {"CumSum", 20, "float[2,3,2] a", "float[2,3,2] y", "int64 axis = {1}", "y = CumSum (a, axis)"},
    {"EinsumOfTwo", 20, "float[2,3,4] a, float[2,5,4] b", "float[2,3,5] y", "",
     "y = Einsum <equation = \"bqd,bkd->bqk\"> (a, b)"},
    {"LayerNormalization", 20, "float[2,3,4] a, float[4] b, float[4] c", "float[2,3,4] y", "",
     "y = LayerNormalization <axis = -1> (a, b, c)"},
    {"LayerNormalizationOfTwoAxes", 20, "float[2,3,4] a, float[3,4] b", "float[2,3,4] y", "",
     "y = LayerNormalization <axis = 1> (a, b)"},
    {"RMSNormalization", 23, "float[2,3,4] a, float[4] b", "float[2,3,4] y", "",
     "y = RMSNormalization (a, b)"},
    {"GroupNormalization", 21, "float[2,4,3] a, float[4] b, float[4] c", "float[2,4,3] y", "",
     "y = GroupNormalization <num_groups = 2> (a, b, c)"},
    {"Conv", 20, "float[2,3,5] a, float[2,3,2] b", "float[2,2,4] y", "", "y = Conv (a, b)"},
    {"Attention", 24, "float[2,2,3,4] a, float[2,2,5,4] b, float[2,2,5,4] c, float[2,1,3,5] d",
     "float[2,2,3,4] y", "", "y = Attention (a, b, c, d)"},
    {"AttentionOfASharedMask", 24,
     "float[2,2,3,4] a, float[2,2,5,4] b, float[2,2,5,4] c, float[2,3,5] d", "float[2,2,3,4] y", "",
     "y = Attention (a, b, c, d)"},
    {"AttentionOfRows", 24, "float[2,3,8] a, float[2,5,8] b, float[2,5,8] c, float[3,5] d",
     "float[2,3,8] y", "", "y = Attention <q_num_heads = 2, kv_num_heads = 2> (a, b, c, d)"},
    {"RotaryEmbedding", 23, "float[2,2,3,4] a, float[6,2] b, float[6,2] c", "float[2,2,3,4] y",
     "int64[2,3] at = {0, 1, 2, 3, 4, 5}", "y = RotaryEmbedding (a, b, c, at)"},
    {"RotaryEmbeddingOfTables", 23, "float[2,2,3,4] a, float[2,3,2] b, float[2,3,2] c",
     "float[2,2,3,4] y", "", "y = RotaryEmbedding (a, b, c)"},
    {"RotaryEmbeddingOfRows", 23, "float[2,3,8] a, float[2,3,2] b, float[2,3,2] c",
     "float[2,3,8] y", "", "y = RotaryEmbedding <num_heads = 2> (a, b, c)"},
    {"DequantizeLinear", 21, "float[3] a", "float[2,3] y",
     "uint8[2,3] q = {9, 8, 7, 6, 5, 4}, uint8[3] zero = {3, 2, 1}",
     "y = DequantizeLinear <axis = 1> (q, a, zero)"},
    {"SkipLayerNormalization", 20, "float[2,3,4] a, float[2,3,4] b, float[4] c, float[4] d",
     "float[2,3,4] y", "", "y = com.microsoft.SkipLayerNormalization (a, b, c, d)",
     "com.microsoft"},
    {"EmbedLayerNormalization", 20, "float[5,4] a, float[6,4] b, float[4] c, float[4] d",
     "float[2,3,4] y", "int32[2,3] ids = {4, 0, 2, 1, 3, 3}, int32[1,3] at = {5, 1, 2}",
     "y = com.microsoft.EmbedLayerNormalization (ids, , a, b, , c, d, , at)", "com.microsoft"},
    {"MultiHeadAttention", 20, "float[2,3,8] a, float[2,5,8] b, float[2,5,8] c", "float[2,3,8] y",
     "", "y = com.microsoft.MultiHeadAttention <num_heads = 2> (a, b, c)", "com.microsoft"},
    {"MultimodalRotaryEmbedding", 20, "float[2,3,8] a, float[6,2] b, float[6,2] c",
     "float[2,3,8] y", "int64[3,2,3] at = {0,1,2,3,4,5, 5,4,3,2,1,0, 1,1,2,2,3,3}",
     "y = com.microsoft.MRotaryEmbedding <num_heads = 2, mrope_section = [1, 1, 0]> (a, at, b, c)",
     "com.microsoft"},
    {"MultimodalRotaryEmbeddingOfHeads", 20, "float[2,2,3,4] a, float[6,2] b, float[6,2] c",
     "float[2,2,3,4] y", "int64[3,2,3] at = {0,1,2,3,4,5, 5,4,3,2,1,0, 1,1,2,2,3,3}",
     "y = com.microsoft.MRotaryEmbedding <mrope_section = [1, 0, 1], mrope_layout = 0> (a, at, b, "
     "c)",
     "com.microsoft"},
    {"QLinearAdd", 20, "uint8[2,1,4] a, uint8[3,1] b", "uint8[2,3,4] y",
     "float s = {0.5}, uint8 z = {60}", "y = com.microsoft.QLinearAdd (a, s, z, b, s, z, s, z)",
     "com.microsoft"},
    {"QLinearSigmoid", 20, "uint8[2,3] a", "uint8[2,3] y",
     "float s = {0.02}, float t = {0.004}, uint8 z = {60}",
     "y = com.microsoft.QLinearSigmoid (a, s, z, t, z)", "com.microsoft"},
    {"QLinearSoftmax13", 20, "uint8[2,3,4] a", "uint8[2,3,4] y",
     "float s = {0.01}, float t = {0.004}, uint8 z = {0}",
     "y = com.microsoft.QLinearSoftmax <axis = 1, opset = 13> (a, s, z, t, z)", "com.microsoft"},
    {"QLinearSoftmax11", 20, "uint8[2,3,4] a", "uint8[2,3,4] y",
     "float s = {0.01}, float t = {0.004}, uint8 z = {0}",
     "y = com.microsoft.QLinearSoftmax <axis = 1, opset = 11> (a, s, z, t, z)", "com.microsoft"},
    {"QLinearMatMul", 20, "uint8[2,2,3] a, uint8[3,4] b", "uint8[2,2,4] y",
     "float s = {0.05}, float t = {0.5}, uint8 z = {60}",
     "y = QLinearMatMul (a, s, z, b, s, z, t, z)"},
    {"QGemm", 20, "uint8[2,3] a, uint8[4,3] b", "float[2,4] y",
     "float s = {0.05}, uint8 z = {60}, float[4] l = {0.1, 0.2, 0.3, 0.4}, uint8[4] m = {1, 2, 3, "
     "4}",
     "y = com.microsoft.QGemm <transB = 1> (a, s, z, b, l, m)", "com.microsoft"},
};

// The first axis of the past of com.microsoft's Attention is that of keys and values.
TEST(OperandPlaces, AttentionOfComMicrosoftIsNotInTheTable) {
  auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]>\n"
      "g (float[2,3,8] a, float[8,24] b, float[2,2,2,5,4] c) => (float[2,3,8] y) {\n"
      "y = com.microsoft.Attention <num_heads = 2> (a, b, , , c)\n}\n");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*std::move(model)));
  ASSERT_TRUE(graph.ok()) << graph.status();
  sym::Forms forms(*graph, {});
  EXPECT_FALSE(OperandPlaces(forms, graph->producer(graph->Find("y")), 0).has_value());
}

INSTANTIATE_TEST_SUITE_P(Operators, OperandPlacesOf, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.what; });

}  // namespace
}  // namespace kvlift
