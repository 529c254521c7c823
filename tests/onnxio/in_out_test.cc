// LIBS: onnxio
// KeyValueCache as a pure function: presents that are chained and given, and what its schema says.
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/functional_form.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

// Nodes and outputs of a model with rows k, v and tensors cache and scale.
onnx::ModelProto Parsed(const std::string& outputs, const std::string& nodes) {
  auto model = ParseModelText(fmt::format(
      R"(<ir_version: 8, opset_import: ["" : 17, "pmx" : 1, "opmx" : 1]>
decoder (float[B,S,2,8] k, float[B,S,2,8] v, int64 start, int8[B,2,2,M,2,8] cache,
         float[B,2,2,M,2,2] scale) => ({}) {{ {} }})",
      outputs, nodes));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : onnx::ModelProto();
}

constexpr char kOutputs[] =
    "float[B,T,2,8] a, float[B,T,2,8] b, float[B,T,2,8] c, float[B,T,2,8] d";
constexpr char kLayers[] =
    "a, b = pmx.KeyValueCache<num_layer = 2, quant_bit = 8, quant_group = 4>"
    "(k, v, start, cache, scale)\n"
    "c, d = opmx.KeyValueCache<num_layer = 2, layer_idx = 1, quant_bit = 8, quant_group = 4>"
    "(k, v, start, cache, scale)";

std::vector<std::string> Outputs(const onnx::NodeProto& node) {
  return {node.output().begin(), node.output().end()};
}

TEST(InOut, EachLayerReadsWhatTheOneBeforeLeft) {
  onnx::ModelProto model = Parsed(kOutputs, kLayers);
  NamePresents(&model);
  const onnx::GraphProto& graph = model.graph();
  EXPECT_EQ(Outputs(graph.node(0)),
            (std::vector<std::string>{"a", "b", "present_cache_early", "present_scale_early"}));
  EXPECT_EQ(graph.node(0).input(3), "cache");
  EXPECT_EQ(graph.node(1).input(3), "present_cache_early");
  EXPECT_EQ(graph.node(1).input(4), "present_scale_early");
  EXPECT_EQ(Outputs(graph.node(1)),
            (std::vector<std::string>{"c", "d", "present_cache", "present_scale"}));
  ASSERT_EQ(graph.output_size(), 6);
  EXPECT_EQ(graph.output(4).name(), "present_cache");
  EXPECT_EQ(graph.output(5).name(), "present_scale");
  EXPECT_EQ(graph.output(4).type().tensor_type().elem_type(), onnx::TensorProto::INT8);
  EXPECT_EQ(graph.output(5).type().tensor_type().shape().dim_size(), 6);
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  const std::string once = model.SerializeAsString();
  NamePresents(&model);
  EXPECT_EQ(model.SerializeAsString(), once);
}

// What stands after what it needs may stand anywhere in the file.
TEST(InOut, NodesAreChainedInAnOrderOfExecution) {
  onnx::ModelProto model =
      Parsed("float[B,T,2,8] c",
             "x, y = pmx.KeyValueCache<num_layer = 2>(k, v, start, cache)\n"
             "c, d = pmx.KeyValueCache<num_layer = 2, layer_idx = 1>(k2, v, start, cache)\n"
             "k2 = Slice(x, z, z, z)\n z = Constant<value = int64[1] {0}>()");
  NamePresents(&model);
  EXPECT_EQ(model.graph().node(0).input(3), "cache");
  EXPECT_EQ(model.graph().node(1).input(3), "present_cache_early");
}

TEST(InOut, TensorsThatSomethingElseReadsStay) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"float[B,T,2,8] a, int8[B,2,2,M,2,8] e",
       "a, b = pmx.KeyValueCache<num_layer = 2>(k, v, start, cache)\n e = Identity(cache)"},
      {"float[B,T,2,8] a",
       "own = Identity(cache)\n a, b = pmx.KeyValueCache<num_layer = 2>(k, v, start, own)"},
      {"float[B,T,2,8] a",
       "a, b = pmx.KeyValueCache<num_layer = 2>(k, v, start, cache)\n"
       "c, d = pmx.KeyValueCache<num_layer = 2>(k, v, start, cache, cache)"},
      {"float[B,T,2,8] a", "a, b = other.KeyValueCache<num_layer = 2>(k, v, start, cache)"}};
  for (const auto& [outputs, nodes] : cases) {
    onnx::ModelProto model = Parsed(outputs, nodes);
    const std::string before = model.SerializeAsString();
    NamePresents(&model);
    EXPECT_EQ(model.SerializeAsString(), before) << nodes;
  }
}

TEST(InOut, TheShapeOfATensorMayBeRead) {
  onnx::ModelProto model =
      Parsed("float[B,T,2,8] a, int64[6] e",
             "a, b = pmx.KeyValueCache<num_layer = 2>(k, v, start, cache)\n e = Shape(cache)");
  NamePresents(&model);
  EXPECT_EQ(model.graph().output_size(), 3);
}

constexpr char kJoined[] =
    R"(<ir_version: 8, opset_import: ["" : 17, "pmx.dynamic_batching" : 1]>
decoder (float[S,2,8] k, float[S,2,8] v, int64[2] seqstarts, int64[2] kvstarts, int64[1] places,
         int64[1] start, int64 most, int64 longest, int8[M,2,2,2,8] cache, float[M,2,2,2,2] scale)
    => (float[T,4,8] c, float[T,4,8] d) {
  a, b = pmx.dynamic_batching.KeyValueCache<num_layer = 2, quant_bit = 8, quant_group = 4,
      num_repeat = 2>(k, v, seqstarts, kvstarts, places, start, most, longest, cache, scale)
  c, d = pmx.dynamic_batching.KeyValueCache<num_layer = 2, layer_idx = 1, quant_bit = 8,
      quant_group = 4, num_repeat = 2, cache_mode = 0, page_size = 64>
      (k, v, seqstarts, kvstarts, places, start, most, longest, cache, scale)
})";

TEST(InOut, TheFormThatJoinsSequencesHasItsTensorsLast) {
  auto parsed = ParseModelText(kJoined);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  onnx::ModelProto model = *std::move(parsed);
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  NamePresents(&model);
  const onnx::GraphProto& graph = model.graph();
  EXPECT_EQ(Outputs(graph.node(0)),
            (std::vector<std::string>{"a", "b", "present_cache_early", "present_scale_early"}));
  EXPECT_EQ(graph.node(1).input(2), "seqstarts");
  EXPECT_EQ(graph.node(1).input(8), "present_cache_early");
  EXPECT_EQ(graph.node(1).input(9), "present_scale_early");
  ASSERT_EQ(graph.output_size(), 4);
  EXPECT_EQ(graph.output(2).name(), "present_cache");
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  const auto inferred = InferShapes(model);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  for (const auto& value : inferred->graph().value_info()) {
    const auto& shape = value.type().tensor_type().shape();
    if (value.name() == "a") {
      ASSERT_EQ(shape.dim_size(), 3);
      EXPECT_EQ(shape.dim(1).dim_value(), 4);
    }
    if (value.name() == "present_scale_early") {
      EXPECT_EQ(shape.dim_size(), 5);
    }
  }
}

TEST(InOut, CheckerAndInferenceKnowTheOperator) {
  const onnx::ModelProto model = Parsed(kOutputs, kLayers);
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  const onnx::ModelProto repeated =
      Parsed("float e",
             "x, y = pmx.KeyValueCache<num_layer = 2, num_repeat = 3>(k, v, start, "
             "cache)\n e = ReduceSum<keepdims = 0>(y)");
  const auto inferred = InferShapes(repeated);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  bool found = false;
  for (const auto& value : inferred->graph().value_info()) {
    if (value.name() != "x") continue;
    found = true;
    ASSERT_EQ(value.type().tensor_type().shape().dim_size(), 4);
    EXPECT_EQ(value.type().tensor_type().shape().dim(2).dim_value(), 6);
    EXPECT_EQ(value.type().tensor_type().shape().dim(3).dim_value(), 8);
  }
  EXPECT_TRUE(found);
  const std::string unknown = "a, b = pmx.KeyValueCache<what = 2>(k, v, start, cache)";
  EXPECT_FALSE(CheckModel(Parsed("float[B,T,2,8] a", unknown)).ok());
  EXPECT_FALSE(CheckModel(Parsed("float[B,T,2,8] a", "a, b = pmx.KeyValueCache(k, v)")).ok());
}

}  // namespace
}  // namespace kvlift
