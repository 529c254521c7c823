// LIBS: sym onnxio
// Dim symbols, shapes and operators on them.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

TEST(FormsDims, NamesDeclaredByInputsAreSymbols) {
  FormsOfText m(ModelText("(float[B,S] x, float[B,P] past) => (float[B,S] y)", "y = Identity (x)"));
  EXPECT_EQ(m.Shape("y"), "[B, S]");
  EXPECT_EQ(m.Element("y"), "x[i0, i1]");
  const auto origin = m.forms().OriginOf(sym::DimSymbol::Declared("P"));
  ASSERT_TRUE(origin.has_value());
  EXPECT_EQ(origin->input, m.Find("past"));
  EXPECT_EQ(origin->axis, 1);
  EXPECT_FALSE(m.forms().OriginOf(sym::DimSymbol::Declared("T")).has_value());
}

TEST(FormsDims, SumsOfDeclaredSymbolsAreSums) {
  FormsOfText m(ModelText("(float[P] past, float[S] x, float[\"P + S\"] mask) => (float[Q] y)",
                          "y = Identity (mask)"));
  const sym::Form& form = m.Of("y");
  sym::Pool& pool = m.forms().pool();
  EXPECT_EQ(form.shape[0], pool.Add(pool.Dim("P"), pool.Dim("S")));
}

TEST(FormsDims, OtherTextsAreSymbolsOfTheirOwn) {
  FormsOfText m(ModelText(
      "(float[P] past, float[\"P + 1\"] a, float[\"P + Q\"] b, float[\"P*2\"] c) => (float[N] y)",
      "y = Concat <axis = 0> (a, b, c)"));
  EXPECT_EQ(m.Shape("a"), "[a.shape[0]]");
  EXPECT_EQ(m.Shape("b"), "[b.shape[0]]");
  EXPECT_EQ(m.Shape("c"), "[c.shape[0]]");
  EXPECT_EQ(m.forms().OriginOf(m.forms().OwnSymbol(m.Find("b"), 0))->input, m.Find("b"));
}

TEST(FormsDims, AnyTextThatIsNoExpressionIsAName) {
  FormsOfText m(
      ModelText("(float[\"past len\",\"seq-len\"] x, float[\"past len + seq-len\"] mask, "
                "float[\"seq-len\"] z, float[\"past-3\", \"a(b)\"] t) => (float[N] y)",
                "y = Identity (mask)"));
  sym::Pool& pool = m.forms().pool();
  EXPECT_EQ(m.Of("x").shape[0], pool.Dim("past len"));
  EXPECT_EQ(m.Of("z").shape[0], pool.Dim("seq-len"));
  EXPECT_EQ(m.Of("y").shape[0], pool.Add(pool.Dim("past len"), pool.Dim("seq-len")));
  EXPECT_EQ(m.Shape("t"), "[t.shape[0], a(b)]");
}

TEST(FormsDims, DeclaredShapesOfOutputsAreNotTrusted) {
  FormsOfText m(ModelText("(float[B,S] x) => (float[Q,7] y)", "y = Transpose <perm = [1, 0]> (x)"));
  EXPECT_EQ(m.Shape("y"), "[S, B]");
}

// TorchScript leaves the sizes of the traced run where it cannot tell what a shape depends on.
TEST(FormsDims, DeclaredExtentsAreNotTrustedWhereNoOperatorTellsThem) {
  FormsOfText m(
      ModelText("(float[B,S] x, int64[R] target) => (float[2,7] y)", "y = Reshape (x, target)"));
  EXPECT_EQ(m.Shape("y"), "[y.shape[0], y.shape[1]]");
}

TEST(FormsDims, DeclaredExtentsOfOperatorsOfOtherDomainsAreAssumed) {
  FormsOfText m(
      "<ir_version: 10, opset_import: [\"\" : 21, \"example\" : 1]>\n"
      "g (float[B,S] x) => (float[B,7] y) { y = example.Make (x) }");
  EXPECT_EQ(m.Shape("y"), "[y.shape[0], 7]");
  EXPECT_EQ(m.Assumed(), "y.shape[1] == 7;");
}

TEST(FormsDims, AnIfHasTheExtentsThatBothBranchesGive) {
  FormsOfText m(
      ModelText("(bool c, float[B,P,8] past, float[B,S,16] x) => (float[B,N,8] y)",
                "n = Shape <start = 1, end = 2> (x)\n"
                "y = If (c) <then_branch = later () => (float[] t) { t = Identity (past) },\n"
                "  else_branch = first () => (float[] f)\n"
                "    <int64[4] shape = {0, -1, 2, 8}, int64[1] axes = {2}, int64 zero = {0}> {\n"
                "      heads = Reshape (x, shape)\n"
                "      f = Gather <axis = 2> (heads, zero)\n"
                "    }>"));
  EXPECT_EQ(m.Shape("y"), "[B, y.shape[1], 8]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsDims, AnIfOfOtherRanksHasNoShape) {
  FormsOfText m(
      ModelText("(bool c, float[B,P] past) => (float[] y)",
                "y = If (c) <then_branch = a () => (float[] t) { t = Identity (past) },\n"
                "  else_branch = b () => (float[] f) { f = ReduceMax <keepdims = 0> (past) }>"));
  EXPECT_EQ(m.Shape("y"), "unknown");
}

TEST(FormsDims, ConcatWithAnOperandOfUnknownRankHasTheExtentsOfTheOthers) {
  FormsOfText m(ModelText("(float[B,3,P] x, float[N] z, int64[R] target) => (float[A,B,C] y)",
                          "rows = Reshape (z, target)\n"
                          "y = Concat <axis = 2> (rows, x)"));
  EXPECT_EQ(m.Shape("y"), "[B, 3, y.shape[2]]");
}

TEST(FormsShape, ShapeAndSize) {
  FormsOfText m(ModelText("(float[B,4,S] x) => (int64[3] a, int64[N] b, int64[N] c, int64 n)",
                          "a = Shape (x)\n"
                          "b = Shape <start = -2> (x)\n"
                          "c = Shape <start = 1, end = -1> (x)\n"
                          "n = Size (x)"));
  const auto a = m.forms().Elements(m.Find("a"));
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(*a, m.Of("x").shape);
  EXPECT_EQ(m.forms().Elements(m.Find("b"))->size(), 2u);
  EXPECT_EQ(m.forms().Elements(m.Find("c"))->front(), m.forms().pool().Integer(4));
  EXPECT_EQ(m.Of("n").element,
            m.forms().pool().Mul(
                m.forms().pool().Integer(4),
                m.forms().pool().Mul(m.forms().pool().Dim("B"), m.forms().pool().Dim("S"))));
  EXPECT_EQ(m.forms().ElementType(m.Find("n")), onnx::TensorProto::INT64);
}

TEST(FormsShape, ReshapeSplitsAndMergesHeads) {
  FormsOfText m(ModelText("(float[B,S,12] x) => (float[B,S,3,4] y, float[B,S,12] z)",
                          "shape = Constant <value_ints = [0, 0, 3, -1]> ()\n"
                          "y = Reshape (x, shape)\n"
                          "back = Constant <value_ints = [0, 0, -1]> ()\n"
                          "z = Reshape (y, back)"));
  EXPECT_EQ(m.Shape("y"), "[B, S, 3, 4]");
  EXPECT_EQ(m.Element("y"), "x[i0, i1, 4*i2 + i3]");
  EXPECT_EQ(m.Shape("z"), "[B, S, 12]");
  EXPECT_EQ(m.Element("z"), "x[i0, i1, i2]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsShape, ReshapeKeepsZeroWithAllowzero) {
  FormsOfText m(ModelText("(float[0,3] x) => (float[3,0] y)",
                          "shape = Constant <value_ints = [3, 0]> ()\n"
                          "y = Reshape <allowzero = 1> (x, shape)"));
  EXPECT_EQ(m.Shape("y"), "[3, 0]");
}

TEST(FormsShape, RepeatedHeads) {
  FormsOfText m(ModelText("(float[B,2,T,D] k) => (float[B,6,T,D] y)",
                          "axis = Constant <value_ints = [2]> ()\n"
                          "a = Unsqueeze (k, axis)\n"
                          "s = Constant <value_ints = [1, 1, 3, 1, 1]> ()\n"
                          "b = Expand (a, s)\n"
                          "d = Shape (k)\n"
                          "first = Constant <value_ints = [0]> ()\n"
                          "last = Constant <value_ints = [2, 3]> ()\n"
                          "db = Gather (d, first)\n"
                          "dt = Gather (d, last)\n"
                          "h = Constant <value_ints = [6]> ()\n"
                          "to = Concat <axis = 0> (db, h, dt)\n"
                          "y = Reshape (b, to)"));
  EXPECT_EQ(m.Shape("y"), "[B, 6, T, D]");
  EXPECT_EQ(m.Element("y"), "k[i0, i1 div 3, i2, i3]");
}

TEST(FormsShape, ExpandGuardOfExporters) {
  FormsOfText m(ModelText("(float[1,S] x, float[B,S] r) => (float[B,S] y)",
                          "s = Shape (r)\n"
                          "n = Constant <value_ints = [2]> ()\n"
                          "ones = ConstantOfShape <value = int64[1] {1}> (n)\n"
                          "minus = Constant <value_int = -1> ()\n"
                          "m = Mul (ones, minus)\n"
                          "open = Equal (s, m)\n"
                          "to = Where (open, ones, s)\n"
                          "y = Expand (x, to)"));
  EXPECT_EQ(m.Shape("y"), "[B, S]");
  EXPECT_EQ(m.Element("y"), "x[0, i1]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsShape, RangeOfPositions) {
  FormsOfText m(ModelText("(float[P] past, float[S] x) => (int64[S] y)",
                          "zero = Constant <value_int = 0> ()\n"
                          "one = Constant <value_int = 1> ()\n"
                          "ps = Shape (past)\n"
                          "p = Gather (ps, zero)\n"
                          "ss = Shape (x)\n"
                          "s = Gather (ss, zero)\n"
                          "t = Add (p, s)\n"
                          "y = Range (p, t, one)"));
  EXPECT_EQ(m.Shape("y"), "[S]");
  EXPECT_EQ(m.Of("y").element,
            m.forms().pool().Add(m.forms().pool().Dim("P"), m.forms().pool().Index(0)));
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsShape, RangeOfDataHasTheLengthItSays) {
  FormsOfText m(ModelText("(int64 n) => (int64[N] y)",
                          "zero = Constant <value_int = 0> ()\n"
                          "one = Constant <value_int = 1> ()\n"
                          "y = Range (zero, n, one)"));
  EXPECT_EQ(m.Shape("y"), "[n]");
  EXPECT_EQ(m.Element("y"), "i0");
  EXPECT_EQ(m.forms().assumptions().size(), 1u);
}

TEST(FormsShape, SqueezeWithoutAxesNeedsKnownDims) {
  FormsOfText m(ModelText("(float[1,S] x, float[1,4] z) => (float[N] y, float[4] w)",
                          "y = Squeeze (x)\nw = Squeeze (z)"));
  EXPECT_EQ(m.Shape("y"), "[y.shape[0]]");
  EXPECT_EQ(m.Element("w"), "z[0, i0]");
}

TEST(FormsShape, MalformedNodesAreOpaque) {
  FormsOfText m(
      ModelText("(float[2,3] x, int64[2] i) => (float[N] a, float[N] b, float[N] c, float[N] d)",
                "nine = Constant <value_ints = [9]> ()\n"
                "a = Unsqueeze (x, nine)\n"
                "b = Reshape (x, nine)\n"
                "c = Concat <axis = 7> (x, x)\n"
                "d = Transpose <perm = [0, 0]> (x)"));
  for (const char* name : {"a", "b", "c", "d"}) {
    const sym::Form& form = m.Of(name);
    EXPECT_TRUE(!form.known_rank || form.opaque) << name;
  }
}

TEST(FormsShape, BudgetMakesAValueOpaque) {
  // Each Concat doubles the expression of an element.
  std::string text = "c0 = Concat <axis = 0> (a, b)\n";
  for (int k = 1; k <= 10; ++k) {
    const std::string before = "c" + std::to_string(k - 1);
    text += "c" + std::to_string(k) + " = Concat <axis = 0> (" + before + ", " + before + ")\n";
  }
  FormsOfText m(ModelText("(float[P,D] a, float[S,D] b) => (float[Q,D] c10)", text));
  EXPECT_FALSE(m.Of("c9").opaque);
  EXPECT_GT(2 * m.Of("c9").element->size(), sym::kMaxExprSize);
  EXPECT_TRUE(m.Of("c10").opaque);
  EXPECT_EQ(m.Of("c10").shape.size(), 2u);
}

// A 0 that is computed stands for the operand's own extent, which is another one.
TEST(FormsShape, ASizeThatIsComputedIsNotZero) {
  const std::string signature = "(float[B,P,4] x) => (float[B,P,4] y)";
  FormsOfText m(ModelText(signature,
                          "all = Constant <value_ints = [-1]> ()\n"
                          "shape = Shape (x)\n"
                          "flat = Reshape (x, all)\n"
                          "y = Reshape (flat, shape)"));
  EXPECT_EQ(m.Shape("y"), "[B, P, 4]");
  EXPECT_NE(m.Assumed().find("0 < P"), std::string::npos) << m.Assumed();
  FormsOfText own(ModelText(signature, "shape = Shape (x)\ny = Reshape (x, shape)"));
  EXPECT_EQ(own.Shape("y"), "[B, P, 4]");
  EXPECT_EQ(own.Assumed(), "");
}

TEST(FormsShape, OfAnOperandThatIsLeftOut) {
  FormsOfText m(
      "<ir_version: 10, opset_import: [\"\": 22]> g (float[2] x) => (float[2] y) { y = Neg(x) }");
  EXPECT_FALSE(m.forms().Of(kNoValue).known_rank);
  EXPECT_EQ(m.forms().At(kNoValue, {}, {}), nullptr);
  EXPECT_FALSE(m.forms().Elements(kNoValue).has_value());
  EXPECT_EQ(m.forms().ElementType(kNoValue), 0);
}

}  // namespace
}  // namespace kvlift::testing
