// LIBS: sym onnxio
// Forms mean what a machine computes: integers of a type, casts with their range, bounds that are
// clamped, and sizes of which nothing is taken for granted in silence.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::testing {
namespace {

using onnx::TensorProto;
using sym::CastFidelity;
using sym::Fidelity;

bool IsOpaque(FormsOfText& m, const std::string& name) { return m.Of(name).opaque; }

// x of [P], counted up, through the nodes of `body`, which make y.
FormsOfText Counted(const std::string& body, const std::string& type = "int64") {
  return FormsOfText(ModelText("(float[P] past) => (" + type + "[N] y)",
                               "shape = Shape (past)\n"
                               "zero = Constant <value = int64 {0}> ()\n"
                               "one = Constant <value = int64 {1}> ()\n"
                               "first = Constant <value = int64[1] {0}> ()\n"
                               "p = Gather <axis = 0> (shape, zero)\n"
                               "x = Range (zero, p, one)\n" +
                                   body));
}

TEST(MachineIntegers, SmallFactorsAreExact) {
  FormsOfText m = Counted(
      "c = Cast <to = 6> (x)\nk = Constant <value = int32 {1000}> ()\n"
      "a = Mul (c, k)\ny = Div (a, k)",
      "int32");
  EXPECT_EQ(m.Element("y"), "i0");
}

// TensorFlow's exporter bounds positions in float32, by numbers that none reaches.
TEST(MachineIntegers, BoundsBeyondAllPositionsAreNone) {
  const std::string signature = "(int32[1] p) => (int64[2] y)";
  const auto bounded = [&](const std::string& numbers) {
    return FormsOfText(ModelText(signature,
                                 "both = Concat <axis = 0> (p, p)\nx = Cast <to = 1> (both)\n"
                                 "bounds = Constant <value = float[2] {" +
                                     numbers +
                                     "}> ()\nmost = Max (x, bounds)\ny = Cast <to = 7> (most)"));
  };
  FormsOfText none = bounded("-1000000000, -2000000000");
  EXPECT_EQ(none.Element("y"), "p[0]");
  FormsOfText near = bounded("-1000000000, 5");
  EXPECT_NE(near.Element("y"), "p[0]");
}

// 430 * 5000000 does not fit 32 bits.
TEST(MachineIntegers, ProductsThatMayLeaveInt32AreNotFolded) {
  FormsOfText m = Counted(
      "c = Cast <to = 6> (x)\nk = Constant <value = int32 {5000000}> ()\n"
      "a = Mul (c, k)\ny = Div (a, k)",
      "int32");
  EXPECT_TRUE(IsOpaque(m, "a"));
  EXPECT_NE(m.Element("y"), "i0");
}

TEST(MachineIntegers, ProductsThatMayLeaveInt64AreNotFolded) {
  FormsOfText m = Counted(
      "k = Constant <value = int64 {4611686018427387904}> ()\na = Mul (x, k)\ny = Div (a, k)");
  EXPECT_TRUE(IsOpaque(m, "a"));
}

// A model of `signature` that multiplies the integers of `body` by `factor`, in 32 bits, and
// divides them by it again.
FormsOfText Scaled(const std::string& signature, const std::string& body,
                   const std::string& factor) {
  return FormsOfText(ModelText(signature,
                               "axis = Constant <value = int64[1] {0}> ()\n"
                               "k = Constant <value = int32 {" +
                                   factor + "}> ()\n" + body +
                                   "c = Cast <to = 6> (x)\n"
                                   "a = Mul (c, k)\ny = Div (a, k)"));
}

// The positions of 1500 tokens have a sum of more than 2^20.
TEST(MachineIntegers, SumsOfManyIntegersAreBoundedByAssumption) {
  FormsOfText m =
      Scaled("(int64[N] positions) => (int32[1] y)", "x = ReduceSum (positions, axis)\n", "1000");
  EXPECT_EQ(m.Element("y"), "x[0]");
  ASSERT_EQ(m.forms().assumptions().size(), 1u);
  EXPECT_EQ(m.forms().assumptions()[0].reason, sym::AssumptionReason::kSmall);
}

TEST(MachineIntegers, CountsOfOnesAreNoMoreThanTheAxis) {
  FormsOfText m = Scaled("(float[N] scores) => (int32[1] y)",
                         "none = IsNaN (scores)\n"
                         "ones = Cast <to = 7> (none)\n"
                         "x = ReduceSum (ones, axis)\n",
                         "1000");
  EXPECT_EQ(m.Element("y"), "x[0]");
  EXPECT_EQ(m.Assumed(), "");
}

// The second result of a TopK holds indices, whatever its operand holds.
TEST(MachineIntegers, IndicesOfATopKAreNoElementsOfItsOperand) {
  FormsOfText m = Scaled("(float[N] scores) => (int32[3] y)",
                         "none = IsNaN (scores)\n"
                         "ones = Cast <to = 7> (none)\n"
                         "three = Constant <value = int64[1] {3}> ()\n"
                         "values, x = TopK <axis = 0> (ones, three)\n",
                         "5000000");
  EXPECT_TRUE(IsOpaque(m, "a"));
}

TEST(MachineIntegers, SumsThatMayLeaveInt32AreNotFolded) {
  FormsOfText m = Counted(
      "c = Cast <to = 6> (x)\nk = Constant <value = int32 {2147483000}> ()\n"
      "a = Add (c, k)\ny = Sub (a, k)",
      "int32");
  EXPECT_TRUE(IsOpaque(m, "a"));
}

// What has left its type is no small number afterwards.
TEST(MachineIntegers, WrappedNumbersAreOfAnySize) {
  FormsOfText m = Counted(
      "c = Cast <to = 6> (x)\nk = Constant <value = int32 {5000000}> ()\n"
      "a = Mul (c, k)\ntwo = Constant <value = int32 {2}> ()\n"
      "b = Mul (a, two)\ny = Div (b, two)",
      "int32");
  EXPECT_TRUE(IsOpaque(m, "b"));
}

TEST(MachineCasts, PositionsKeepTheirValueInFloat32) {
  FormsOfText m = Counted("f = Cast <to = 1> (x)\ny = Cast <to = 7> (f)");
  EXPECT_EQ(m.Element("y"), "i0");
}

TEST(MachineCasts, PositionsAreRoundedInHalfPrecision) {
  for (const int type : {TensorProto::FLOAT16, TensorProto::BFLOAT16}) {
    FormsOfText m =
        Counted("f = Cast <to = " + std::to_string(type) + "> (x)\ny = Cast <to = 7> (f)");
    EXPECT_TRUE(IsOpaque(m, "f")) << type;
  }
}

TEST(MachineCasts, TruthsKeepTheirValueInHalfPrecision) {
  FormsOfText m =
      Counted("q = Less (x, one)\nf = Cast <to = 10> (q)\ny = Cast <to = 9> (f)", "bool");
  EXPECT_EQ(m.Element("y"), "i0 <= 0");
}

TEST(MachineCasts, IntegersOfAHostAreSmallByAssumption) {
  FormsOfText m(ModelText("(int64[B] x) => (float16[B] y)", "y = Cast <to = 10> (x)"));
  EXPECT_EQ(m.Element("y"), "x[i0]");
  ASSERT_EQ(m.forms().assumptions().size(), 1u);
  EXPECT_EQ(m.forms().assumptions()[0].reason, sym::AssumptionReason::kSmall);
}

TEST(MachineCasts, RealDataIsRoundedByANarrowerType) {
  FormsOfText m(ModelText("(float[B] x) => (float[B] y, float[B] z)",
                          "h = Cast <to = 10> (x)\ny = Cast <to = 1> (h)\n"
                          "d = Cast <to = 11> (x)\nz = Cast <to = 1> (d)"));
  EXPECT_NE(m.Element("y"), "x[i0]");
  EXPECT_EQ(m.Element("z"), "x[i0]");
}

TEST(MachineCasts, NarrowIntegersWrapAround) {
  FormsOfText m = Counted("b = Cast <to = 2> (x)\ny = Cast <to = 7> (b)");
  EXPECT_TRUE(IsOpaque(m, "b"));
}

TEST(MachineRange, AnEmptyRangeIsNotOfNegativeLength) {
  FormsOfText m = Counted(
      "k = Constant <value = int64 {40}> ()\nd = Sub (k, p)\n"
      "y = Range (zero, d, one)");
  EXPECT_NE(m.Shape("y"), "[-P + 40]");
  EXPECT_EQ(m.Assumed(), "");
}

// P + 9223372036854775806 does not fit 64 bits.
TEST(MachineRange, AStepBeyondEverySizeIsNotAddedToTheLength) {
  FormsOfText m = Counted(
      "k = Constant <value = int64 {9223372036854775807}> ()\n"
      "y = Range (zero, p, k)");
  EXPECT_EQ(m.Shape("y").find("9223372036854775806"), std::string::npos) << m.Shape("y");
}

TEST(MachineRange, StepsCountElementsUpToTheLast) {
  FormsOfText m = Counted("k = Constant <value = int64 {3}> ()\ny = Range (zero, p, k)");
  EXPECT_EQ(m.Shape("y"), "[(P + 2) div 3]");
}

TEST(MachineSlice, AStepBeyondEverySizeIsNotAddedToTheLength) {
  FormsOfText m = Counted(
      "e = Constant <value = int64[1] {9223372036854775807}> ()\n"
      "y = Slice (x, first, e, first, e)");
  EXPECT_EQ(m.Shape("y").find("9223372036854775806"), std::string::npos) << m.Shape("y");
}

TEST(MachineSlice, AnEndBehindASymbolicAxisIsClamped) {
  FormsOfText m = Counted("e = Constant <value = int64[1] {400}> ()\ny = Slice (x, first, e)");
  EXPECT_NE(m.Shape("y"), "[400]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(MachineSlice, AnEndBeyondEverySizeIsTheEnd) {
  FormsOfText m =
      Counted("e = Constant <value = int64[1] {1000000000}> ()\ny = Slice (x, first, e)");
  EXPECT_EQ(m.Shape("y"), "[P]");
}

// P - 8 counts from the end where it is below 0.
TEST(MachineSlice, AStartOfUnknownSignIsToldCaseByCase) {
  FormsOfText m = Counted(
      "k = Constant <value = int64 {8}> ()\nd = Sub (p, k)\n"
      "s = Unsqueeze (d, first)\ne = Constant <value = int64[1] {9223372036854775807}> ()\n"
      "y = Slice (x, s, e)");
  sym::Pool& pool = m.forms().pool();
  const auto length = [&](int64_t p) {
    sym::Pool::Substitution s;
    s.dims[sym::DimSymbol::Declared("P")] = pool.Integer(p);
    return pool.Substitute(m.Of("y").shape[0], s, {});
  };
  EXPECT_TRUE(length(20)->is_integer(8));
  EXPECT_TRUE(length(5)->is_integer(3));
  EXPECT_TRUE(length(3)->is_integer(3));
  EXPECT_EQ(m.Assumed(), "");
}

// The quotient of a place by P + 1 is not 0 because a look-up would like it.
TEST(MachineQuotient, RowsAreToldApartOnlyOnDeclaredAxes) {
  FormsOfText m(ModelText("(float[P] past, int64[S] ids, int64[7] table) => (int64[S] y)",
                          "shape = Shape (past)\nzero = Constant <value = int64 {0}> ()\n"
                          "one = Constant <value = int64 {1}> ()\n"
                          "p = Gather <axis = 0> (shape, zero)\nd = Add (p, one)\n"
                          "tokens = Shape (ids)\ns = Gather <axis = 0> (tokens, zero)\n"
                          "r = Range (zero, s, one)\nq = Div (r, d)\n"
                          "y = Gather <axis = 0> (table, q)"));
  EXPECT_EQ(m.Assumed(), "");
  EXPECT_NE(m.Element("y"), "table[0]");
}

TEST(DimSymbols, NamesOfAModelDoNotMeetOurs) {
  FormsOfText m(ModelText("(float[\"x.0\"] z, float[?] x) => (float[N] y)", "y = Identity (x)"));
  EXPECT_NE(m.Of("z").shape[0], m.Of("x").shape[0]);
  sym::Pool& pool = m.forms().pool();
  EXPECT_NE(pool.Dim("P"), pool.Internal("P"));
}

TEST(KeepsValue, CastsAreJudgedByTheirTypes) {
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT16, TensorProto::FLOAT), Fidelity::kExact);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::DOUBLE), Fidelity::kExact);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::FLOAT16), Fidelity::kRounded);
  EXPECT_EQ(CastFidelity(TensorProto::BFLOAT16, TensorProto::FLOAT16), Fidelity::kRounded);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT16, TensorProto::BFLOAT16), Fidelity::kRounded);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::INT64), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::UINT8), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::BOOL), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::FLOAT, TensorProto::FLOAT8E4M3FN), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::INT64, TensorProto::INT32), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::INT32, TensorProto::INT64), Fidelity::kExact);
  EXPECT_EQ(CastFidelity(TensorProto::UINT8, TensorProto::INT8), Fidelity::kNone);
  EXPECT_EQ(CastFidelity(TensorProto::BOOL, TensorProto::FLOAT16), Fidelity::kExact);
  EXPECT_EQ(CastFidelity(TensorProto::INT64, TensorProto::FLOAT), Fidelity::kRounded);
  EXPECT_EQ(CastFidelity(TensorProto::INT64, TensorProto::FLOAT16), Fidelity::kNone);
}

// The first input of the node that makes y, and how it is kept.
std::optional<sym::PassedOperand> Passed(const std::string& signature, const std::string& body) {
  FormsOfText m(ModelText(signature, body));
  return sym::PassedThrough(m.forms(), m.graph().producer(m.Find("y")));
}

TEST(KeepsValue, NodesThatPassAnOperandOn) {
  EXPECT_EQ(Passed("(float[B] x) => (float[B] y)", "y = Identity (x)")->fidelity, Fidelity::kExact);
  EXPECT_EQ(Passed("(float16[B] x) => (float[B] y)", "y = Cast <to = 1> (x)")->fidelity,
            Fidelity::kExact);
  EXPECT_EQ(Passed("(float[B] x) => (float16[B] y)", "y = Cast <to = 10> (x)")->fidelity,
            Fidelity::kRounded);
  EXPECT_EQ(Passed("(float[B] x) => (float[B] y)", "y = Dropout (x)")->fidelity, Fidelity::kExact);
  const std::string half = "r = Constant <value = float {0.5}> ()\n";
  EXPECT_TRUE(Passed("(float[B] x) => (float[B] y)",
                     half + "t = Constant <value = bool {0}> ()\ny = Dropout (x, r, t)"));
  EXPECT_FALSE(Passed("(float[B] x) => (float[B] y)",
                      half + "t = Constant <value = bool {1}> ()\ny = Dropout (x, r, t)"));
  EXPECT_FALSE(Passed("(float[B] x, bool t) => (float[B] y)", half + "y = Dropout (x, r, t)"));
  EXPECT_FALSE(Passed("(float[B] x) => (float[B] y)", "y = Neg (x)"));
}

}  // namespace
}  // namespace kvlift::testing
