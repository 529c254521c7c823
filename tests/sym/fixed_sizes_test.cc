// LIBS: sym onnxio
// Sizes that operators fix although the model names them.
#include "sym/sizes/fixed_sizes.h"

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

std::vector<NamedSize> SizesOf(std::string_view signature, std::string_view body) {
  FormsOfText m(ModelText(std::string(signature), std::string(body)));
  return sym::FixedSizesOf(m.forms().graph());
}

TEST(FixedSizes, AreThoseOfTheOtherOperandsOfConcat) {
  EXPECT_EQ(SizesOf("(float[B,heads,P,size] past, float[B,2,1,12] rows) => (float[B,2,Q,12] y)",
                    "y = Concat <axis = 2> (past, rows)"),
            (std::vector<NamedSize>{{"heads", 2}, {"size", 12}}));
}

TEST(FixedSizes, AreFoundBehindOtherOperators) {
  EXPECT_EQ(SizesOf("(float[B,heads,P,12] past, float[B,1,2,12] rows) => (float[B,Q,2,12] y)",
                    "turned = Transpose <perm = [0, 2, 1, 3]> (past)\n"
                    "same = Identity (turned)\n"
                    "y = Concat <axis = 1> (same, rows)"),
            (std::vector<NamedSize>{{"heads", 2}}));
}

TEST(FixedSizes, AreThoseOfTheInnerAxisOfMatMul) {
  EXPECT_EQ(SizesOf("(float[B,S,12] q, float[B,size,P] keys) => (float[B,S,P] y)",
                    "y = MatMul (q, keys)"),
            (std::vector<NamedSize>{{"size", 12}}));
}

TEST(FixedSizes, NamesThatIntegersDeclareStayOpen) {
  EXPECT_TRUE(SizesOf("(int64[B,S] ids, float[B,2,P,4] past, float[3,2,1,4] rows) => "
                      "(float[B,2,Q,4] y, int64[B,S] z)",
                      "y = Concat <axis = 2> (past, rows)\n"
                      "z = Identity (ids)")
                  .empty());
}

TEST(FixedSizes, AreNotThoseOfOperandsThatBroadcast) {
  EXPECT_TRUE(
      SizesOf("(float[B,heads] a, float[B,2] b) => (float[B,2] y)", "y = Add (a, b)").empty());
}

// A size of 1 would broadcast as well, but the name says which it is.
TEST(FixedSizes, AreNumbersThatAreSpelledAsNames) {
  FormsOfText m(ModelText("(float[B,heads] a, float[B,2] b) => (float[B,2] y)", "y = Add (a, b)"));
  auto model = std::make_shared<onnx::ModelProto>(m.graph().model());
  onnx::TypeProto* type = model->mutable_graph()->mutable_input(0)->mutable_type();
  type->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_param("2");
  const auto graph = Graph::Build(model);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(sym::FixedSizesOf(*graph), (std::vector<NamedSize>{{"2", 2}}));
}

TEST(FixedSizes, AreNotThoseOfNodesThatNoOutputDependsOn) {
  EXPECT_TRUE(SizesOf("(float[B,heads,P,4] past, float[B,2,1,4] rows) => (float[B,heads,P,4] y)",
                      "dead = Concat <axis = 2> (past, rows)\n"
                      "y = Identity (past)")
                  .empty());
}

TEST(FixedSizes, AreNotThoseInABranchThatNeedNotRun) {
  EXPECT_TRUE(SizesOf("(bool flag, float[B,heads,P,4] past, float[B,2,1,4] rows) => "
                      "(float[B,2,Q,4] y)",
                      "y = If (flag) <\n"
                      "  then_branch = a () => (float[B,2,Q,4] t) { t = Concat <axis = 2> (past, "
                      "rows) },\n"
                      "  else_branch = b () => (float[B,2,1,4] e) { e = Identity (rows) }>")
                  .empty());
}

}  // namespace
}  // namespace kvlift::testing
