// LIBS: rewrite onnxio
// SimplifiedLayerNormalization as ONNX Runtime's optimiser writes it.
#include "rewrite/lower/simplified_norm.h"

#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

onnx::ModelProto Parsed(const std::string& outputs, const std::string& nodes) {
  auto model = ParseModelText(
      "<ir_version: 12, opset_import: [\"\" : 24]>\n"
      "norm (float[B,S,8] x, float[8] scale) => (" +
      outputs + ")\n{" + nodes + "}");
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(SimplifiedNorm, IsAnRmsNormalization) {
  onnx::ModelProto model = Parsed(
      "float[B,S,8] y", "y = SimplifiedLayerNormalization<epsilon = 1e-6, axis = -1>(x, scale)");
  ASSERT_FALSE(CheckModel(model).ok()) << "ONNX does not know the operator";
  ReplaceSimplifiedNorms(&model);
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  EXPECT_EQ(model.graph().node(0).op_type(), "RMSNormalization");
  EXPECT_EQ(model.graph().node(0).attribute_size(), 2);
  EXPECT_TRUE(InferShapes(model).ok());
}

TEST(SimplifiedNorm, StaysWhereItsSecondOutputIsRead) {
  onnx::ModelProto model = Parsed("float[B,S,8] y, float[B,S,1] inverse",
                                  "y, inverse = SimplifiedLayerNormalization<axis = -1>(x, scale)");
  ReplaceSimplifiedNorms(&model);
  EXPECT_EQ(model.graph().node(0).op_type(), "SimplifiedLayerNormalization");
}

}  // namespace
}  // namespace kvlift
