// LIBS: ir
// The table of elementwise operators against ONNX's schemas.
#include "ir/operators/operator_traits.h"

#include <string>

#include "gtest/gtest.h"
#include "onnx/defs/schema.h"

namespace kvlift {
namespace {

using Operands = ElementwiseOperator::Operands;

onnx::NodeProto NodeOf(std::string_view op_type, const std::string& domain) {
  onnx::NodeProto node;
  node.set_op_type(std::string(op_type));
  node.set_domain(domain);
  return node;
}

TEST(OperatorTraits, AgreeWithTheSchemas) {
  int standard = 0;
  for (const ElementwiseOperator& op : ElementwiseOperators()) {
    if (op.is_contrib) continue;
    ++standard;
    SCOPED_TRACE(op.op_type);
    const auto* schema = onnx::OpSchemaRegistry::Schema(std::string(op.op_type));
    ASSERT_NE(schema, nullptr);
    ASSERT_EQ(schema->outputs().size(), 1u);
    EXPECT_EQ(schema->inputs()[0].GetTypeStr() == schema->outputs()[0].GetTypeStr(), op.keeps_type);
    const bool is_variadic =
        schema->inputs()[0].GetOption() == onnx::OpSchema::Variadic || schema->max_input() > 2;
    EXPECT_EQ(op.operands == Operands::kVariadic, is_variadic);
    if (op.operands == Operands::kTwo) {
      EXPECT_EQ(schema->min_input(), 2);
    }
  }
  EXPECT_GT(standard, 60);
}

TEST(OperatorTraits, AreFoundInTheirDomains) {
  for (const ElementwiseOperator& op : ElementwiseOperators()) {
    EXPECT_EQ(FindElementwise(NodeOf(op.op_type, "com.microsoft")), &op) << op.op_type;
    EXPECT_EQ(FindElementwise(NodeOf(op.op_type, "")), op.is_contrib ? nullptr : &op);
    EXPECT_EQ(FindElementwise(NodeOf(op.op_type, "ai.onnx")), op.is_contrib ? nullptr : &op);
    EXPECT_EQ(FindElementwise(NodeOf(op.op_type, "else")), nullptr);
  }
  for (const char* name : {"MatMul", "Softmax", "Concat", "", "Zzz", "Aaa"}) {
    EXPECT_EQ(FindElementwise(NodeOf(name, "")), nullptr) << name;
  }
}

}  // namespace
}  // namespace kvlift
