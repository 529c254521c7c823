// LIBS: freeze onnxio
// Shapes of frozen models are numbers, what follows from them is folded, and a size that is not
// known before the model runs is refused.
#include "freeze/freeze.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

onnx::ModelProto Parsed(const std::string& nodes, const std::string& result = "float[B,S] y") {
  const auto model = ParseModelText(
      "<ir_version: 12, opset_import: [\"\" : 24]>\n"
      "g (float[B,2,16,4] past, float[B,2,S,4] rows, float[B,S] x, int64[B] w) => (" +
      result +
      ", float[B,2,16,4] present)\n"
      "<int64[1] one = {1}, int64[1] minus = {-1}, int64 zero = {0}, int64 step = {1}>\n"
      "{ present = TensorScatter(past, rows, w)\n" +
      nodes + "}");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.value_or(onnx::ModelProto());
}

Manifest Relation() {
  Manifest manifest;
  manifest.inputs = {{"past", CacheInput{"0"}}, {"rows"}, {"x"}, {"w", ControlInput{}}};
  ManifestCache cache;
  cache.id = "0";
  cache.input = "past";
  cache.output = "present";
  cache.layout = "BNSD";
  manifest.caches = {cache};
  return manifest;
}

Frozen FrozenOf(const onnx::ModelProto& model, FreezeSizes sizes = {2, 3, {}}) {
  auto frozen = Freeze(model, Relation(), sizes);
  EXPECT_TRUE(frozen.ok()) << frozen.status();
  return frozen.ok() ? *std::move(frozen) : Frozen();
}

std::string Refusal(const Frozen& frozen) {
  EXPECT_FALSE(frozen.model.has_value());
  return frozen.refusal ? frozen.refusal->code + " " + frozen.refusal->text : "";
}

std::vector<std::string> Operators(const Frozen& frozen) {
  std::vector<std::string> operators;
  for (const auto& node : frozen.model->graph().node()) operators.push_back(node.op_type());
  std::sort(operators.begin(), operators.end());
  return operators;
}

TEST(Freeze, FoldsWhatFollowsFromShapes) {
  const Frozen frozen = FrozenOf(
      Parsed("s = Shape(x)\n n = Gather(s, step)\n counted = Range(zero, n, step)\n"
             "flat = Reshape(x, minus)\n back = Reshape(flat, s)\n real = Cast<to = 1>(counted)\n"
             "y = Add(back, real)\n"));
  ASSERT_TRUE(frozen.model) << Refusal(frozen);
  EXPECT_THAT(Operators(frozen), ElementsAre("Add", "Cast", "Reshape", "Reshape", "TensorScatter"));
}

TEST(Freeze, RefusesAShapeThatDependsOnData) {
  const Frozen frozen =
      FrozenOf(Parsed("found = NonZero(x)\n y = Cast<to = 1>(found)\n", "float[two, many] y"));
  EXPECT_THAT(Refusal(frozen), HasSubstr("KV261 the shape of found of NonZero"));
  EXPECT_THAT(frozen.refusal->values, ElementsAre("found"));
  EXPECT_EQ(frozen.refusal->code, "KV261");
}

TEST(Freeze, RefusesSizesThatDoNotFit) {
  const onnx::ModelProto model = Parsed("y = Neg(x)\n");
  EXPECT_THAT(Refusal(FrozenOf(model, {std::nullopt, 3, {}})), HasSubstr("KV260 batch"));
  EXPECT_THAT(Refusal(FrozenOf(model, {2, std::nullopt, {}})), HasSubstr("KV260 tokens"));
  EXPECT_THAT(Refusal(FrozenOf(model, {2, 17, {}})), HasSubstr("has room for 16 new tokens"));
  EXPECT_THAT(Refusal(FrozenOf(model, {2, 3, {{"S", 4}}})), HasSubstr("both 3 and 4"));
  EXPECT_THAT(Refusal(FrozenOf(model, {2, 3, {{"Q", 4}}})),
              HasSubstr("no input of the result declares a dimension Q"));
  EXPECT_THAT(Refusal(FrozenOf(model, {2, 3, {{"past.shape[2]", 8}}})),
              HasSubstr("the model is made for 16"));
}

TEST(Freeze, DeclaresEveryValue) {
  const Frozen frozen = FrozenOf(Parsed("z = Neg(x)\n y = Exp(z)\n"));
  ASSERT_TRUE(frozen.model) << Refusal(frozen);
  EXPECT_EQ(PrintModelText(*frozen.model).find("[B"), std::string::npos);
  ASSERT_EQ(frozen.model->graph().value_info_size(), 1);
  const auto& z = frozen.model->graph().value_info(0);
  EXPECT_EQ(z.name(), "z");
  EXPECT_EQ(z.type().tensor_type().shape().dim(1).dim_value(), 3);
  ASSERT_TRUE(frozen.manifest.frozen);
  EXPECT_EQ(frozen.manifest.frozen->batch, 2);
  EXPECT_EQ(frozen.manifest.frozen->tokens, 3);
}

}  // namespace
}  // namespace kvlift
