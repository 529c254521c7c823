// LIBS: rewrite onnxio
// Raising a model's opset: what is adapted, and what is refused.
#include "rewrite/lower/opset.h"

#include <set>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

onnx::ModelProto Parse(int opset, const std::string& signature, const std::string& body) {
  auto model = ParseModelText(fmt::format(
      "<ir_version: 7, opset_import: [\"\" : {}]>\ng {} {{\n{}\n}}\n", opset, signature, body));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : onnx::ModelProto();
}

onnx::ModelProto Raised(const onnx::ModelProto& model) {
  RaisedOpset raised = RaiseOpset(model);
  EXPECT_FALSE(raised.refusal) << raised.refusal->text;
  EXPECT_TRUE(CheckModel(raised.model).ok()) << CheckModel(raised.model);
  EXPECT_EQ(raised.model.opset_import(0).version(), kTargetOpset);
  return std::move(raised.model);
}

std::string Operators(const onnx::ModelProto& model) {
  std::string text;
  for (const auto& node : model.graph().node()) {
    text += (text.empty() ? "" : " ") + node.op_type();
  }
  return text;
}

std::string Refused(const onnx::ModelProto& model) {
  const RaisedOpset raised = RaiseOpset(model);
  EXPECT_EQ(raised.model.SerializeAsString(), model.SerializeAsString());
  if (!raised.refusal) return "";
  EXPECT_EQ(raised.refusal->code, "KV201");
  return raised.refusal->text;
}

TEST(RaiseOpset, SoftmaxOnTheLastAxisStaysOne) {
  const auto model =
      Raised(Parse(11, "(float[A,B,C,D] x) => (float[A,B,C,D] y)", "y = Softmax <axis = 3> (x)"));
  EXPECT_EQ(Operators(model), "Softmax");
  EXPECT_EQ(IntAttribute(model.graph().node(0), "axis", 7), -1);
}

TEST(RaiseOpset, SoftmaxOfManyAxesIsFlattened) {
  const auto model = Raised(Parse(9, "(float[A,B,C] x) => (float[A,B,C] y)", "y = Softmax (x)"));
  EXPECT_EQ(Operators(model), "Shape Flatten Softmax Reshape");
  EXPECT_EQ(model.graph().node(3).output(0), "y");
}

// A node whose output gives it its name, and another that gives that output from now on.
TEST(RaiseOpset, NodesThatAreAddedHaveNamesOfTheirOwn) {
  for (const char* text : {"y = Softmax (x)", "[\"y\"] y = Softmax (x)",
                           "[\"y\"] z = Neg (x)\ny = LogSoftmax <axis = 1> (z)"}) {
    const auto model = Raised(Parse(11, "(float[A,B,C] x) => (float[A,B,C] y)", text));
    std::set<std::string> names;
    for (const auto& node : model.graph().node()) {
      EXPECT_TRUE(node.name().empty() || names.insert(node.name()).second) << node.name();
    }
    EXPECT_NE(Operators(model).find("Flatten"), std::string::npos);
  }
}

// Inference does not see through the shape that is computed; the forms do.
TEST(RaiseOpset, RanksThatOnlyTheFormsTell) {
  const auto model = Raised(Parse(11, "(float[A,B,C] x) => (float[A,B,E,F] y)",
                                  "s = Shape (x)\n"
                                  "zero = Constant <value = int64[1] {0}> ()\n"
                                  "two = Constant <value = int64[1] {2}> ()\n"
                                  "three = Constant <value = int64[1] {3}> ()\n"
                                  "one = Constant <value = int64[1] {1}> ()\n"
                                  "head = Slice (s, zero, two, zero)\n"
                                  "last = Slice (s, two, three, zero)\n"
                                  "shape = Concat <axis = 0> (head, one, last)\n"
                                  "r = Reshape (x, shape)\n"
                                  "y = Softmax <axis = 3> (r)"));
  EXPECT_EQ(Operators(model).find("Flatten"), std::string::npos);
}

// Merged decoders compute their shapes inside of branches.
TEST(RaiseOpset, RanksInBranchesThatOnlyTheFormsTell) {
  const auto flattens = [](const std::string& axis) {
    const auto model =
        Raised(Parse(11, "(bool c, float[A,B,4] x) => (float[A,N,M] y)",
                     "y = If (c) <then_branch = a () => (float[] t) {\n"
                     "  s = Shape (x)\n"
                     "  first = Constant <value = int64 {0}> ()\n"
                     "  rows = Gather (s, first)\n"
                     "  row = Unsqueeze <axes = [0]> (rows)\n"
                     "  two = Constant <value = int64[2] {-1, 2}> ()\n"
                     "  shape = Concat <axis = 0> (row, two)\n"
                     "  r = Reshape (x, shape)\n"
                     "  t = Softmax <axis = " +
                         axis +
                         "> (r)\n"
                         "}, else_branch = b () => (float[] f) { f = Identity (x) }>"));
    std::string operators;
    for (const auto& node : model.graph().node(0).attribute(0).g().node()) {
      operators += node.op_type() + (node.doc_string().empty() ? " " : "!");
    }
    return operators.find("Flatten") != std::string::npos ||
           operators.find('!') != std::string::npos;
  };
  EXPECT_FALSE(flattens("2"));
  EXPECT_TRUE(flattens("1"));
}

TEST(RaiseOpset, AttributesThatBecameInputs) {
  const auto model = Raised(Parse(7, "(float[A,6] x) => (float[A,2] y, float[A,2] z)",
                                  "u = Unsqueeze <axes = [0]> (x)\n"
                                  "c = Clip <min = -1.0, max = 2.0> (u)\n"
                                  "p = Pad <pads = [0, 0, 1, 0, 0, 1], value = 0.5> (c)\n"
                                  "s = Slice <starts = [1], ends = [7], axes = [2]> (p)\n"
                                  "q = Squeeze <axes = [0]> (s)\n"
                                  "a, b = Split <axis = 1, split = [4, 2]> (q)\n"
                                  "y, i = TopK <k = 2> (a)\n"
                                  "d = Dropout <ratio = 0.5> (b)\n"
                                  "z = Identity (d)"));
  std::string inputs;
  for (const auto& node : model.graph().node()) {
    inputs += fmt::format("{} {}, ", node.op_type(), node.input_size());
  }
  EXPECT_EQ(inputs,
            "Unsqueeze 2, Clip 3, Pad 3, Slice 4, Squeeze 2, Split 2, TopK 2, Dropout 1, "
            "Identity 1, ");
}

TEST(RaiseOpset, ScatterHasAnotherName) {
  const auto model = Raised(Parse(9, "(float[A,6] x, int64[A,1] i, float[A,1] u) => (float[A,6] y)",
                                  "y = Scatter <axis = 1> (x, i, u)"));
  EXPECT_EQ(Operators(model), "ScatterElements");
}

// ONNX Runtime writes LayerNormalization into models of any opset that it optimises.
TEST(RaiseOpset, LayerNormalizationOfTheRuntime) {
  const auto model = Raised(Parse(15, "(float[A,4] x, float[4] scale) => (float[A,4] y)",
                                  "y = LayerNormalization <epsilon = 0.001> (x, scale)"));
  EXPECT_EQ(Operators(model), "LayerNormalization");
  EXPECT_FLOAT_EQ(FloatAttribute(model.graph().node(0), "epsilon", 0), 0.001F);
  EXPECT_NE(Refused(Parse(15, "(float[A,4] x) => (float[A,4] y)", "y = Gelu (x)")), "");
}

TEST(RaiseOpset, Refusals) {
  EXPECT_NE(Refused(Parse(10, "(float[A] x) => (float[A] y, bool[A] m)", "y, m = Dropout (x)"))
                .find("its mask is read"),
            std::string::npos);
  EXPECT_NE(Refused(Parse(9, "(int64[A] i, int64[1] d, float[2] v) => (float[A,D] y)",
                          "y = OneHot (i, d, v)"))
                .find("its meaning has changed"),
            std::string::npos);
  EXPECT_NE(Refused(Parse(6, "(float[A] x) => (float[A] y)", "y = Relu (x)")).find("older"),
            std::string::npos);
}

}  // namespace
}  // namespace kvlift
