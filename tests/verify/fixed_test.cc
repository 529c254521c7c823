// LIBS: verify
// SRCS: support/verdict.cc
// Sources whose caches have a fixed capacity: what their hosts feed is read from the graph, for
// each way to give a start, positions, a length or a mask.
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

// One layer of two heads. `decl`: further inputs; `start`: nodes that give at, int64[B];
// `visible`: nodes that give see, bool[B,1,S,M] or what broadcasts to it, from rows, int64[B,S],
// and slots, int64[M].
struct Parts {
  std::string decl, start, visible;
  std::string tokens = "B,S";
  std::string batch = "B";
  std::string slots = "M";
};

constexpr char kCausal[] = R"(
  rows3 = Unsqueeze (rows, two)
  see3 = LessOrEqual (slots, rows3)
  see = Unsqueeze (see3, one)
)";

enum class Side { kBefore, kAfter };

std::string Decoder(const Parts& p, Side side) {
  const std::string cache = absl::StrCat("float[", p.batch, ",2,", p.slots, ",4]");
  const char* write = side == Side::kBefore ? R"(
  places = Unsqueeze (rows, one_three)
  key_shape = Shape (key)
  index = Expand (places, key_shape)
  nk = ScatterElements <axis = 2> (pk, index, key)
  nv = ScatterElements <axis = 2> (pv, index, value)
)"
                                            : R"(
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
)";
  return absl::StrCat("<ir_version: 12, opset_import: [\"\" : 24]>\ng (int64[", p.tokens, "] ids, ",
                      p.decl, ", ", cache, " pk, ", cache, " pv) => (float[", p.tokens,
                      ",8] logits, ", cache, " nk, ", cache, " nv)", R"(
<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4, -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8,
   0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8, 1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8] wk = {1.5,-0.7,0.9,1.1,-1.3,0.6,1.7,-0.4},
 float[8] wv = {-0.5,1.2,0.8,-1.6,0.7,1.4,-0.9,1.1},
 int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}, int64[1] none = {0}, int64[1] one = {1},
 int64[1] two = {2}, int64[2] one_three = {1, 3}, int64 first = {0}, int64 next = {1},
 float low = {-10000.0}>
{
  batch = Shape <start = 0, end = 1> (ids)
  news = Shape <start = 1, end = 2> (ids)
  count = Squeeze (news)
  steps = Range (first, count, next)
)",
                      p.start, R"(
  begin = Unsqueeze (at, one)
  rows = Add (begin, steps)
  x = Gather (table, ids)
  k = Mul (x, wk)
  v = Mul (x, wv)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  q4 = Reshape (x, heads)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
)",
                      write, R"(
  capacity1 = Shape <start = 2, end = 3> (pk)
  capacity = Squeeze (capacity1)
  slots = Range (first, capacity, next)
)",
                      p.visible, R"(
  keys = Transpose <perm = [0, 1, 3, 2]> (nk)
  scores = MatMul (query, keys)
  masked = Where (see, scores, low)
  probs = Softmax (masked)
  y = MatMul (probs, nv)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (y4, flat)
})");
}

Manifest Relation(const std::vector<std::string>& inputs) {
  return RelationOf({{"pk", "nk", "BNSD"}, {"pv", "nv", "BNSD"}}, inputs, {"logits"});
}

VerifyReport Judge(const Parts& p, const std::vector<std::string>& inputs) {
  return VerdictOn(Decoder(p, Side::kBefore), Decoder(p, Side::kAfter), Relation(inputs));
}

struct Spelling {
  const char *name, *decl, *start;
  bool ragged = false;
};

void PrintTo(const Spelling& s, std::ostream* out) { *out << s.name; }

class Starts : public ::testing::TestWithParam<Spelling> {};

TEST_P(Starts, AreFedRight) {
  const Parts p{GetParam().decl, GetParam().start, kCausal};
  const VerifyReport report = Judge(p, {"ids", "where"});
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
  EXPECT_GE(report.controls.size(), 8u);
  const auto lengths =
      std::find(report.coverage.begin(), report.coverage.end(),
                std::pair<std::string, std::string>{"lengths in one batch", "differ"});
  EXPECT_EQ(lengths != report.coverage.end(), GetParam().ragged) << Summary(report);
}

TEST_P(Starts, WrittenOneFurtherAreDifferent) {
  Parts p{GetParam().decl, GetParam().start, kCausal};
  const std::string before = Decoder(p, Side::kBefore);
  const std::string after =
      With(Decoder(p, Side::kAfter), "TensorScatter <axis = 2> (pv, value, at)",
           "TensorScatter <axis = 2> (pv, value, later)");
  const VerifyReport report = VerdictOn(
      before, With(after, "keys = ", "later = Add (at, one) keys = "), Relation({"ids", "where"}));
  EXPECT_NE(report.verdict, VerdictKind::kEqual);
}

constexpr Spelling kSpellings[] = {
    {"Scalar", "int64 where", "w = Reshape (where, one) at = Expand (w, batch)"},
    {"One", "int64[1] where", "at = Expand (where, batch)"},
    {"OneOfInt32", "int32[1] where", "w = Cast <to = 7> (where) at = Expand (w, batch)"},
    {"PerSequence", "int64[B] where", "at = Identity (where)", true},
    {"PerSequenceInColumns", "int64[B,1] where", "at = Squeeze (where, one)", true},
    {"Positions", "int64[S] where", "w = Slice (where, none, one) at = Expand (w, batch)"},
    {"PositionsInARow", "int64[1,S] where",
     "w2 = Slice (where, none, one, one) w = Squeeze (w2, one) at = Expand (w, batch)"},
    {"PositionsPerSequence", "int64[B,S] where",
     "w = Slice (where, none, one, one) at = Squeeze (w, one)", true},
    {"PositionsOfThreeKinds", "int64[3,B,S] where",
     "plane = Gather (where, first) w = Slice (plane, none, one, one) at = Squeeze (w, one)", true},
    {"Total", "int64 where",
     "w0 = Sub (where, count) w = Reshape (w0, one) at = Expand (w, batch)"},
    {"TotalPerSequence", "int32[B] where", "w = Cast <to = 7> (where) at = Sub (w, news)", true},
    {"LastPosition", "int64[1] where",
     "w0 = Sub (where, news) w = Add (w0, one) at = Expand (w, batch)"},
};

INSTANTIATE_TEST_SUITE_P(Spellings, Starts, ::testing::ValuesIn(kSpellings),
                         [](const auto& s) { return std::string(s.param.name); });

struct Mask {
  const char *name, *decl, *visible;
};

void PrintTo(const Mask& m, std::ostream* out) { *out << m.name; }

class Masks : public ::testing::TestWithParam<Mask> {};

TEST_P(Masks, AreFedRight) {
  const Parts p{absl::StrCat("int64[B] where, ", GetParam().decl), "at = Identity (where)",
                GetParam().visible};
  const VerifyReport report = Judge(p, {"ids", "where", "mask"});
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
}

constexpr Mask kMasks[] = {
    {"ValidSlots", "int64[B,M] mask", R"(
  rows3 = Unsqueeze (rows, two)
  past = LessOrEqual (slots, rows3)
  real = Cast <to = 9> (mask)
  real3 = Unsqueeze (real, one)
  see3 = And (past, real3)
  see = Unsqueeze (see3, one)
)"},
    {"Bool", "bool[B,1,S,M] mask", "see = Identity (mask)"},
    {"BoolOfHidden", "bool[B,1,S,M] mask", "see = Not (mask)"},
    {"BoolForAll", "bool[1,1,S,M] mask", "see = Identity (mask)"},
    {"Additive", "float[B,1,S,M] mask",
     "half = Constant <value = float {-1.0}> () see = Greater (mask, half)"},
    {"AdditiveOfTwoAxes", "float[S,M] mask",
     "half = Constant <value = float {-1.0}> () see = Greater (mask, half)"},
    {"Factor", "float[B,1,S,M] mask",
     "half = Constant <value = float {0.5}> () see = Greater (mask, half)"},
};

INSTANTIATE_TEST_SUITE_P(Spellings, Masks, ::testing::ValuesIn(kMasks),
                         [](const auto& m) { return std::string(m.param.name); });

// A length that a mask alone reads: with a smaller one less would be visible, with a larger one an
// unused slot.
TEST(FixedTest, LengthOfTheMask) {
  for (const char* compare : {"Less (slots, end)", "LessOrEqual (slots, end)"}) {
    Parts p{"int64[1] where, int64 length", "at = Expand (where, batch)", ""};
    p.visible = absl::StrCat("end = Reshape (length, one) near = ", compare, R"(
      rows3 = Unsqueeze (rows, two)
      past = LessOrEqual (slots, rows3)
      see3 = And (past, near)
      see = Unsqueeze (see3, one))");
    const VerifyReport report = Judge(p, {"ids", "where", "length"});
    EXPECT_EQ(report.verdict, VerdictKind::kEqual) << compare << Summary(report);
  }
}

TEST(FixedTest, StaticSizes) {
  Parts p{"int32 where", "w0 = Cast <to = 7> (where) w = Reshape (w0, one) at = Expand (w, batch)",
          kCausal};
  p.tokens = "2,3";
  p.batch = "2";
  p.slots = "32";
  const VerifyReport report = Judge(p, {"ids", "where"});
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
}

TEST(FixedTest, OneTokenAtATimeToTheLastOfManySlots) {
  Parts p{"int64[B] where", "at = Identity (where)", kCausal};
  p.tokens = "B,1";
  p.slots = "300";
  const VerifyReport report = Judge(p, {"ids", "where"});
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
  EXPECT_NE(std::find(report.coverage.begin(), report.coverage.end(),
                      std::pair<std::string, std::string>{"last slot", "reached"}),
            report.coverage.end());
}

// Every slot is visible in the source: noise in unused ones moves both models alike.
TEST(FixedTest, UnusedSlotsThatTheSourceReads) {
  Parts p{"int64[B] where", "at = Identity (where)", R"(
  rows3 = Unsqueeze (rows, two)
  see3 = GreaterOrEqual (slots, first)
  see1 = Unsqueeze (see3, none)
  see = Unsqueeze (see1, none)
)"};
  const VerifyReport report = Judge(p, {"ids", "where"});
  EXPECT_NE(report.verdict, VerdictKind::kDifferent) << Summary(report);
  const auto garbage = std::find_if(report.plans.begin(), report.plans.end(),
                                    [](const PlanResult& plan) { return plan.name == "garbage"; });
  ASSERT_NE(garbage, report.plans.end());
  EXPECT_EQ(garbage->status, "skipped");
}

// Slots counted from the end are no append, whatever the host feeds.
TEST(FixedTest, SourceThatDoesNotAppend) {
  const Parts p{"int64[B] where", "w = Sub (where, capacity1) w1 = Neg (w) at = Sub (w1, one)",
                kCausal};
  const std::string early = "capacity1 = Shape <start = 2, end = 3> (pk)";
  std::string text = With(Decoder(p, Side::kBefore), early, "");
  text = With(text, "batch = Shape", early + " batch = Shape");
  const VerifyReport report = VerdictOn(text, text, Relation({"ids", "where"}));
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << Summary(report);
  EXPECT_EQ(report.reason.substr(0, 5), "KV402") << report.reason;
}

}  // namespace
}  // namespace kvlift
