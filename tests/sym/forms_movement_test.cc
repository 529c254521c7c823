// LIBS: sym onnxio
// Operators that move data: Concat, Slice, Gather and their like, and constants that are patterns.
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

// An index that a condition guards is assumed to lie inside only where it is read.
TEST(FormsMovement, GuardedIndicesAreAssumedWhereTheyAreRead) {
  const std::string signature = "(float[N] x, int64[1] p) => (float[K] y)";
  const std::string body =
      "zero = Constant <value = int64 {0}> ()\none = Constant <value = int64 {1}> ()\n"
      "nine = Constant <value = int64 {9}> ()\nslots = Range (zero, nine, one)\n"
      "row = Sub (slots, p)\n";
  FormsOfText guarded(ModelText(signature, body + "there = LessOrEqual (p, slots)\n"
                                                  "at = Where (there, row, zero)\n"
                                                  "y = Gather (x, at)"));
  guarded.Of("y");
  for (const sym::FormAssumption& assumption : guarded.forms().assumptions()) {
    EXPECT_NE(assumption.reason, sym::AssumptionReason::kInside) << assumption.text;
  }
}

TEST(FormsMovement, GrowingConcat) {
  FormsOfText m(ModelText("(float[B,2,P,4] past, float[B,2,S,4] k) => (float[B,2,T,4] y)",
                          "y = Concat <axis = -2> (past, k)"));
  EXPECT_EQ(m.Shape("y"), "[B, 2, P + S, 4]");
  EXPECT_EQ(m.Element("y"), "i2 < P ? past[i0, i1, i2, i3] : k[i0, i1, -P + i2, i3]");
}

TEST(FormsMovement, ConcatOfDifferentBatchSymbolsIsAssumed) {
  FormsOfText m(ModelText("(float[B,P] past, float[C,S] k) => (float[B,T] y)",
                          "y = Concat <axis = 1> (past, k)"));
  EXPECT_EQ(m.Shape("y"), "[B, P + S]");
  EXPECT_EQ(m.forms().assumptions().size(), 1u);
}

TEST(FormsMovement, SplitGivesPieces) {
  FormsOfText m(ModelText("(float[B,10] x) => (float[B,4] a, float[B,4] b, float[B,2] c)",
                          "a, b, c = Split <axis = 1, num_outputs = 3> (x)"));
  EXPECT_EQ(m.Shape("a"), "[B, 4]");
  EXPECT_EQ(m.Shape("c"), "[B, 2]");
  EXPECT_EQ(m.Element("b"), "x[i0, i1 + 4]");
}

TEST(FormsMovement, SliceBounds) {
  FormsOfText m(
      ModelText("(float[B,10] x) => (float[B,N] a, float[B,N] b, float[B,10] c, float[B,N] d)",
                "ax = Constant <value_ints = [1]> ()\n"
                "m3 = Constant <value_ints = [-3]> ()\n"
                "far = Constant <value_ints = [9223372036854775807]> ()\n"
                "a = Slice (x, m3, far, ax)\n"
                "two = Constant <value_ints = [2]> ()\n"
                "b = Slice (x, two, far, ax, two)\n"
                "m1 = Constant <value_ints = [-1]> ()\n"
                "low = Constant <value_ints = [-9223372036854775808]> ()\n"
                "c = Slice (x, m1, low, ax, m1)\n"
                "twenty = Constant <value_ints = [20]> ()\n"
                "d = Slice (x, two, twenty, ax)"));
  EXPECT_EQ(m.Shape("a"), "[B, 3]");
  EXPECT_EQ(m.Element("a"), "x[i0, i1 + 7]");
  EXPECT_EQ(m.Shape("b"), "[B, 4]");
  EXPECT_EQ(m.Element("b"), "x[i0, 2*i1 + 2]");
  EXPECT_EQ(m.Shape("c"), "[B, 10]");
  EXPECT_EQ(m.Element("c"), "x[i0, -i1 + 9]");
  EXPECT_EQ(m.Shape("d"), "[B, 8]");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsMovement, SliceByDimsIsProvedOrAssumed) {
  FormsOfText m(
      ModelText("(float[\"P + S\",D] t, float[P] past, float[S] x, float[64,D] w) "
                "=> (float[S,D] a, float[S,D] b)",
                "zero = Constant <value_ints = [0]> ()\n"
                "p = Shape (past)\n"
                "s = Shape (x)\n"
                "e = Add (p, s)\n"
                "a = Slice (t, p, e, zero)\n"
                "b = Slice (w, p, e, zero)"));
  EXPECT_EQ(m.Element("a"), "t[P + i0, i1]");
  EXPECT_EQ(m.Assumed(), "");
  EXPECT_EQ(m.Shape("b"), "[S, D]");
  EXPECT_FALSE(m.forms().assumptions().empty());
}

// The sign of an index that the model computes is not one that a host could promise.
TEST(FormsMovement, IndicesThatTheModelComputesAreReadAsTheOperatorReadsThem) {
  const auto of = [](const std::string& body) {
    return ModelText("(float[T] x, int64[S] ids, float[8] w) => (float[N] y)",
                     "zero = Constant <value_ints = [0]> ()\n"
                     "one = Constant <value_ints = [1]> ()\n"
                     "far = Constant <value_ints = [2147483647]> ()\n" +
                         body);
  };
  FormsOfText table(
      of("table = Constant <value_ints = [1, 0, -3]> ()\n"
         "entry = Gather (table, ids)\n"
         "y = Gather (x, entry)"));
  EXPECT_EQ(table.Assumed().find("0 <= table"), std::string::npos) << table.Assumed();
  EXPECT_NE(table.Element("y"), "x[table[ids[i0]]]");
  FormsOfText top(
      of("value, place = TopK (w, one)\n"
         "five = Constant <value_ints = [5]> ()\n"
         "start = Sub (place, five)\n"
         "y = Slice (x, start, far, zero)"));
  EXPECT_EQ(top.Assumed().find("place"), std::string::npos) << top.Assumed();
  FormsOfText sizes(
      of("t = Shape (x)\n"
         "t0 = Squeeze (t)\n"
         "step = Constant <value_int = 1> ()\n"
         "first = Constant <value_int = 0> ()\n"
         "count = Range (first, t0, step)\n"
         "square = Mul (count, count)\n"
         "most = ReduceMax <keepdims = 1> (square)\n"
         "start = Sub (most, far)\n"
         "y = Slice (x, start, far, zero)"));
  EXPECT_EQ(sizes.Assumed().find("most"), std::string::npos) << sizes.Assumed();
  // The host gives a position.
  FormsOfText given(of("y = Gather (x, ids)"));
  EXPECT_EQ(given.Element("y"), "x[ids[i0]]");
  EXPECT_NE(given.Assumed().find("0 <= ids[i0]"), std::string::npos) << given.Assumed();
}

TEST(FormsMovement, NegativeConstantStartOfASymbolicAxisIsClamped) {
  FormsOfText m(ModelText("(float[T] x) => (float[N] y)",
                          "zero = Constant <value_ints = [0]> ()\n"
                          "start = Constant <value_ints = [-3]> ()\n"
                          "far = Constant <value_ints = [2147483647]> ()\n"
                          "y = Slice (x, start, far, zero)"));
  // min(T, 3) elements, the last ones.
  EXPECT_EQ(m.Assumed(), "");
  EXPECT_NE(m.Shape("y"), "[3]");
}

TEST(FormsMovement, GatherWraps) {
  FormsOfText m(ModelText("(float[B,S,4] x) => (float[B,4] y, float[B,S] z)",
                          "last = Constant <value_int = -1> ()\n"
                          "y = Gather <axis = 1> (x, last)\n"
                          "z = Gather <axis = -1> (x, last)"));
  EXPECT_EQ(m.Element("y"), "x[i0, S - 1, i1]");
  EXPECT_EQ(m.Element("z"), "x[i0, i1, 3]");
}

TEST(FormsMovement, EmbeddingsAreOpaqueTablesOfIntegersAreNot) {
  FormsOfText m(ModelText("(int64[B,S] ids) => (float[B,S,2] y, int64[B,S] z)",
                          "w = Constant <value = float[3,2] {1, 2, 3, 4, 5, 6}> ()\n"
                          "t = Constant <value_ints = [5, 3, 9]> ()\n"
                          "y = Gather (w, ids)\n"
                          "z = Gather (t, ids)"));
  EXPECT_TRUE(m.Of("y").opaque);
  EXPECT_EQ(m.Shape("y"), "[B, S, 2]");
  EXPECT_FALSE(m.Of("z").opaque);
}

TEST(FormsMovement, FlatLookUpOfAMask) {
  FormsOfText m(ModelText("(int64[B,T] mask) => (int64[B,T] y)",
                          "s = Shape (mask)\n"
                          "zero = Constant <value_int = 0> ()\n"
                          "one = Constant <value_int = 1> ()\n"
                          "b = Gather (s, zero)\n"
                          "t = Gather (s, one)\n"
                          "rows = Range (zero, b, one)\n"
                          "columns = Range (zero, t, one)\n"
                          "ax = Constant <value_ints = [1]> ()\n"
                          "r = Unsqueeze (rows, ax)\n"
                          "rt = Mul (r, t)\n"
                          "place = Add (rt, columns)\n"
                          "flat = Flatten <axis = 2> (mask)\n"
                          "minus = Constant <value_ints = [-1]> ()\n"
                          "line = Reshape (flat, minus)\n"
                          "y = Gather (line, place)"));
  EXPECT_EQ(m.Shape("y"), "[B, T]");
  EXPECT_EQ(m.Element("y"), "mask[i0, i1]");
}

TEST(FormsMovement, GatherNDTakesCoordinates) {
  FormsOfText m(ModelText("(int64[B,T] x) => (int64[B] y)",
                          "s = Shape <end = 1> (x)\n"
                          "zero = Constant <value_int = 0> ()\n"
                          "one = Constant <value_int = 1> ()\n"
                          "n = Squeeze (s)\n"
                          "rows = Range (zero, n, one)\n"
                          "ax = Constant <value_ints = [-1]> ()\n"
                          "r = Unsqueeze (rows, ax)\n"
                          "rr = Concat <axis = 1> (r, r)\n"
                          "y = GatherND (x, rr)"));
  EXPECT_EQ(m.Shape("y"), "[B]");
  EXPECT_EQ(m.Element("y"), "x[i0, i0]");
}

// The extent is that of the operand, and the elements are other ones.
TEST(FormsMovement, PadsThatTakeAsMuchAsTheyAdd) {
  const auto element = [](const std::string& mode) {
    FormsOfText m(ModelText("(int64[5] x) => (int64[5] y)",
                            "pads = Constant <value_ints = [1, -1]> ()\n"
                            "y = Pad <mode = \"" +
                                mode + "\"> (x, pads)"));
    EXPECT_EQ(m.Shape("y"), "[5]");
    return m.Element("y");
  };
  const std::set<std::string> all = {element("edge"), element("reflect"), element("wrap"),
                                     element("constant")};
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all.count("x[i0 - 1]") + all.count("x[-1 + i0]"), 0u);
}

TEST(FormsMovement, PadAndTrilu) {
  FormsOfText m(ModelText("(float[S,S] x, float[4] v) => (float[S,S] t, float[7] p)",
                          "k = Constant <value_int = 1> ()\n"
                          "t = Trilu <upper = 1> (x, k)\n"
                          "pads = Constant <value_ints = [1, 2]> ()\n"
                          "p = Pad (v, pads)"));
  EXPECT_EQ(m.Element("t"), "i1 <= i0 ? 0 : x[i0, i1]");
  EXPECT_EQ(m.Shape("p"), "[7]");
  EXPECT_EQ(m.forms().pool().Prove(
                m.forms().pool().Eq(m.forms().At(m.Find("p"), {m.forms().pool().Integer(6)}, {}),
                                    m.forms().pool().Integer(0), {}),
                {}),
            sym::Truth::kYes);
}

TEST(FormsConstants, Patterns) {
  FormsOfText m(ModelText("(float[1] x) => (int64[1] y)",
                          "up = Constant <value = int64[12] {0,1,2,3,4,5,6,7,8,9,10,11}> ()\n"
                          "groups = Constant <value = int64[6] {0,0,0,1,1,1}> ()\n"
                          "column = Constant <value = int64[3,1] {2,4,6}> ()\n"
                          "tril = Constant <value = bool[3,3] {1,0,0,1,1,0,1,1,1}> ()\n"
                          "triu = Constant <value = float[1,3,3] {0,-5,-5,0,0,-5,0,0,0}> ()\n"
                          "near = Constant <value = bool[3,4] {1,0,0,0,1,1,0,0,0,1,1,0}> ()\n"
                          "eye = Constant <value = float[2,2] {1,0,0,1}> ()\n"
                          "most = Constant <value = bool[3,3] {1,0,0,1,1,0,0,0,1}> ()\n"
                          "same = Constant <value = float[2,2] {3,3,3,3}> ()\n"
                          "whole = Constant <value = float[3] {1,3,2}> ()\n"
                          "weights = Constant <value = float[3] {1,3.5,2}> ()\n"
                          "y = Identity (up)"));
  EXPECT_EQ(m.Element("up"), "i0");
  EXPECT_EQ(m.Element("groups"), "i0 div 3");
  EXPECT_EQ(m.Element("column"), "2*i0 + 2");
  EXPECT_EQ(m.Element("tril"), "i1 <= i0");
  EXPECT_EQ(m.Element("triu"), "i2 <= i1 ? 0 : -5");
  EXPECT_EQ(m.Element("near"), "i1 <= i0 and i0 <= i1 + 1");
  EXPECT_EQ(m.Element("eye"), "i1 == i0");
  EXPECT_TRUE(m.Of("most").opaque);
  EXPECT_EQ(m.Element("same"), "3");
  EXPECT_EQ(m.Element("whole"), "i0 == 0 ? 1 : (i0 == 1 ? 3 : 2)");
  EXPECT_TRUE(m.Of("weights").opaque);
}

TEST(FormsConstants, BigTrianglesAreRecognised) {
  auto proto = std::make_shared<onnx::ModelProto>();
  proto->set_ir_version(10);
  proto->add_opset_import()->set_version(20);
  auto* tensor = proto->mutable_graph()->add_initializer();
  tensor->set_name("tril");
  tensor->set_data_type(onnx::TensorProto::BOOL);
  constexpr int64_t kSize = 2048;
  for (int64_t d : {int64_t{1}, int64_t{1}, kSize, kSize}) tensor->add_dims(d);
  std::string raw(kSize * kSize, '\0');
  for (int64_t r = 0; r < kSize; ++r) {
    for (int64_t c = 0; c <= r; ++c) raw[r * kSize + c] = 1;
  }
  tensor->set_raw_data(raw);
  const auto graph = Graph::Build(proto);
  ASSERT_TRUE(graph.ok()) << graph.status();
  sym::Forms forms(*graph);
  EXPECT_EQ(sym::ToString(forms.Of(graph->Find("tril")).element, &*graph), "i3 <= i2");
  raw[5] = 1;
  tensor->set_raw_data(raw);
  sym::Forms other(*graph);
  EXPECT_TRUE(other.Of(graph->Find("tril")).opaque);
}

}  // namespace
}  // namespace kvlift::testing
