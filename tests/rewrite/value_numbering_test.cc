// LIBS: rewrite onnxio
// Which values of two branches count as equal.
#include "rewrite/branches/value_numbering.h"

#include <string>

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift {
namespace {

using testing::FormsOfText;
using testing::ModelText;

// Two sides that select the positive numbers of an input. The number of rows is known only when
// NonZero runs.
std::string Sides(const std::string& second) {
  return ModelText("(float[B,S] x, float[B,S] z) => (float[N] a, float[M] b)",
                   "places_a = NonZero (x)\n"
                   "rows_a = Transpose (places_a)\n"
                   "chosen_a = GatherND (x, rows_a)\n"
                   "a = Mul (chosen_a, chosen_a)\n"
                   "places_b = NonZero (" +
                       second +
                       ")\n"
                       "rows_b = Transpose (places_b)\n"
                       "chosen_b = GatherND (x, rows_b)\n"
                       "b = Mul (chosen_b, chosen_b)");
}

bool AreSame(const std::string& text) {
  FormsOfText m(text);
  ValueNumbering numbering(m.forms());
  const ValueId a = m.Find("a"), b = m.Find("b");
  numbering.Number({a});
  numbering.Number({b});
  return numbering.Same(a, b);
}

TEST(ValueNumbering, SizesThatOnlyRunningTellsAreEqualBehindEqualNodes) {
  EXPECT_TRUE(AreSame(Sides("x")));
  EXPECT_FALSE(AreSame(Sides("z")));
}

TEST(ValueNumbering, ResultsOfEqualNodesAreEqualWithoutAKnownRank) {
  FormsOfText m(ModelText("(float[B,S] x, int64[R] target) => (float[B,S] a, float[B,S] b)",
                          "rows_a = Reshape (x, target)\n"
                          "rows_b = Reshape (x, target)\n"
                          "a = Exp (rows_a)\n"
                          "b = Exp (rows_b)"));
  ValueNumbering numbering(m.forms());
  const ValueId a = m.Find("rows_a"), b = m.Find("rows_b");
  ASSERT_FALSE(m.forms().Of(a).known_rank);
  numbering.Number({a});
  numbering.Number({b});
  EXPECT_TRUE(numbering.Same(a, b));
}

// ONNX Runtime puts transposes into some products, and leaves others beside them.
TEST(ValueNumbering, ProductsThatTransposeAnOperandEqualThoseOfItsTranspose) {
  const auto same = [](const std::string& fused) {
    return AreSame(
        "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n"
        "g (float[B,S,8] x, float[B,T,8] z, float[B,8,T] w) => (float[B,S,T] a, "
        "float[B,S,T] b) {\n"
        "t = Transpose <perm = [0, 2, 1]> (z)\n"
        "product = MatMul (x, t)\n"
        "a = Exp (product)\n"
        "fused = com.microsoft.FusedMatMul " +
        fused + "\nb = Exp (fused)\n}");
  };
  EXPECT_TRUE(same("<transB = 1> (x, z)"));
  EXPECT_TRUE(same("<transB = 1, alpha = 1.0> (x, z)"));
  EXPECT_TRUE(same("(x, t)"));
  EXPECT_FALSE(same("<transB = 1, alpha = 0.5> (x, z)"));
  EXPECT_FALSE(same("(x, w)"));
  EXPECT_FALSE(same("<transB = 1, transBatchB = 1> (x, z)"));
}

}  // namespace
}  // namespace kvlift
