// LIBS: verify
// SRCS: support/verdict.cc
// Wrong models that differ only at sizes which small steps do not have.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "contract/manifest.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"
#include "verify/steps/thresholds.h"

namespace kvlift {
namespace {

constexpr char kNew[] =
    R"(<float[3,4] table = {0.9,-1.2,0.3,1.7, -1.4,0.8,1.6,-0.2, 1.3,-0.9,0.5,1.8},
 float[4] wk = {1.5,-0.7,0.9,1.1}, float[4] wv = {-0.5,1.2,0.8,-1.6}, int64[1] one = {1},
 int64[2] sides = {1, 3}, int64 zero = {0}, int64 step = {1}>)"
    R"({
  x = Gather (table, ids)
  k = Mul (x, wk)
  v = Mul (x, wv)
  key = Unsqueeze (k, one)
  value = Unsqueeze (v, one)
  query = Unsqueeze (x, one)
)";

constexpr char kEnd[] = R"(
  y_3 = Squeeze (y, one)
  length = Cast <to = 1> (shape)
  logits = Add (y_3, length)
})";

// `notes` and `marks` have lengths of their own, and the logits count those of `counted`.
Model Before() {
  return ModelOfText(std::string(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,1,P,4] pk, float[B,1,P,4] pv, float[N] notes, float[C] marks)
  => (float[B,S,4] logits, float[B,1,T,4] nk, float[B,1,T,4] nv)
)") + kNew + R"(
  y, nk, nv = Attention <is_causal = 1> (query, key, value, , pk, pv)
  shape = Shape (notes)
)" + kEnd);
}

// The rows that a right model computes.
constexpr char kRows[] = "row = Add (first, place)";

// `rows` makes `row`, int64 [S] or [B, S], from `place`, the numbers of the new tokens in the step,
// and `at`; a query sees the slots up to its row.
Model After(const std::string& rows, const std::string& counted = "notes") {
  return ModelOfText(std::string(R"(<ir_version: 12, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,1,M,4] pk, float[B,1,M,4] pv, int64[B] at, float[N] notes,
   float[C] marks)
  => (float[B,S,4] logits, float[B,1,M,4] nk, float[B,1,M,4] nv)
)") + kNew + R"(
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
  news = Shape <start = 1, end = 2> (ids)
  nonpad = Add (at, news)
  count = Squeeze (news)
  place = Range (zero, count, step)
  first = Unsqueeze (at, one)
  slots = Shape <start = 2, end = 3> (pk)
  slots_0 = Squeeze (slots)
  column = Range (zero, slots_0, step)
)" + rows + R"(
  row_4 = Unsqueeze (row, sides)
  sees = GreaterOrEqual (row_4, column)
  y = Attention (query, nk, nv, sees, , , nonpad)
  shape = Shape ()" + counted +
                     ")" + kEnd);
}

Manifest Relation() { return OneLayerRelation({"ids", "notes", "marks"}); }

// Rows that went through a type, as positions in the buffer or as places in the step.
std::string PositionsThrough(int type) {
  return "all = Add (first, place) some = Cast <to = " + std::to_string(type) +
         "> (all) row = Cast <to = 7> (some)";
}
std::string PlacesThrough(int type) {
  return "some = Cast <to = " + std::to_string(type) +
         "> (place) whole = Cast <to = 7> (some) row = Add (first, whole)";
}

class RowsThroughAType : public testing::TestWithParam<int> {};

TEST_P(RowsThroughAType, DifferFromTheFirstNumberThatItLoses) {
  for (const std::string& rows : {PositionsThrough(GetParam()), PlacesThrough(GetParam())}) {
    const auto report = Verify(Before(), After(rows), Relation(), {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->verdict, VerdictKind::kDifferent) << rows << "\n" << report->reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowsThroughAType,
                         testing::Values(onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16,
                                         onnx::TensorProto::UINT8, onnx::TensorProto::INT8));

TEST(OtherSizesTest, WholeRowsAreRight) {
  const auto report = Verify(Before(), After(kRows), Relation(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(Accepts(report->verdict, Accept::kTested)) << report->reason;
}

TEST(OtherSizesTest, LengthsOfDifferentNamesAreToldApart) {
  const auto report = Verify(Before(), After(kRows, "marks"), Relation(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->verdict, VerdictKind::kDifferent) << report->reason;
}

// Multiplies the logits of a model by 1.5 if `what`, a bool of one element, is true.
Model ScaledIf(const Model& model, const std::string& what) {
  std::string text = PrintModelText(*model.proto);
  text = absl::StrReplaceAll(
      text, {{"logits = Add (y_3, length)",
              "sum = Add (y_3, length) " + what +
                  " more = Mul (sum, c15) logits = Where (scaled, more, sum)"},
             {"int64[1] one = ",
              "float c15 = {1.5}, float c0 = {0}, int64[1] c7 = {7}, int64[1] c37 = {37}, "
              "int64[1] one = "}});
  return ModelOfText(text);
}
Model AfterScaledIf(const std::string& what) { return ScaledIf(After(kRows), what); }

TEST(OtherSizesTest, LengthsThatNoStepDeterminesAreOfSeveralSizes) {
  for (const char* what : {"size = Shape (marks) same = Equal (size, c7) scaled = Not (same)",
                           "size = Shape (marks) scaled = Greater (size, c7)",
                           "size = Shape (marks) scaled = Less (size, c7)"}) {
    const auto report = Verify(Before(), AfterScaledIf(what), Relation(), {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->verdict, VerdictKind::kDifferent) << what << "\n" << report->reason;
  }
}

// The sum of `marks` is one number in all steps of a plan, and another one in other plans.
TEST(OtherSizesTest, RealNumbersThatAreTheSameInAllStepsHaveEitherSign) {
  for (const char* op : {"Greater", "Less"}) {
    const auto report = Verify(
        Before(),
        AfterScaledIf("sums = ReduceSum (marks) scaled = " + std::string(op) + " (sums, c0)"),
        Relation(), {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->verdict, VerdictKind::kDifferent) << op << "\n" << report->reason;
  }
}

// Both compare with one number; the past of the one is longer by a token, so that they differ
// behind as many tokens only.
TEST(OtherSizesTest, BothCompareWithOneNumber) {
  for (const int more : {0, 1}) {
    const Model before =
        ScaledIf(Before(), "past = Shape <start = 2, end = 3> (pk) scaled = Greater (past, c37)");
    const Model after = AfterScaledIf(
        "past = ReduceMax <keepdims = 1> (at) " +
        std::string(more > 0 ? "longer = Add (past, one) " : "longer = Identity (past) ") +
        "scaled = Greater (longer, c37)");
    const auto report = Verify(before, after, Relation(), {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->verdict == VerdictKind::kDifferent, more > 0) << report->reason;
  }
}

// A table of 50 rows does not stand for the bound of positions in the other model.
TEST(ThresholdsTest, BoundsAreNotMatchedByRowsOfTables) {
  const char* const body =
      "<ir_version: 10, opset_import: [\"\" : 24]> g (int64[B,S] ids) => (float[B,S,2] y) "
      "<float[5,2] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, int64 c5 = {5}> { ";
  const Model plain = ModelOfText(std::string(body) + "y = Gather (table, ids) }");
  const Model bounded =
      ModelOfText(std::string(body) + "least = Min (ids, c5) y = Gather (table, least) }");
  EXPECT_EQ(FindUnmatched(*plain.proto, *bounded.proto).numbers, std::vector<int64_t>{5});
  EXPECT_TRUE(FindUnmatched(*bounded.proto, *bounded.proto).numbers.empty());
}

TEST(ThresholdsTest, NumbersThatOneModelChoosesByMoreOftenAreCompared) {
  const char* const head =
      "<ir_version: 10, opset_import: [\"\" : 24]> g (int64[B,S] ids) => (int64[B,S] y) "
      "<int64 c5 = {5}> { ";
  const Model once = ModelOfText(std::string(head) + "y = Min (ids, c5) }");
  const Model twice =
      ModelOfText(std::string(head) + "least = Min (ids, c5) y = Max (least, c5) }");
  EXPECT_EQ(FindUnmatched(*once.proto, *twice.proto).compared, std::vector<int64_t>{5});
  EXPECT_TRUE(FindUnmatched(*twice.proto, *twice.proto).compared.empty());
}

TEST(ThresholdsTest, CastsCountWhereOneModelHasMoreOfThem) {
  const Model plain = After(kRows), half = After(PositionsThrough(onnx::TensorProto::FLOAT16));
  EXPECT_EQ(FindUnmatched(*plain.proto, *half.proto).casts, std::vector<int64_t>{2049});
  EXPECT_EQ(FindUnmatched(*half.proto, *plain.proto).casts, std::vector<int64_t>{2049});
  EXPECT_TRUE(FindUnmatched(*half.proto, *half.proto).casts.empty());
  EXPECT_TRUE(FindUnmatched(*plain.proto, *half.proto).numbers.empty());
}

}  // namespace
}  // namespace kvlift
