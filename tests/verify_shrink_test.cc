// LIBS: verify
// SRCS: support/verdict.cc
// What a check of the converted model by itself finds is made as small as what plans find.
#include <cmath>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/verdict.h"
#include "verify/verify.h"

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

Manifest Relation() {
  Manifest m;
  ManifestCache c;
  c.id = "0.key_value";
  c.role = "key_value";
  c.input = "past";
  c.output = "now";
  c.dtype = "float32";
  c.layout = "BNSD";
  c.alias = "safe";
  c.source = {"past", "now", "tensor_scatter", "BNSD", 2, false, {}};
  m.caches = {c};
  ManifestInput past, x, at;
  past.name = "past";
  past.as = "cache";
  past.id = c.id;
  x.name = "x";
  at.name = "at";
  x.as = at.as = "same";
  m.inputs = {past, x, at};
  m.outputs = {{"now", "cache", c.id, ""}, {"y", "same", "", ""}};
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
  const auto largest = [](const exec::Tensor& tensor) {
    double most = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      most = std::max(most, std::fabs(exec::ElementAsDouble(tensor.view(), i)));
    }
    return most;
  };
  EXPECT_GT(largest(found.after_steps[0].feeds.at("past")), 0);
  const exec::Tensor &mine = found.after_steps[0].fetches.at("y"),
                     &theirs = found.before_steps[0].fetches.at("y");
  EXPECT_GT(largest(mine), 2 * largest(theirs));
  EXPECT_EQ(found.after_node, "Squeeze \"y\"");
}

}  // namespace
}  // namespace kvlift
