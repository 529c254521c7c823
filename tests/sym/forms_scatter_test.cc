// LIBS: sym onnxio
// Writes into a cache of fixed capacity, in every spelling of their indices.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

// Nodes that many spellings begin with: the extents of update k as scalars.
std::string Extents(const std::string& k, const std::string& names) {
  std::string text = k + "_shape = Shape (" + k + ")\n";
  for (size_t axis = 0; axis < names.size(); ++axis) {
    const std::string name(1, names[axis]), number = std::to_string(axis);
    text += k + "_at" + number + " = Constant <value_int = " + number + "> ()\n";
    text += name + " = Gather (" + k + "_shape, " + k + "_at" + number + ")\n";
  }
  return text;
}

constexpr char kScalars[] =
    "zero = Constant <value_int = 0> ()\n"
    "one = Constant <value_int = 1> ()\n"
    "minus = Constant <value_ints = [-1]> ()\n"
    "ax0 = Constant <value_ints = [0]> ()\n"
    "ax1 = Constant <value_ints = [1]> ()\n"
    "ax2 = Constant <value_ints = [2]> ()\n";

TEST(FormsScatter, RowsOfAFlattenedCache) {
  FormsOfText m(ModelText("(float[B,64,D] cache, float[B,S,D] k, int64[B] w) => (float[B,64,D] y)",
                          kScalars + Extents("k", "bsd") +
                              "rows_shape = Constant <value_ints = [-1]> ()\n"
                              "d1 = Unsqueeze (d, ax0)\n"
                              "flat_shape = Concat <axis = 0> (minus, d1)\n"
                              "flat = Reshape (cache, flat_shape)\n"
                              "new_rows = Reshape (k, flat_shape)\n"
                              "batch = Range (zero, b, one)\n"
                              "m = Constant <value_int = 64> ()\n"
                              "first = Mul (batch, m)\n"
                              "start = Add (first, w)\n"
                              "start1 = Unsqueeze (start, ax1)\n"
                              "tokens = Range (zero, s, one)\n"
                              "place = Add (start1, tokens)\n"
                              "column = Constant <value_ints = [-1, 1]> ()\n"
                              "index = Reshape (place, column)\n"
                              "written = ScatterND (flat, index, new_rows)\n"
                              "shape = Shape (cache)\n"
                              "y = Reshape (written, shape)"));
  EXPECT_EQ(m.Element("y"),
            "(w[i0] <= i1 and i1 < S + w[i0]) ? k[i0, i1 - w[i0], i2] : cache[i0, i1, i2]");
  EXPECT_EQ(m.Assumed(), "0 < D;0 <= w[i0];S + w[i0] <= 64;0 < B;");
}

TEST(FormsScatter, RowsOfHeadsFlattenedTogether) {
  FormsOfText m(
      ModelText("(float[B,N,M,8] cache, float[B,N,S,8] k, int64[B] w) => "
                "(float[B,N,M,8] y)",
                kScalars + Extents("k", "bns") +
                    "shape = Shape (cache)\n"
                    "two = Constant <value_int = 2> ()\n"
                    "m = Gather (shape, two)\n"
                    "flat_shape = Constant <value_ints = [-1, 8]> ()\n"
                    "flat = Reshape (cache, flat_shape)\n"
                    "new_rows = Reshape (k, flat_shape)\n"
                    "batch = Range (zero, b, one)\n"
                    "heads = Range (zero, n, one)\n"
                    "tokens = Range (zero, s, one)\n"
                    "ax12 = Constant <value_ints = [1, 2]> ()\n"
                    "b3 = Unsqueeze (batch, ax12)\n"
                    "n3 = Unsqueeze (heads, ax1)\n"
                    "w3 = Unsqueeze (w, ax12)\n"
                    "bn = Mul (b3, n)\n"
                    "bh = Add (bn, n3)\n"
                    "bhm = Mul (bh, m)\n"
                    "begin = Add (bhm, w3)\n"
                    "place = Add (begin, tokens)\n"
                    "column = Constant <value_ints = [-1, 1]> ()\n"
                    "index = Reshape (place, column)\n"
                    "written = ScatterND (flat, index, new_rows)\n"
                    "y = Reshape (written, shape)"));
  EXPECT_EQ(m.Element("y"),
            "(w[i0] <= i2 and i2 < S + w[i0]) ? k[i0, i1, i2 - w[i0], i3] : "
            "cache[i0, i1, i2, i3]");
  EXPECT_EQ(m.Assumed(), "0 <= w[i0];S + w[i0] <= M;0 < B;0 < N;0 < M;");
}

TEST(FormsScatter, EveryElementByItsFourCoordinates) {
  std::string body = kScalars + Extents("k", "bnsd");
  const char* const axes[] = {"1, 2, 3", "0, 2, 3", "0, 1, 3", "0, 1, 2"};
  const char names[] = {'b', 'n', 's', 'd'};
  for (int k = 0; k < 4; ++k) {
    const std::string n(1, names[k]);
    body += n + "_range = Range (zero, " + n + ", one)\n";
    body += n + "_axes = Constant <value_ints = [" + axes[k] + "]> ()\n";
    body += n + "_column = Unsqueeze (" + n + "_range, " + n + "_axes)\n";
    if (n == "s") {
      body += "s_from = Add (s_column, w)\n";
    } else {
      body += n + "_from = Identity (" + n + "_column)\n";
    }
    body += n + "_wide = Expand (" + n + "_from, k_shape)\n";
    body += n + "_last = Unsqueeze (" + n + "_wide, minus)\n";
  }
  body +=
      "places = Concat <axis = 4> (b_last, n_last, s_last, d_last)\n"
      "flat_shape = Constant <value_ints = [-1, 4]> ()\n"
      "index = Reshape (places, flat_shape)\n"
      "new_flat = Reshape (k, minus)\n"
      "y = ScatterND (cache, index, new_flat)";
  FormsOfText m(
      ModelText("(float[B,2,M,8] cache, float[B,2,S,8] k, int64 w) => "
                "(float[B,2,M,8] y)",
                body));
  EXPECT_EQ(m.Element("y"),
            "(w <= i2 and i2 < S + w) ? k[i0, i1, i2 - w, i3] : cache[i0, i1, i2, i3]");
  EXPECT_EQ(m.Assumed(), "0 <= w;");
}

TEST(FormsScatter, ClampedStart) {
  FormsOfText m(ModelText("(float[B,M,8] cache, float[B,S,8] k, int64 w) => (float[B,M,8] y)",
                          kScalars + Extents("k", "bsd") +
                              "shape = Shape (cache)\n"
                              "m = Gather (shape, one)\n"
                              "last = Sub (m, s)\n"
                              "low = Max (w, zero)\n"
                              "start = Min (low, last)\n"
                              "tokens = Range (zero, s, one)\n"
                              "place = Add (tokens, start)\n"
                              "column = Unsqueeze (place, ax1)\n"
                              "turned = Transpose <perm = [1, 0, 2]> (cache)\n"
                              "new = Transpose <perm = [1, 0, 2]> (k)\n"
                              "written = ScatterND (turned, column, new)\n"
                              "y = Transpose <perm = [1, 0, 2]> (written)"));
  EXPECT_FALSE(m.Of("y").opaque);
  sym::Pool& pool = m.forms().pool();
  ASSERT_EQ(m.Of("y").element->kind(), sym::Kind::kSelect);
  const sym::Expr condition = m.Of("y").element->args()[0];
  EXPECT_EQ(sym::ConjunctsOf(condition).size(), 2u);
  EXPECT_EQ(sym::ToString(m.Of("y").element->args()[2], &m.graph()), "cache[i0, i1, i2]");
  EXPECT_NE(pool.num_nodes(), 0);
}

// Rows behind the last slot would be written to one slot; the assumption excludes them, and no
// more.
TEST(FormsScatter, ClampedRows) {
  FormsOfText m(ModelText("(int64[1] start, float[8] past, float[S] x) => (float[8] y)",
                          kScalars + Extents("x", "s") +
                              "last = Constant <value_int = 7> ()\n"
                              "tokens = Range (zero, s, one)\n"
                              "places = Add (tokens, start)\n"
                              "slots = Clip (places, zero, last)\n"
                              "y = ScatterElements <axis = 0> (past, slots, x)"));
  EXPECT_EQ(m.Element("y"), "(start[0] <= i0 and i0 < S + start[0]) ? x[i0 - start[0]] : past[i0]");
  EXPECT_EQ(m.Assumed(), "0 <= start[0];S + start[0] <= 8;");
}

TEST(FormsScatter, CircularPlaces) {
  FormsOfText m(ModelText("(float[B,32,8] cache, float[B,S,8] k, int64 w) => (float[B,32,8] y)",
                          kScalars + Extents("k", "bsd") +
                              "tokens = Range (zero, s, one)\n"
                              "from = Add (tokens, w)\n"
                              "m = Constant <value_int = 32> ()\n"
                              "place = Mod (from, m)\n"
                              "column = Unsqueeze (place, ax1)\n"
                              "turned = Transpose <perm = [1, 0, 2]> (cache)\n"
                              "new = Transpose <perm = [1, 0, 2]> (k)\n"
                              "written = ScatterND (turned, column, new)\n"
                              "y = Transpose <perm = [1, 0, 2]> (written)"));
  EXPECT_EQ(m.Element("y"),
            "i1 < S + w + 32*((i1 - w) div 32) ? "
            "k[i0, i1 - w - 32*((i1 - w) div 32), i2] : cache[i0, i1, i2]");
  EXPECT_EQ(m.Assumed(), "S <= 32;");
}

TEST(FormsScatter, CircularPlaceOfOneToken) {
  FormsOfText m(ModelText("(float[B,32,8] cache, float[B,8] k, int64[B] pos) => (float[B,32,8] y)",
                          kScalars + Extents("k", "bd") +
                              "rows = Range (zero, b, one)\n"
                              "m = Constant <value_int = 32> ()\n"
                              "place = Mod (pos, m)\n"
                              "r = Unsqueeze (rows, ax1)\n"
                              "p = Unsqueeze (place, ax1)\n"
                              "index = Concat <axis = 1> (r, p)\n"
                              "y = ScatterND (cache, index, k)"));
  EXPECT_EQ(m.Element("y"), "i1 + 32*(pos[i0] div 32) == pos[i0] ? k[i0, i2] : cache[i0, i1, i2]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsScatter, PositionsOfTheHostAreTakenAsConsecutive) {
  FormsOfText m(ModelText("(float[B,M,8] cache, float[S,B,8] k, int64[S] pos) => (float[M,B,8] y)",
                          kScalars + std::string("shape = Shape (cache)\n"
                                                 "m = Gather (shape, one)\n"
                                                 "wrapped = Add (pos, m)\n"
                                                 "negative = Less (pos, zero)\n"
                                                 "place = Where (negative, wrapped, pos)\n"
                                                 "column = Unsqueeze (place, minus)\n"
                                                 "turned = Transpose <perm = [1, 0, 2]> (cache)\n"
                                                 "y = ScatterND (turned, column, k)")));
  EXPECT_EQ(m.Element("y"),
            "(pos[0] <= i0 and i0 < S + pos[0]) ? k[i0 - pos[0], i1, i2] : cache[i1, i0, i2]");
  EXPECT_EQ(m.Assumed(), "0 <= pos[0];i0 + pos[0] == pos[i0];");
}

// JAX counts each row's place from the end of the axis if it is negative, and drops rows outside.
TEST(FormsScatter, RowsThatCountFromTheEndOrAreDropped) {
  FormsOfText m(ModelText("(float[B,M,8] cache, float[S,B,8] k, int64 start) => (float[M,B,8] y)",
                          kScalars + std::string("shape = Shape (cache)\n"
                                                 "m = Gather (shape, one)\n"
                                                 "rows = Shape (k)\n"
                                                 "s = Gather (rows, zero)\n"
                                                 "count = Range (zero, s, one)\n"
                                                 "pos = Add (count, start)\n"
                                                 "wrapped = Add (pos, m)\n"
                                                 "negative = Less (pos, zero)\n"
                                                 "place = Where (negative, wrapped, pos)\n"
                                                 "low = GreaterOrEqual (place, zero)\n"
                                                 "high = Less (place, m)\n"
                                                 "inside = And (low, high)\n"
                                                 "found = NonZero (inside)\n"
                                                 "axes = Constant <value_ints = [0]> ()\n"
                                                 "flat = Squeeze (found, axes)\n"
                                                 "kept = Gather (place, flat)\n"
                                                 "k_kept = Gather (k, flat)\n"
                                                 "column = Unsqueeze (kept, minus)\n"
                                                 "turned = Transpose <perm = [1, 0, 2]> (cache)\n"
                                                 "y = ScatterND (turned, column, k_kept)")));
  EXPECT_EQ(m.Element("y"),
            "(start <= i0 and i0 < S + start) ? k[i0 - start, i1, i2] : cache[i1, i0, i2]");
  EXPECT_EQ(m.Assumed(), "0 <= M + i0 + start;i0 + start < M;0 <= start;");
}

TEST(FormsScatter, PlacesThatAreComputedAreNotTakenAsConsecutive) {
  FormsOfText m(ModelText("(float[T,E] scores) => (float[T,E] y)",
                          "two = Constant <value_ints = [2]> ()\n"
                          "best, which = TopK (scores, two)\n"
                          "zero = Constant <value = float[1] {0}> ()\n"
                          "shape = Shape (scores)\n"
                          "empty = ConstantOfShape <value = float[1] {0}> (shape)\n"
                          "y = ScatterElements <axis = 1> (empty, which, best)"));
  EXPECT_TRUE(m.Of("y").opaque);
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsScatter, AddingScattersAreOpaque) {
  FormsOfText m(ModelText("(float[M,8] cache, float[1,8] k, int64[1] pos) => (float[M,8] y)",
                          "minus = Constant <value_ints = [-1]> ()\n"
                          "column = Unsqueeze (pos, minus)\n"
                          "y = ScatterND <reduction = \"add\"> (cache, column, k)"));
  EXPECT_TRUE(m.Of("y").opaque);
}

TEST(FormsScatter, BlendByAOneHot) {
  FormsOfText m(
      ModelText("(float[B,N,32,8] cache, float[B,N,1,8] x, float k, int64[B] pos) => "
                "(float[B,N,32,8] y)",
                kScalars + std::string("fresh = Sin (x)\n"
                                       "depth = Constant <value_int = 32> ()\n"
                                       "values = Constant <value = float[2] {0, 1}> ()\n"
                                       "hot = OneHot (pos, depth, values)\n"
                                       "axes = Constant <value_ints = [1, 3]> ()\n"
                                       "h = Unsqueeze (hot, axes)\n"
                                       "f1 = Constant <value = float {1}> ()\n"
                                       "rest = Sub (f1, h)\n"
                                       "old = Mul (cache, rest)\n"
                                       "new = Mul (h, fresh)\n"
                                       "y = Add (old, new)")));
  EXPECT_EQ(m.Element("y"), "pos[i0] == i2 ? fresh[i0, i1, 0, i3] : cache[i0, i1, i2, i3]");
  EXPECT_EQ(m.Assumed(),
            "0 <= pos[i0];finite(cache[i0, i1, i2, i3]);finite(fresh[i0, i1, 0, i3]);");
}

TEST(FormsScatter, TensorScatterInBothModes) {
  FormsOfText m(
      ModelText("(float[B,N,32,8] cache, float[B,N,S,8] k, int64[B] w) => "
                "(float[B,N,32,8] y, float[B,N,32,8] z, float[B,N,32,8] x)",
                "y = TensorScatter (cache, k, w)\n"
                "z = TensorScatter <mode = \"circular\"> (cache, k, w)\n"
                "x = TensorScatter <mode = \"none\"> (cache, k, w)",
                24));
  EXPECT_EQ(m.Element("y"),
            "(i2 < S + w[i0] and w[i0] <= i2) ? k[i0, i1, i2 - w[i0], i3] : "
            "cache[i0, i1, i2, i3]");
  EXPECT_EQ(m.Element("z"),
            "i2 < S + w[i0] + 32*((i2 - w[i0]) div 32) ? "
            "k[i0, i1, i2 - w[i0] - 32*((i2 - w[i0]) div 32), i3] : cache[i0, i1, i2, i3]");
  EXPECT_TRUE(m.Of("x").opaque);
}

TEST(FormsScatter, TheLastPlaceOfARolledCache) {
  FormsOfText m(ModelText("(float[32,B,8] cache, float[1,B,8] k) => (float[32,B,8] y)",
                          "z = Constant <value_ints = [0]> ()\n"
                          "o = Constant <value_ints = [1]> ()\n"
                          "far = Constant <value_ints = [9223372036854775807]> ()\n"
                          "tail = Slice (cache, o, far, z)\n"
                          "head = Slice (cache, z, o, z)\n"
                          "rolled = Concat <axis = 0> (tail, head)\n"
                          "last = Constant <value = int64[1,1] {-1}> ()\n"
                          "y = ScatterND (rolled, last, k)"));
  EXPECT_EQ(m.Element("y"), "i0 <= 30 ? cache[i0 + 1, i1, i2] : k[0, i1, i2]");
}

// One buffer for all layers, written layer after layer.
TEST(FormsScatter, LayersOfOneBuffer) {
  std::string body = kScalars + Extents("k0", "obs") +
                     "tokens = Range (zero, s, one)\n"
                     "places = Add (tokens, w)\n"
                     "batch = Range (zero, b, one)\n"
                     "ax02 = Constant <value_ints = [0, 2]> ()\n"
                     "ax01 = Constant <value_ints = [0, 1]> ()\n"
                     "rows = Unsqueeze (batch, ax02)\n"
                     "columns = Unsqueeze (places, ax01)\n"
                     "both = Add (rows, columns)\n"
                     "shape = Shape (both)\n"
                     "r = Expand (rows, shape)\n"
                     "p = Expand (columns, shape)\n"
                     "r1 = Unsqueeze (r, minus)\n"
                     "p1 = Unsqueeze (p, minus)\n"
                     "c0 = Identity (cache)\n";
  for (int n = 0; n < 3; ++n) {
    std::string layer =
        "l# = Constant <value_int = #> ()\n"
        "wide# = Expand (l#, shape)\n"
        "l1# = Unsqueeze (wide#, minus)\n"
        "index# = Concat <axis = -1> (l1#, r1, p1)\n"
        "d# = ScatterND (c#, index#, k#)\n";
    for (size_t at = layer.find('#'); at != std::string::npos; at = layer.find('#')) {
      layer.replace(at, 1, std::to_string(n));
    }
    body += layer + "c" + std::to_string(n + 1) + " = Identity (d" + std::to_string(n) + ")\n";
  }
  FormsOfText m(
      ModelText("(float[3,B,M,8] cache, float[1,B,S,8] k0, float[1,B,S,8] k1, "
                "float[1,B,S,8] k2, int64 w) => (float[3,B,M,8] y)",
                body + "y = Identity (c3)"));
  EXPECT_EQ(m.Element("y"),
            "(w <= i2 and i2 < S + w) ? (i0 <= 1 ? (i0 == 1 ? k1[0, i1, i2 - w, i3] : "
            "k0[0, i1, i2 - w, i3]) : k2[0, i1, i2 - w, i3]) : cache[i0, i1, i2, i3]");
}

TEST(FormsScatter, GatesOnRealDataStayArithmetic) {
  FormsOfText m(ModelText("(float[B,S,8] x, int64[B,S] mask) => (float[B,S,8] y)",
                          "zero = Constant <value_int = 0> ()\n"
                          "keep = Greater (mask, zero)\n"
                          "gate = Cast <to = 1> (keep)\n"
                          "axes = Constant <value_ints = [2]> ()\n"
                          "g = Unsqueeze (gate, axes)\n"
                          "y = Mul (x, g)"));
  EXPECT_TRUE(m.Of("y").opaque);
  EXPECT_EQ(m.Assumed(), "");
}

}  // namespace
}  // namespace kvlift::testing
