// LIBS: sym onnxio
// Sums, extrema and counts of index data, and what fused attention gives as its presents.
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

TEST(FormsReduce, ExtremaOfPositions) {
  FormsOfText m(ModelText("(float[P] past, float[S] x) => (int64 a, int64[1] b, int64 n)",
                          "zero = Constant <value_int = 0> ()\n"
                          "one = Constant <value_int = 1> ()\n"
                          "ps = Shape (past)\n"
                          "p = Gather (ps, zero)\n"
                          "ss = Shape (x)\n"
                          "s = Gather (ss, zero)\n"
                          "t = Add (p, s)\n"
                          "r = Range (p, t, one)\n"
                          "a = ReduceMax <keepdims = 0> (r)\n"
                          "b = ReduceMin (r)\n"
                          "n = ReduceSum <keepdims = 0> (r)"));
  EXPECT_EQ(m.Element("a"), "P + S - 1");
  EXPECT_EQ(m.Element("b"), "P");
  EXPECT_EQ(m.Element("n"), "P*S + ((-S + S*S) div 2)");
  EXPECT_EQ(m.Assumed(), "0 < S;");
}

TEST(FormsReduce, SumsOfDataStandForThemselves) {
  FormsOfText m(ModelText("(int64[B,T] mask) => (int64[B] n, int64[B,T] c)",
                          "ax = Constant <value_ints = [1]> ()\n"
                          "at = Constant <value_int = 1> ()\n"
                          "n = ReduceSum <keepdims = 0> (mask, ax)\n"
                          "c = CumSum (mask, at)"));
  EXPECT_TRUE(m.Of("n").opaque);
  EXPECT_TRUE(m.Of("c").opaque);
}

// At most one element of a column of `hit` is true. The largest one says whether some element is;
// the least one and the product of the negated column say that none is.
TEST(FormsReduce, ExtremaOfOneHotColumns) {
  FormsOfText m(
      ModelText("(int64[1] start, float[S] x) => (float[8] any, float[8] none, float[8] still,"
                " float[8] several)",
                "zero = Constant <value_int = 0> ()\n"
                "one = Constant <value_int = 1> ()\n"
                "eight = Constant <value_int = 8> ()\n"
                "at_1 = Constant <value_ints = [1]> ()\n"
                "shape = Shape (x)\n"
                "s = Gather (shape, zero)\n"
                "tokens = Range (zero, s, one)\n"
                "places = Add (tokens, start)\n"
                "column = Unsqueeze (places, at_1)\n"
                "slots = Range (zero, eight, one)\n"
                "hit = Equal (slots, column)\n"
                "missed = Not (hit)\n"
                "hot = Cast <to = 1> (hit)\n"
                "cold = Cast <to = 1> (missed)\n"
                "any = ReduceMax <axes = [0], keepdims = 0> (hot)\n"
                "none = ReduceMin <axes = [0], keepdims = 0> (cold)\n"
                "still = ReduceProd <axes = [0], keepdims = 0> (cold)\n"
                "below = LessOrEqual (slots, column)\n"
                "seen = Cast <to = 1> (below)\n"
                "several = ReduceMax <axes = [0], keepdims = 0> (seen)"));
  const std::string within = "i0 < S + start[0] and start[0] <= i0";
  EXPECT_EQ(m.Element("any"), within);
  EXPECT_EQ(m.Element("none"), "not (" + within + ")");
  EXPECT_EQ(m.Element("still"), "not (" + within + ")");
  EXPECT_TRUE(m.Of("several").opaque);
}

TEST(FormsReduce, RunningCounts) {
  FormsOfText m(ModelText("(float[B,T] x) => (int64[B,T] a, int64[B,T] b, int64[B,T] c)",
                          "at = Constant <value_int = 1> ()\n"
                          "s = Shape (x)\n"
                          "ones = ConstantOfShape <value = int64[1] {1}> (s)\n"
                          "a = CumSum (ones, at)\n"
                          "b = CumSum <exclusive = 1> (ones, at)\n"
                          "c = CumSum <reverse = 1> (ones, at)"));
  EXPECT_EQ(m.Element("a"), "i1 + 1");
  EXPECT_EQ(m.Element("b"), "i1");
  EXPECT_EQ(m.Element("c"), "T - i1");
}

TEST(FormsReduce, EinsumThatMovesAxes) {
  FormsOfText m(ModelText("(float[B,S,N,4] x, float[B,B] d) => (float[B,N,S,4] y, float[B] z)",
                          "y = Einsum <equation = \"bshd -> bhsd\"> (x)\n"
                          "z = Einsum <equation = \"ii->i\"> (d)"));
  EXPECT_EQ(m.Element("y"), "x[i0, i2, i1, i3]");
  EXPECT_EQ(m.Shape("y"), "[B, N, S, 4]");
  EXPECT_TRUE(m.Of("z").opaque);
}

TEST(FormsReduce, PlacesOfOnes) {
  FormsOfText m(ModelText("(float[S] x) => (int64[1,S] y, int64[1,N] z)",
                          "s = Shape (x)\n"
                          "ones = ConstantOfShape <value = int64[1] {1}> (s)\n"
                          "y = NonZero (ones)\n"
                          "z = NonZero (x)"));
  EXPECT_EQ(m.Shape("y"), "[1, S]");
  EXPECT_EQ(m.Element("y"), "i1");
  EXPECT_TRUE(m.Of("z").opaque);
}

// TorchScript repeats rows by the places of a matrix that is true everywhere.
TEST(FormsReduce, AllPlacesOfATrueMatrix) {
  FormsOfText m(ModelText("(float[N,4] x) => (float[M,4] y)",
                          "n = Shape <start = 0, end = 1> (x)\n"
                          "two = ConstantOfShape <value = int64[1] {2}> (n)\n"
                          "axis = Constant <value = int64[1] {1}> ()\n"
                          "limit = Unsqueeze (two, axis)\n"
                          "count = Constant <value = int64[2] {0, 1}> ()\n"
                          "all = Less (count, limit)\n"
                          "places = NonZero (all)\n"
                          "rows = Transpose <perm = [1, 0]> (places)\n"
                          "zero = Constant <value = int64[1] {0}> ()\n"
                          "row = Slice (rows, zero, axis, axis)\n"
                          "y = GatherND (x, row)"));
  EXPECT_EQ(m.Shape("places"), "[2, 2*N]");
  EXPECT_EQ(m.Shape("y"), "[2*N, 4]");
  EXPECT_EQ(m.Element("y"), "x[i0 div 2, i1]");
}

TEST(FormsReduce, PlaceOfTheOnlyElementWithinBounds) {
  FormsOfText m(
      ModelText("(int64[1] w, float[8,2] buffer, float[1,2] rows) => (int64[1,N] y, "
                "int64[1,M] z, float[8,2] written)",
                "zero = Constant <value_int = 0> ()\n"
                "one = Constant <value_ints = [-1]> ()\n"
                "last = Constant <value_ints = [7]> ()\n"
                "low = GreaterOrEqual (w, zero)\n"
                "high = LessOrEqual (w, last)\n"
                "both = And (low, high)\n"
                "y = NonZero (both)\n"
                "flat = Reshape (y, one)\n"
                "kept = Gather (w, flat)\n"
                "kept_rows = Gather (rows, flat)\n"
                "column = Unsqueeze (kept, one)\n"
                "written = ScatterND (buffer, column, kept_rows)\n"
                "same = Equal (w, last)\n"
                "z = NonZero (same)"));
  EXPECT_EQ(m.Shape("y"), "[1, 1]");
  EXPECT_EQ(m.Element("y"), "i1");  // of one element
  EXPECT_TRUE(m.Of("z").opaque);
  EXPECT_EQ(m.Assumed(), "0 <= w[0];w[0] <= 7;");
}

// JAX drops rows that lie behind the end of a buffer.
TEST(FormsReduce, PlacesOfSeveralElementsWithinBounds) {
  const auto places = [](int low, int high, const std::string& picked = "w") {
    FormsOfText m(
        ModelText("(int64[S] w, int64[S] others, float[8,2] buffer, float[S,2] rows) => "
                  "(int64[1,N] y, float[8,2] written)",
                  fmt::format("first = Constant <value_int = {}> ()\n"
                              "last = Constant <value_ints = [{}]> ()\n"
                              "low = GreaterOrEqual (w, first)\n"
                              "high = LessOrEqual (w, last)\n"
                              "both = And (low, high)\n"
                              "y = NonZero (both)\n"
                              "minus = Constant <value_ints = [-1]> ()\n"
                              "flat = Reshape (y, minus)\n"
                              "kept = Gather ({}, flat)\n"
                              "kept_rows = Gather (rows, flat)\n"
                              "column = Unsqueeze (kept, minus)\n"
                              "written = ScatterND (buffer, column, kept_rows)",
                              low, high, picked)));
    const std::string form = m.Shape("y") + " " + m.Element("y");
    return form + " " + m.Assumed();
  };
  EXPECT_EQ(places(0, 7), "[1, S] i1 0 <= w[i0];w[i0] <= 7;");
  // Numbers that are tested and not kept choose others, and numbers between others may be token
  // ids.
  EXPECT_EQ(places(0, 7, "others"), "[1, y.shape[1]] y[i0, i1] ");
  EXPECT_EQ(places(100, 107), "[1, y.shape[1]] y[i0, i1] ");
}

TEST(FormsReduce, PlacesOfOneBoundAreNotKnown) {
  FormsOfText m(ModelText("(int64[2] w) => (int64[1,N] y)",
                          "zero = Constant <value_int = 0> ()\n"
                          "low = GreaterOrEqual (w, zero)\n"
                          "y = NonZero (low)"));
  EXPECT_TRUE(m.Of("y").opaque);
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsReduce, PadModes) {
  FormsOfText m(ModelText("(float[4] x) => (float[7] a, float[7] b, float[7] c)",
                          "pads = Constant <value_ints = [2, 1]> ()\n"
                          "a = Pad <mode = \"edge\"> (x, pads)\n"
                          "b = Pad <mode = \"reflect\"> (x, pads)\n"
                          "c = Pad <mode = \"wrap\"> (x, pads)"));
  const auto places = [&](const std::string& name) {
    std::string text;
    for (int64_t k = 0; k < 7; ++k) {
      const sym::Expr at = m.forms().pool().Integer(k);
      text += sym::ToString(m.forms().At(m.Find(name), {&at, 1}, {}), &m.graph()) + " ";
    }
    return text;
  };
  EXPECT_EQ(places("a"), "x[0] x[0] x[0] x[1] x[2] x[3] x[3] ");
  EXPECT_EQ(places("b"), "x[2] x[1] x[0] x[1] x[2] x[3] x[2] ");
  EXPECT_EQ(places("c"), "x[2] x[3] x[0] x[1] x[2] x[3] x[0] ");
}

TEST(FormsReduce, ReversedAxes) {
  FormsOfText m(ModelText("(float[T,4] x) => (float[T,4] a, float[T,4] b)",
                          "m1 = Constant <value_ints = [-1]> ()\n"
                          "zero = Constant <value_ints = [0]> ()\n"
                          "t = Shape <end = 1> (x)\n"
                          "last = Add (t, m1)\n"
                          "n = Neg (t)\n"
                          "before = Add (n, m1)\n"
                          "far = Constant <value_ints = [-9223372036854775807]> ()\n"
                          "a = Slice (x, m1, far, zero, m1)\n"
                          "b = Slice (x, last, before, zero, m1)"));
  EXPECT_EQ(m.Element("a"), "x[T - i0 - 1, i1]");
  EXPECT_EQ(m.Element("b"), "x[T - i0 - 1, i1]");
}

std::string Contrib(const std::string& signature, const std::string& body) {
  return "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]>\ng " + signature +
         " {\n" + body + "\n}\n";
}

TEST(FormsAttention, MultiHeadAttentionKeepsItsPresents) {
  FormsOfText m(
      Contrib("(float[B,S,8] q, float[B,S,8] k, float[B,S,8] v, float[B,2,P,4] pk, "
              "float[B,2,P,4] pv) => (float[B,S,8] y, float[B,2,T,4] nk, "
              "float[B,2,T,4] nv)",
              "y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2> "
              "(q, k, v, , , , pk, pv)"));
  EXPECT_EQ(m.Shape("y"), "[B, S, 8]");
  EXPECT_EQ(m.Shape("nk"), "[B, 2, S + P, 4]");
  EXPECT_EQ(m.Element("nk"), "i2 < P ? pk[i0, i1, i2, i3] : k[i0, -P + i2, 4*i1 + i3]");
  EXPECT_EQ(m.Element("nv"), "i2 < P ? pv[i0, i1, i2, i3] : v[i0, -P + i2, 4*i1 + i3]");
}

TEST(FormsAttention, MultiHeadAttentionWithABiasOrASharedBufferIsNotTold) {
  FormsOfText m(
      Contrib("(float[B,S,8] q, float[B,S,8] k, float[B,S,8] v, float[24] bias, "
              "float[B,2,P,4] pk, float[B,2,P,4] pv, int32 n) => (float[B,S,8] y, "
              "float[B,2,T,4] nk, float[B,2,T,4] nv, float[B,S,8] z, "
              "float[B,2,T,4] mk, float[B,2,T,4] mv)",
              "y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2> "
              "(q, k, v, bias, , , pk, pv)\n"
              "z, mk, mv = com.microsoft.MultiHeadAttention <num_heads = 2> "
              "(q, k, v, , , , pk, pv, n)"));
  EXPECT_TRUE(m.Of("nk").opaque);
  EXPECT_TRUE(m.Of("mv").opaque);
  EXPECT_EQ(m.Shape("z"), "[B, S, 8]");
}

TEST(FormsAttention, AttentionKeepsItsPresents) {
  FormsOfText m(
      ModelText("(float[B,S,16] q, float[B,S,8] k, float[B,S,12] v, float[B,2,P,4] pk, "
                "float[B,2,P,6] pv) => (float[B,S,24] y, float[B,2,T,4] nk, "
                "float[B,2,T,6] nv)",
                "y, nk, nv = Attention <q_num_heads = 4, kv_num_heads = 2> "
                "(q, k, v, , pk, pv)",
                24));
  EXPECT_EQ(m.Shape("y"), "[B, S, 24]");
  EXPECT_EQ(m.Element("nk"), "i2 < P ? pk[i0, i1, i2, i3] : k[i0, -P + i2, 4*i1 + i3]");
  EXPECT_EQ(m.Element("nv"), "i2 < P ? pv[i0, i1, i2, i3] : v[i0, -P + i2, 6*i1 + i3]");
}

}  // namespace
}  // namespace kvlift::testing
