// LIBS: oracle
// Operands at the edge of an operator's text: what it refuses, and what it clamps.
#include <algorithm>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

namespace kvlift::oracle {
namespace {

Value Filled(int32_t type, const Dims& dims, double number) {
  if (!IsReal(type)) {
    return Value::FromIntegers(type, dims, std::vector<int64_t>(Product(dims), 3));
  }
  Reals reals(Product(dims));
  for (double& x : reals.value) x = number;
  return Value::FromReals(type, dims, std::move(reals));
}

absl::StatusOr<Values> RunText(const std::string& graph, const Values& inputs) {
  const auto model = ParseModelText(R"(<ir_version: 10, opset_import: ["" : 21]> )" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  const auto oracle = Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  EXPECT_TRUE(oracle.ok()) << oracle.status();
  int64_t work = 0;
  return oracle->Run(inputs, 1'000'000, &work);
}

// Scales of blocks have the shape of what they scale on all other axes: there is no broadcasting.
TEST(OracleRefuses, ScalesOfBlocksThatAreBroadcast) {
  const std::string graph =
      "g (int8[a,b,c] x, float[d,e,f] scale) => (float[a,b,c] y) {"
      "  y = DequantizeLinear <axis = 2, block_size = 2> (x, scale) }";
  const Value x = Filled(onnx::TensorProto::INT8, {2, 3, 4}, 0);
  const auto with = [&](const Dims& dims) {
    return RunText(graph, {{"x", x}, {"scale", Filled(onnx::TensorProto::FLOAT, dims, 0.5)}});
  };
  ASSERT_TRUE(with({2, 3, 2}).ok());
  EXPECT_EQ(with({2, 3, 2})->at("y").reals().value[0], 1.5);
  for (const Dims& dims : {Dims{1, 3, 2}, Dims{2, 1, 2}, Dims{2, 3, 1}, Dims{1, 1, 2}}) {
    EXPECT_THAT(with(dims).status().message(), ::testing::HasSubstr("scale")) << DimsText(dims);
  }
}

// A start below -extent is clamped to 0 if the step is negative, so the first element is left.
TEST(OracleClamps, StartsOfASliceThatGoesDown) {
  const std::string graph =
      "g (float[n] x) => (float[m] y)"
      "<int64[1] s = {-128}, int64[1] e = {-9223372036854775807}, int64[1] a = {0},"
      " int64[1] step = {-1}> { y = Slice (x, s, e, a, step) }";
  for (const int64_t extent : {0, 1, 3, 127, 128, 129}) {
    const auto found = RunText(graph, {{"x", Filled(onnx::TensorProto::FLOAT, {extent}, 7)}});
    ASSERT_TRUE(found.ok()) << found.status();
    const int64_t expected = extent == 0 ? 0 : std::max<int64_t>(extent - 127, 1);
    EXPECT_EQ(found->at("y").dims(), Dims{expected}) << extent;
  }
}

// A model defines an operator by a function of its name: in the graph, in bodies and in functions.
TEST(OracleFunctions, DefineTheOperatorOfTheirName) {
  const std::string functions =
      "<domain: \"com.microsoft\", opset_import: [\"\": 21]> FusedMatMul (a) => (b) { b = Neg(a) "
      "}\n"
      "<domain: \"com.microsoft\", opset_import: [\"\": 21]>"
      "MatMulNBits (a) => (b) { b = Identity(a) }\n"
      "<domain: \"\", opset_import: [\"\": 21]> Late (a) => (b) { b = Identity(a) }\n"
      "<domain: \"local\", opset_import: [\"\": 21, \"com.microsoft\": 1]>"
      "f (a) => (b) { b = com.microsoft.FusedMatMul(a) }";
  for (const char* nodes :
       {"y = com.microsoft.FusedMatMul(x)", "y = local.f(x)",
        "z = com.microsoft.FusedMatMul(x) y = com.microsoft.MatMulNBits(z)",
        "z = com.microsoft.FusedMatMul(x) y = ai.onnx.Late(z)",
        "t = Constant<value = bool {1}>() y = If(t)<then_branch = a () => (y1) {"
        "y1 = com.microsoft.FusedMatMul(x) }, else_branch = b () => (y2) { y2 = Identity(x) }>"}) {
    const auto model = ParseModelText(
        "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1, \"com.microsoft\": 1]>"
        "g (float[2] x) => (float[2] y) { " +
        std::string(nodes) + " }\n" + functions);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto oracle = Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
    ASSERT_TRUE(oracle.ok()) << oracle.status();
    int64_t work = 0;
    const auto found =
        oracle->Run({{"x", Filled(onnx::TensorProto::FLOAT, {2}, 3)}}, 1'000'000, &work);
    ASSERT_TRUE(found.ok()) << found.status() << nodes;
    EXPECT_EQ(found->at("y").reals().value[1], -3) << nodes;
  }
}

}  // namespace
}  // namespace kvlift::oracle
