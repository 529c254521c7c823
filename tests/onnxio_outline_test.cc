// LIBS: onnxio
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model.h"
#include "onnxio/outline.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

onnx::TensorProto* AddTensor(onnx::ModelProto* model, const std::string& name, int32_t type,
                             int64_t elements, const std::string& bytes) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  tensor->add_dims(elements);
  tensor->set_raw_data(bytes);
  return tensor;
}

// Returns the tensor with this name in the model that the text stands for.
onnx::TensorProto Reread(const std::string& text, const std::string& name) {
  const auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status() << "\n" << text;
  if (!model.ok()) return {};
  for (const onnx::TensorProto& tensor : model->graph().initializer()) {
    if (tensor.name() == name) return tensor;
  }
  ADD_FAILURE() << name << " is not in\n" << text;
  return {};
}

onnx::ModelProto Relu() {
  return *ParseModelText(R"(<ir_version: 10, opset_import: ["" : 24]>
g (float[2] x) => (float[2] y) { y = Relu(x) })");
}

TEST(OutlineTest, AModelWithoutWeightsIsItsText) {
  const onnx::ModelProto model = Relu();
  EXPECT_EQ(PrintModelOutline(model), PrintModelText(model) + "\n");
}

TEST(OutlineTest, LargeTensorsAreLeftOut) {
  onnx::ModelProto model = Relu();
  AddTensor(&model, "small", onnx::TensorProto::INT8, kMostOutlineElements,
            std::string(kMostOutlineElements, 'a'));
  AddTensor(&model, "large", onnx::TensorProto::INT8, kMostOutlineElements + 1,
            std::string(kMostOutlineElements + 1, 'b'));
  const std::string text = PrintModelOutline(model);
  EXPECT_THAT(text, StartsWith("# 1 tensors are left out (\"#left-out\")"));
  EXPECT_EQ(Reread(text, "small").int32_data_size(), kMostOutlineElements);
  const onnx::TensorProto large = Reread(text, "large");
  EXPECT_EQ(large.dims(0), kMostOutlineElements + 1);
  ASSERT_EQ(large.external_data_size(), 1);
  EXPECT_EQ(large.external_data(0).value(), "#left-out");
}

TEST(OutlineTest, ElementsWithoutASpellingAreLeftOut) {
  onnx::ModelProto model = Relu();
  AddTensor(&model, "int4", onnx::TensorProto::INT4, 2, "a");
  AddTensor(&model, "half", onnx::TensorProto::FLOAT16, 1, std::string("\0\x3c", 2));
  const std::string text = PrintModelOutline(model);
  EXPECT_EQ(Reread(text, "int4").data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(Reread(text, "half").int32_data(0), 0x3c00);
}

TEST(OutlineTest, NamesAreFitForATerminal) {
  onnx::ModelProto model = Relu();
  AddTensor(&model, "a\n\x1b[31m\"b\\\xff", onnx::TensorProto::INT8, 1, "a");
  model.mutable_graph()->mutable_node(0)->set_name("# \u202e");
  const std::string text = PrintModelOutline(model);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\u202e")));
  (void)Reread(text, R"(a\n\x1b[31m"b\\xff)");
}

TEST(OutlineTest, TensorsAndBodiesInAttributesCanBeReadAgain) {
  onnx::ModelProto model = Relu();
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  node->set_op_type("If");
  node->add_input("x");
  node->add_output("z");
  onnx::AttributeProto* body = node->add_attribute();
  body->set_name("then_branch");
  body->set_type(onnx::AttributeProto::GRAPH);
  body->mutable_g()->set_name("then/branch");
  for (const int64_t elements : {2, 100}) {
    onnx::NodeProto* inner = body->mutable_g()->add_node();
    inner->set_op_type("Constant");
    inner->add_output("c" + std::to_string(elements));
    onnx::AttributeProto* value = inner->add_attribute();
    value->set_name("value");
    value->set_type(onnx::AttributeProto::TENSOR);
    value->mutable_t()->set_name("onnx::value");
    value->mutable_t()->set_data_type(onnx::TensorProto::UINT8);
    value->mutable_t()->add_dims(elements);
    value->mutable_t()->set_raw_data(std::string(elements, 'a'));
  }
  const auto read = ParseModelText(PrintModelOutline(model));
  ASSERT_TRUE(read.ok()) << read.status();
  const onnx::GraphProto& inner = read->graph().node(1).attribute(0).g();
  EXPECT_EQ(inner.name(), "body_then_branch");
  EXPECT_EQ(inner.node(0).attribute(0).t().int32_data_size(), 2);
  EXPECT_EQ(inner.node(1).attribute(0).t().external_data(0).value(), "#left-out");
}

}  // namespace
}  // namespace kvlift
