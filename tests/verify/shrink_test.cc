// LIBS: verify
// SRCS: support/verdict.cc
// What a check of the converted model by itself finds is made as small as what plans find.
#include <algorithm>
#include <cmath>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

// {}: what becomes of y4, [B, 1, S, 4].
constexpr char kModel[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,S,4] x, float[B,1,16,4] past, int64[B] at) => (float[B,S,4] y, float[B,1,16,4] now)
<int64[1] axis = {{1}}, int64[1] two = {{2}}, int64[3] places = {{1, 2, 3}}, int64[16] slots = {{0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 1}}, int64[4] shape = {{1, 1, 16, 1}}, int64 last = {{15}}, float most = {{100}}>
{{
  x4 = Unsqueeze (x, axis)
  now = TensorScatter <axis = 2> (past, x4, at)
  news = Shape <start = 1, end = 2> (x)
  nonpad = Add (at, news)
  y4 = Attention <is_causal = 1> (x4, now, now, , , , nonpad)
  {}
}})";

std::string Right() { return fmt::format(kModel, "y = Squeeze (y4, axis)"); }

// Adds what the last slot holds before a token is there, if that is very large.
std::string ReadsLastSlot() {
  return fmt::format(kModel, R"(
  marks = Reshape (slots, shape)
  mark = Cast <to = 1> (marks)
  unwritten = LessOrEqual (nonpad, last)
  unwritten4 = Unsqueeze (unwritten, places)
  counts = Cast <to = 1> (unwritten4)
  marked = Mul (now, mark)
  slot = ReduceSum <keepdims = 1> (marked, two)
  beyond = Sub (slot, most)
  large = Relu (beyond)
  junk = Mul (large, counts)
  sum = Add (y4, junk)
  y = Squeeze (sum, axis)
)");
}

// Reads one slot behind the last token, and gives it no weight: nothing that is a number shows it.
std::string WeighsSlotWithNothing() {
  return With(Right(), R"(
  nonpad = Add (at, news)
  y4 = Attention <is_causal = 1> (x4, now, now, , , , nonpad))",
              R"(
  one = Constant <value = int64[1] {1}> ()
  all = Constant <value = int64[1] {16}> ()
  first = Constant <value = int64 {0}> ()
  next = Constant <value = int64 {1}> ()
  end = Constant <value = int64 {16}> ()
  none = Constant <value = float {0}> ()
  low = Constant <value = float {-1e30}> ()
  filled = Add (at, news)
  more = Add (filled, one)
  behind = Min (more, all)
  slot_numbers = Range (first, end, next)
  tokens = Squeeze (news)
  steps = Range (first, tokens, next)
  rows = Unsqueeze (steps, one)
  at4 = Unsqueeze (at, places)
  own = Add (at4, rows)
  sees = LessOrEqual (slot_numbers, own)
  bias = Where (sees, none, low)
  y4 = Attention (x4, now, now, bias, , , behind))");
}

double Largest(const exec::Tensor& tensor) {
  double most = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    most = std::max(most, std::fabs(exec::ElementAsDouble(tensor.view(), i)));
  }
  return most;
}

bool HasNan(const exec::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (std::isnan(exec::ElementAsDouble(tensor.view(), i))) return true;
  }
  return false;
}

Manifest Relation() {
  Manifest m;
  ManifestCache c;
  c.id = "0.key_value";
  c.role = CacheRole::kKeyValue;
  c.input = "past";
  c.output = "now";
  c.dtype = "float32";
  c.layout = "BNSD";
  c.alias = CacheAlias::kSafe;
  c.source = {"past", "now", UpdateKind::kTensorScatter, "BNSD", 2, false, {}};
  m.caches = {c};
  m.inputs = {{"past", CacheInput{c.id}}, {"x", SameInput{}}, {"at", SameInput{}}};
  m.outputs = {{"now", CacheOutput{c.id}}, {"y", SameOutput{}}};
  return m;
}

TEST(ShrinkSelfChecks, ASlotThatIsReadBeforeItIsWritten) {
  const VerifyReport report = VerdictOn(Right(), ReadsLastSlot(), Relation());
  ASSERT_EQ(report.verdict, VerdictKind::kDifferent) << Summary(report);
  ASSERT_TRUE(report.counterexample.has_value());
  const Counterexample& found = *report.counterexample;
  EXPECT_EQ(found.plan, "garbage");
  EXPECT_NE(found.smallest, "");
  EXPECT_EQ(found.smallest_output, "y");
  EXPECT_EQ(found.past, std::vector<int64_t>{0});
  EXPECT_EQ(found.new_tokens, 1);
  ASSERT_EQ(found.before_steps.size(), 1);
  ASSERT_EQ(found.after_steps.size(), 1);
  // What is replayed is what differs: the caches, and the outputs.
  EXPECT_GT(Largest(found.after_steps[0].feeds.at("past")), 0);
  const exec::Tensor &mine = found.after_steps[0].fetches.at("y"),
                     &theirs = found.before_steps[0].fetches.at("y");
  EXPECT_GT(Largest(mine), 2 * Largest(theirs));
  EXPECT_EQ(found.after_node, "Squeeze \"y\"");
}

// What a mode of the executor shows is small, too, and holds what the mode made of the cache: any
// runtime gives the same for it.
TEST(ShrinkSelfChecks, ASlotThatOnlyPoisonShows) {
  const VerifyReport report = VerdictOn(Right(), WeighsSlotWithNothing(), Relation());
  ASSERT_EQ(report.verdict, VerdictKind::kDifferent) << Summary(report);
  ASSERT_TRUE(report.counterexample.has_value());
  const Counterexample& found = *report.counterexample;
  EXPECT_EQ(found.plan, "poison");
  EXPECT_EQ(found.text.substr(0, 5), "KV431");
  EXPECT_NE(found.smallest, "");
  EXPECT_EQ(found.smallest_output, "y");
  EXPECT_EQ(found.past, std::vector<int64_t>{0});
  EXPECT_EQ(found.new_tokens, 1);
  ASSERT_EQ(found.before_steps.size(), 1);
  ASSERT_EQ(found.after_steps.size(), 1);
  EXPECT_TRUE(HasNan(found.after_steps[0].feeds.at("past")));
  EXPECT_TRUE(HasNan(found.after_steps[0].fetches.at("y")));
  EXPECT_FALSE(HasNan(found.before_steps[0].feeds.at("past")));
  EXPECT_FALSE(HasNan(found.before_steps[0].fetches.at("y")));
  EXPECT_EQ(found.after_node, "Attention \"y4\"");
}

// A step of sequences of different lengths is replayed with the rows of each sequence in both
// models, also where another sequence is shorter.
TEST(ShrinkPlans, SequencesOfDifferentLengthsKeepTheirRows) {
  constexpr char kSource[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,S,4] x, float[B,1,P,4] past) => (float[B,S,4] y, float[B,1,T,4] now)
<int64[1] axis = {1}>
{
  x4 = Unsqueeze (x, axis)
  now = Concat <axis = 2> (past, x4)
  y4 = Attention <is_causal = 1> (x4, x4, x4, , past, past)
  y = Squeeze (y4, axis)
})";
  // The valid length of the first sequence is no smaller than that of the second one.
  const std::string wrong = With(Right(), "nonpad = Add (at, news)", R"(
  lengths = Add (at, news)
  sequences = Shape (at)
  numbers = Sub (sequences, axis)
  second = Min (numbers, axis)
  other = Gather (lengths, second)
  largest = Max (lengths, other)
  zero = Sub (axis, axis)
  size = Squeeze (sequences)
  start = Squeeze (zero)
  step = Squeeze (axis)
  places_of_sequences = Range (start, size, step)
  is_first = Equal (places_of_sequences, zero)
  nonpad = Where (is_first, largest, lengths))");
  Manifest relation =
      RelationOf({{"past", "now", "BNSD", UpdateKind::kConcat, true}}, {"x"}, {"y"});
  AddControl(&relation);
  const VerifyReport report = VerdictOn(kSource, wrong, relation);
  ASSERT_EQ(report.verdict, VerdictKind::kDifferent) << Summary(report);
  ASSERT_TRUE(report.counterexample.has_value()) << Summary(report);
  const Counterexample& found = *report.counterexample;
  EXPECT_EQ(found.plan, "ragged");
  EXPECT_NE(found.smallest, "");
  ASSERT_GT(found.past.size(), 1);
  ASSERT_EQ(found.before_steps.size(), found.past.size());
  ASSERT_EQ(found.after_steps.size(), 1);
  const exec::Tensor& buffer = found.after_steps[0].feeds.at("past");
  for (size_t b = 0; b < found.past.size(); ++b) {
    const exec::Tensor& rows = found.before_steps[b].feeds.at("past");
    ASSERT_EQ(rows.shape()[2], found.past[b]);
    for (int64_t i = 0; i < rows.size(); ++i) {
      const int64_t at = static_cast<int64_t>(b) * buffer.shape()[2] * 4 + i;
      EXPECT_EQ(exec::ElementAsDouble(buffer.view(), at), exec::ElementAsDouble(rows.view(), i))
          << "sequence " << b << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace kvlift
