// LIBS: sym onnxio
// Caches that share one tensor, and windows of caches.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

constexpr char kAxes[] =
    "zero = Constant <value_int = 0> ()\n"
    "one = Constant <value_int = 1> ()\n"
    "ax0 = Constant <value_ints = [0]> ()\n"
    "ax1 = Constant <value_ints = [1]> ()\n"
    "ax2 = Constant <value_ints = [2]> ()\n"
    "far = Constant <value_ints = [9223372036854775807]> ()\n";

constexpr char kStacked[] =
    "i3 < P ? past[i0, i1, i2, i3, i4] : (i0 <= 0 ? k[i1, i2, -P + i3, i4] "
    ": v[i1, i2, -P + i3, i4])";

TEST(FormsStacked, KeysAndValuesByGather) {
  FormsOfText m(
      ModelText("(float[2,B,N,P,8] past, float[B,N,S,8] k, float[B,N,S,8] v) => "
                "(float[2,B,N,T,8] y)",
                std::string(kAxes) + "pk = Gather <axis = 0> (past, zero)\n"
                                     "pv = Gather <axis = 0> (past, one)\n"
                                     "fk = Concat <axis = 2> (pk, k)\n"
                                     "fv = Concat <axis = 2> (pv, v)\n"
                                     "uk = Unsqueeze (fk, ax0)\n"
                                     "uv = Unsqueeze (fv, ax0)\n"
                                     "y = Concat <axis = 0> (uk, uv)"));
  EXPECT_EQ(m.Shape("y"), "[2, B, N, P + S, 8]");
  EXPECT_EQ(m.Element("y"), kStacked);
}

TEST(FormsStacked, KeysAndValuesBySplitAndBySlice) {
  FormsOfText m(
      ModelText("(float[2,B,N,P,8] past, float[B,N,S,8] k, float[B,N,S,8] v) => "
                "(float[2,B,N,T,8] y, float[2,B,N,T,8] z)",
                std::string(kAxes) + "two = Constant <value_ints = [1, 1]> ()\n"
                                     "sk, sv = Split <axis = 0> (past, two)\n"
                                     "pk = Squeeze (sk, ax0)\n"
                                     "pv = Squeeze (sv, ax0)\n"
                                     "fk = Concat <axis = 2> (pk, k)\n"
                                     "fv = Concat <axis = -2> (pv, v)\n"
                                     "uk = Unsqueeze (fk, ax0)\n"
                                     "uv = Unsqueeze (fv, ax0)\n"
                                     "y = Concat <axis = 0> (uk, uv)\n"
                                     "ck = Slice (past, ax0, ax1, ax0)\n"
                                     "cv = Slice (past, ax1, far, ax0)\n"
                                     "k5 = Unsqueeze (k, ax0)\n"
                                     "v5 = Unsqueeze (v, ax0)\n"
                                     "gk = Concat <axis = 3> (ck, k5)\n"
                                     "gv = Concat <axis = 3> (cv, v5)\n"
                                     "z = Concat <axis = 0> (gk, gv)"));
  EXPECT_EQ(m.Element("y"), kStacked);
  EXPECT_EQ(m.Element("z"), kStacked);
}

TEST(FormsStacked, PackedOnTheLastAxis) {
  FormsOfText m(
      ModelText("(float[B,P,16] past, float[B,S,8] k, float[B,S,8] v) => "
                "(float[B,T,16] y)",
                std::string(kAxes) + "parts = Constant <value_ints = [8, 8]> ()\n"
                                     "pk, pv = Split <axis = -1> (past, parts)\n"
                                     "fk = Concat <axis = 1> (pk, k)\n"
                                     "fv = Concat <axis = 1> (pv, v)\n"
                                     "y = Concat <axis = -1> (fk, fv)"));
  EXPECT_EQ(m.Element("y"),
            "i1 < P ? past[i0, i1, i2] : (i2 <= 7 ? k[i0, -P + i1, i2] : v[i0, -P + i1, i2 - 8])");
}

TEST(FormsStacked, AllLayersInOneTensor) {
  std::string body = kAxes;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string l = std::to_string(layer);
    body += "at" + l + " = Constant <value_int = " + l + "> ()\n";
    body += "p" + l + " = Gather <axis = 0> (past, at" + l + ")\n";
    for (const std::string half : {"0", "1"}) {
      const std::string id = half + "_" + l;
      body += "h" + id + " = Gather <axis = 0> (p" + l + ", at" + half + "x)\n";
      body += "c" + id + " = Concat <axis = 1> (h" + id + ", x" + id + ")\n";
      body += "u" + id + " = Unsqueeze (c" + id + ", ax0)\n";
    }
    body += "kv" + l + " = Concat <axis = 0> (u0_" + l + ", u1_" + l + ")\n";
    body += "w" + l + " = Unsqueeze (kv" + l + ", ax0)\n";
  }
  body = "at0x = Constant <value_int = 0> ()\nat1x = Constant <value_int = 1> ()\n" + body;
  body += "y = Concat <axis = 0> (w0, w1, w2)";
  std::string inputs = "(float[3,2,B,P,4,8] past";
  for (const char* id : {"0_0", "1_0", "0_1", "1_1", "0_2", "1_2"}) {
    inputs += std::string(", float[B,S,4,8] x") + id;
  }
  FormsOfText m(ModelText(inputs + ") => (float[3,2,B,T,4,8] y)", body));
  EXPECT_EQ(m.Element("y"),
            "i3 < P ? past[i0, i1, i2, i3, i4, i5] : (i0 <= 0 ? "
            "(i1 <= 0 ? x0_0[i2, -P + i3, i4, i5] : x1_0[i2, -P + i3, i4, i5]) : (i0 <= 1 ? "
            "(i1 <= 0 ? x0_1[i2, -P + i3, i4, i5] : x1_1[i2, -P + i3, i4, i5]) : "
            "(i1 <= 0 ? x0_2[i2, -P + i3, i4, i5] : x1_2[i2, -P + i3, i4, i5])))");
}

TEST(FormsStacked, LayersSideBySideOnTheFirstAxis) {
  FormsOfText m(
      ModelText("(float[4,B,P,8] past, float[2,B,S,8] a, float[2,B,S,8] b) => "
                "(float[4,B,T,8] y)",
                std::string(kAxes) + "first = Slice (past, ax0, ax2, ax0)\n"
                                     "last = Slice (past, ax2, far, ax0)\n"
                                     "f = Concat <axis = 2> (first, a)\n"
                                     "g = Concat <axis = 2> (last, b)\n"
                                     "y = Concat <axis = 0> (f, g)"));
  EXPECT_EQ(m.Element("y"),
            "i2 < P ? past[i0, i1, i2, i3] : (i0 <= 1 ? a[i0, i1, -P + i2, i3] : "
            "b[i0 - 2, i1, -P + i2, i3])");
}

TEST(FormsWindow, TheLastTokensInAllSpellings) {
  FormsOfText m(
      ModelText("(float[B,N,P,8] past, float[B,N,S,8] k) => "
                "(float[B,N,U,8] a, float[B,N,U,8] b, float[B,N,U,8] c)",
                std::string(kAxes) + "full = Concat <axis = 2> (past, k)\n"
                                     "m7 = Constant <value_ints = [-7]> ()\n"
                                     "seven = Constant <value_ints = [7]> ()\n"
                                     "a = Slice (full, m7, far, ax2)\n"
                                     "s = Shape <start = 2, end = 3> (full)\n"
                                     "from = Sub (s, seven)\n"
                                     "start = Max (from, ax0)\n"
                                     "b = Slice (full, start, far, ax2)\n"
                                     "short = LessOrEqual (s, seven)\n"
                                     "start2 = Where (short, ax0, from)\n"
                                     "c = Slice (full, start2, s, ax2)"));
  EXPECT_EQ(m.Element("a"), m.Element("b"));
  EXPECT_EQ(m.Element("a"), m.Element("c"));
  EXPECT_EQ(m.Shape("a"), m.Shape("b"));
  EXPECT_EQ(m.Shape("a"), m.Shape("c"));
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsWindow, FirstInFirstOut) {
  FormsOfText m(ModelText("(float[B,N,32,8] cache, float[B,N,S,8] k) => (float[B,N,32,8] y)",
                          std::string(kAxes) + "s = Shape <start = 2, end = 3> (k)\n"
                                               "old = Slice (cache, s, far, ax2)\n"
                                               "y = Concat <axis = 2> (old, k)"));
  EXPECT_EQ(m.Shape("y"), "[B, N, 32, 8]");
  EXPECT_EQ(m.Element("y"),
            "S + i2 <= 31 ? cache[i0, i1, S + i2, i3] : k[i0, i1, S + i2 - 32, i3]");
  EXPECT_EQ(m.Assumed(), "S <= 32;");
}

}  // namespace
}  // namespace kvlift::testing
