// LIBS: sym onnxio
// Constants of expressions as tensors: exact, or said not to be there.
#include "sym/emit/emit.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "ir/node_builder.h"
#include "ir/tensor_data.h"
#include "onnxio/model/model.h"

namespace kvlift::sym {
namespace {

using onnx::TensorProto;

class EmitConstant : public testing::Test {
 protected:
  EmitConstant()
      : graph_(*Graph::Build(std::make_shared<const onnx::ModelProto>(*ParseModelText(
            "<ir_version: 10, opset_import: [\"\" : 24]> g (float[1] x) => (float[1] y) "
            "{ y = Identity(x) }")))),
        forms_(graph_),
        nodes_(graph_),
        emitter_(forms_, nodes_) {}

  absl::Status Emit(Expr e, int32_t type) {
    return emitter_.Tensor({e, {}, type, -1, "constant"}).status();
  }

  Graph graph_;
  Forms forms_;
  NodeBuilder nodes_;
  Emitter emitter_;
};

TEST_F(EmitConstant, LargeIntegersAreExact) {
  for (int64_t value : {std::numeric_limits<int64_t>::max(), (int64_t{1} << 53) + 1, int64_t{7},
                        std::numeric_limits<int64_t>::min()}) {
    ASSERT_TRUE(Emit(forms_.pool().Integer(value), TensorProto::INT64).ok());
    const auto constants = nodes_.TakeInitializers();
    ASSERT_FALSE(constants.empty());
    EXPECT_EQ((*ReadInts(constants[0]))[0], value);
  }
}

TEST_F(EmitConstant, NumbersThatATypeDoesNotHoldAreRefused) {
  const Expr infinite = forms_.pool().Float(-std::numeric_limits<double>::infinity());
  EXPECT_FALSE(Emit(infinite, TensorProto::INT64).ok());
  EXPECT_FALSE(Emit(infinite, TensorProto::INT32).ok());
  EXPECT_TRUE(Emit(infinite, TensorProto::FLOAT).ok());
  EXPECT_FALSE(Emit(forms_.pool().Float(0.5), TensorProto::INT64).ok());
  EXPECT_FALSE(Emit(forms_.pool().Integer(int64_t{1} << 40), TensorProto::INT32).ok());
}

// Emits the predicate that is the form of `keep`, and returns the operators, each with the type
// that a Cast has.
absl::StatusOr<std::string> EmittedOperators(const std::string& inputs, const std::string& body) {
  const auto model = ParseModelText("<ir_version: 10, opset_import: [\"\" : 24]> g (" + inputs +
                                    ") => (bool[S] keep) {" + body + "}");
  if (!model.ok()) return model.status();
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*model));
  if (!graph.ok()) return graph.status();
  Forms forms(*graph);
  NodeBuilder nodes(*graph);
  Emitter emitter(forms, nodes);
  const Form form = forms.Of(graph->Find("keep"));
  const auto value = emitter.Tensor({form.element, form.shape, TensorProto::BOOL, -1, "mask"});
  if (!value.ok()) return value.status();
  std::string text;
  for (const auto& node : nodes.TakeNodes()) {
    text += node.op_type();
    if (node.op_type() == "Cast") text += std::to_string(IntAttribute(node, "to", 0));
    text += " ";
  }
  return text;
}

TEST(EmitComparison, RealNumbersAreNotTruncated) {
  const auto half = EmittedOperators("float[S] gate", "on = Cast <to = 9> (gate) keep = Not (on)");
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_NE(half->find("Equal"), std::string::npos) << *half;
  EXPECT_EQ(half->find("Cast7"), std::string::npos) << *half;
}

TEST(EmitComparison, TermsAreNotMovedWhereTheirSumMayOverflow) {
  const std::string body =
      "limits = Constant <value_ints = [5, 9223372036854775807]> ()"
      "limit = Gather (limits, ids)"
      "apart = Sub (rows, columns)"
      "keep = LessOrEqual (apart, limit)";
  const auto large = EmittedOperators("int64[S] ids, int64[S] rows, int64[S] columns", body);
  EXPECT_FALSE(large.ok()) << *large;
  std::string small = body;
  small.replace(small.find("9223372036854775807"), 19, "9");
  const auto fits = EmittedOperators("int64[S] ids, int64[S] rows, int64[S] columns", small);
  EXPECT_TRUE(fits.ok()) << fits.status();
}

TEST(EmitComparison, QuotientsOfEitherSignAreDividedAsTheSourceDoes) {
  const auto quotient = EmittedOperators("int64[S] ids, int64[S] rows",
                                         "two = Constant <value_int = 2> ()"
                                         "half = Div (ids, two)"
                                         "keep = LessOrEqual (half, rows)");
  ASSERT_TRUE(quotient.ok()) << quotient.status();
  EXPECT_NE(quotient->find("Div"), std::string::npos) << *quotient;
}

TEST(EmitComparison, UnsignedConstantsStandInTheirOwnField) {
  const Graph graph = *Graph::Build(std::make_shared<const onnx::ModelProto>(
      *ParseModelText("<ir_version: 10, opset_import: [\"\" : 24]> g (float[1] x) => (float[1] y) "
                      "{ y = Identity(x) }")));
  NodeBuilder nodes(graph);
  for (int32_t type : {TensorProto::UINT64, TensorProto::UINT32}) nodes.Scalar(7, type);
  for (const auto& tensor : nodes.TakeInitializers()) {
    EXPECT_EQ(tensor.uint64_data_size(), 1) << tensor.data_type();
    EXPECT_EQ(tensor.int32_data_size(), 0);
  }
}

}  // namespace
}  // namespace kvlift::sym
