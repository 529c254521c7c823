// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// What the ledger says of padding tokens and of sequences of different lengths, and feeds that keep
// to it.
#include <algorithm>
#include <string>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"
#include "verify/inputs/stimulus.h"
#include "verify/judge/verify.h"
#include "verify/steps/drive.h"

namespace kvlift {
namespace {

std::string CaseText(const std::string& name) {
  const auto loaded = LoadCase(std::string(KVLIFT_TESTDATA_DIR) + "/rewrites/" + name + ".onnxtxt");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->before : std::string();
}

struct Pair {
  Model before, after;
  Manifest relation;
};

// Converts a model, and forgets what the conversion says of padding tokens.
Pair Converted(const std::string& text) {
  const auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status();
  Pair pair;
  pair.before = AsModel(*model);
  auto converted = Convert(pair.before, ConvertOptions(), AllRules());
  EXPECT_TRUE(converted.ok() && converted->model)
      << (converted.ok() ? Describe(AllReasons(*converted)) : converted.status().ToString());
  if (!converted.ok() || !converted->model) return pair;
  pair.after = AsModel(*converted->model);
  pair.relation = converted->manifest;
  std::erase_if(pair.relation.preconditions,
                [](const Precondition& p) { return p.code == "KV236"; });
  return pair;
}

VerifyReport Judged(const Pair& pair) {
  const auto report = Verify(pair.before, pair.after, pair.relation, VerifyOptions());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport();
}

TEST(Padding, IsExcludedWhereSomethingTakesInAllRowsOfACache) {
  for (const char* name : {"growing_concat_mean_of_rows", "growing_concat_largest_of_rows"}) {
    const VerifyReport report = Judged(Converted(CaseText(name)));
    EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << name;
    EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, "")) << name;
  }
}

// Adds the value `last`, which the nodes `count` make, to the result of a decoder.
std::string With(const std::string& count) {
  return absl::StrReplaceAll(CaseText("decomposed_attention_gqa"),
                             {{"y = Reshape(context4, y_shape)",
                               count + " number = Cast<to = 1>(last)\n" +
                                   "flat = Reshape(context4, y_shape)\n y = Add(flat, number)"}});
}

// Numbers that are made of sizes alone, and depend on how many tokens a step has.
TEST(Padding, IsExcludedWhereTheNumberOfTokensMatters) {
  const char* const counts[] = {
      "last = ArgMax<axis = 0, keepdims = 0>(rows)\n",
      "places = NonZero(sees)\n dims = Shape(places)\n last = Gather(dims, one)\n",
  };
  for (const char* count : counts) {
    const VerifyReport report = Judged(Converted(With(count)));
    EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << count;
    EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, "")) << count;
  }
}

// The number of keys that each query sees does not depend on later tokens.
TEST(Padding, IsNotExcludedWhereTheKeysOfEachQueryAreCounted) {
  const VerifyReport report = Judged(Converted(
      With("flags = Cast<to = 1>(sees)\n last = ReduceSum<keepdims = 1>(flags, axes_1)\n")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual);
  EXPECT_FALSE(report.assumptions.Has(AssumptionKind::kPadding, ""));
}

TEST(Padding, IsNotExcludedInAnOrdinaryDecoder) {
  const VerifyReport report = Judged(Converted(CaseText("decomposed_attention_gqa")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual);
  const auto pads = std::find_if(report.plans.begin(), report.plans.end(),
                                 [](const PlanResult& plan) { return plan.name == "right pads"; });
  ASSERT_NE(pads, report.plans.end());
  EXPECT_GT(pads->steps, 0);
}

// GroupQueryAttention takes the length of the longest sequence, so that steps of sequences of
// different lengths are run.
TEST(Lengths, AreThoseOfTheLongestSequenceForGroupQueryAttention) {
  Pair pair = Converted(CaseText("attention_op_group_query_buffer_sink"));
  const VerifyReport right = Judged(pair);
  EXPECT_TRUE(Accepts(right.verdict, Accept::kTested));
  const auto ragged = std::find_if(right.plans.begin(), right.plans.end(),
                                   [](const PlanResult& plan) { return plan.name == "ragged"; });
  ASSERT_NE(ragged, right.plans.end());
  EXPECT_GT(ragged->steps, 0);
  onnx::ModelProto wrong = *pair.after.proto;
  int changed = 0;
  for (auto& node : *wrong.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ReduceMax") continue;
    node.set_op_type("ReduceMin");
    ++changed;
  }
  ASSERT_GT(changed, 0);
  pair.after = AsModel(wrong);
  EXPECT_EQ(Judged(pair).verdict, VerdictKind::kDifferent);
}

// The decoder with more inputs, whose queries are multiplied by the number `f` that `nodes` make.
std::string WithFactor(const std::string& inputs, const std::string& nodes) {
  return absl::StrReplaceAll(
      CaseText("decomposed_attention_gqa"),
      {{"decoder (", "decoder (\n  " + inputs + ","},
       {"  float none0 = {0}",
        "  float none0 = {0}, int64 seven = {7}, int64[1] two = {2},\n"
        "  float[8] table = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5}"},
       {"  q4 = Reshape(q, q_shape)", nodes + "  q_scaled = Mul(q, f)\n"
                                              "  q4 = Reshape(q_scaled, q_shape)"}});
}

const PlanResult* PlanOf(const VerifyReport& report, const std::string& name) {
  const auto at = std::find_if(report.plans.begin(), report.plans.end(),
                               [&](const PlanResult& plan) { return plan.name == name; });
  return at == report.plans.end() ? nullptr : &*at;
}

bool SaysOf(const Assumptions& ledger, const std::string& condition) {
  return std::any_of(ledger.all().begin(), ledger.all().end(),
                     [&](const Assumption& a) { return a.condition == condition; });
}

// Vectors of one declared size are fed as many elements each, in the steps of each sequence alone
// and in those of all.
TEST(FeedsOfTheLedger, VectorsOfOneNameHaveOneSize) {
  const VerifyReport report = Judged(Converted(WithFactor(
      "bool flag, float[X] x, bool[X] w, bool[X] w2",
      "  r = If (flag) <then_branch = t () => (float[Q] a) { a = Compress<axis = 0>(x, w) },\n"
      "    else_branch = e () => (float[Q] b) { b = Compress<axis = 0>(x, w2) }>\n"
      "  count = Shape<start = 0, end = 1>(r)\n  f = Cast<to = 1>(count)\n")));
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << report.reason;
  EXPECT_TRUE(SaysOf(report.assumptions, "X = x.shape[0] = w.shape[0] = w2.shape[0]"));
}

// The vector picks elements of itself, as an order of sequences does that a search chose, but it is
// as long for each sequence alone.
TEST(FeedsOfTheLedger, LengthThatIsTheSameForEachSequenceAloneIsNotTheirNumber) {
  const VerifyReport report = Judged(Converted(WithFactor(
      "int64[N] w",
      "  picked = Gather(w, w)\n  above = GreaterOrEqual(picked, zero)\n"
      "  below = LessOrEqual(picked, seven)\n  both = And(above, below)\n  found = NonZero(both)\n"
      "  count = Shape<start = 1, end = 2>(found)\n  f = Cast<to = 1>(count)\n")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
  ASSERT_NE(PlanOf(report, "ragged"), nullptr);
  EXPECT_GT(PlanOf(report, "ragged")->steps, 0) << PlanOf(report, "ragged")->note;
}

// What the ledger bounds is drawn within its bounds, and no positions of tokens.
TEST(FeedsOfTheLedger, NumbersKeepToTheirBounds) {
  const VerifyReport report =
      Judged(Converted(WithFactor("int64[1] w",
                                  "  end = Add(w, two)\n  part = Slice(table, w, end, axes_0)\n"
                                  "  f = ReduceSum<keepdims = 0>(part)\n")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
  EXPECT_TRUE(SaysOf(report.assumptions, "w[0] <= 6 (bound of a Slice, part)"));
  EXPECT_FALSE(SaysOf(report.assumptions, "w holds the positions P..T-1"));
  ASSERT_NE(PlanOf(report, "ragged"), nullptr);
  EXPECT_GT(PlanOf(report, "ragged")->steps, 0) << PlanOf(report, "ragged")->note;
}

// A scatter that drops the rows whose places lie outside of the buffer, as JAX writes it. The
// ledger says that none does, and `off` is a length of the step by guess only: P + S leads outside.
TEST(FeedsOfTheLedger, GuessedLengthKeepsPlacesInsideTheBuffer) {
  const VerifyReport report = Judged(Converted(R"(<ir_version: 10, opset_import: ["" : 23]>
g (float[B,S,4] x, float[B,1,8,4] past, int64[S] slots, int64[1] off)
  => (float[B,S,4] y, float[B,1,8,4] now)
<int64 zero = {0}, int64 last = {7}, int64[1] front = {0}, int64[1] axis = {1},
 int64[1,8] cols = {0, 1, 2, 3, 4, 5, 6, 7}>
{
  x4 = Unsqueeze (x, axis)
  place = Add (slots, off)
  above = GreaterOrEqual (place, zero)
  below = LessOrEqual (place, last)
  inside = And (above, below)
  found = NonZero (inside)
  flat = Squeeze (found, front)
  rows = Transpose <perm = [2, 0, 1, 3]> (x4)
  slotted = Transpose <perm = [2, 0, 1, 3]> (past)
  kept = Gather (place, flat)
  kept_rows = Gather (rows, flat)
  column = Unsqueeze (kept, axis)
  done = ScatterND (slotted, column, kept_rows)
  now = Transpose <perm = [1, 2, 0, 3]> (done)
  place2 = Unsqueeze (place, axis)
  sees = LessOrEqual (cols, place2)
  y4 = Attention (x4, now, now, sees)
  y = Squeeze (y4, axis)
})"));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
  EXPECT_TRUE(
      SaysOf(report.assumptions, "slots[i0] + off[0] <= 7 (the bounds of all elements, found)"));
}

// A mask of the rows that an encoder read has their number, whatever the model calls it.
TEST(FeedsOfTheLedger, MaskIsAsLongAsWhatItHides) {
  const std::string text = CaseText("growing_concat_merged_cross_masked");
  for (const char* seen : {"float[B,1,1,F] seen", "float[E] seen"}) {
    const VerifyReport report =
        Judged(Converted(absl::StrReplaceAll(text, {{"float[B,1,1,E] seen", seen}})));
    EXPECT_EQ(report.verdict, VerdictKind::kEqual) << seen << ": " << report.reason;
  }
}

// No step that breaks an entry of the ledger counts, whatever the models do in it. The relation
// says that the vector holds positions, which leave the bounds of the table in long steps.
TEST(FeedsOfTheLedger, StepsThatBreakAnEntryAreNotRun) {
  const Pair pair =
      Converted(WithFactor("int64[1] w",
                           "  end = Add(w, two)\n  part = Slice(table, w, end, axes_0)\n"
                           "  f = ReduceSum<keepdims = 0>(part)\n"));
  FedRules rules;
  const FedNumber element{FedNumber::Kind::kElement, 0, "w", {{FedNumber::Kind::kInteger, 0}}};
  rules.conditions = {{{FedNumber::Kind::kIsAtMost, 0, {}, {element}}, "w[0] <= 0", std::nullopt}};
  auto graph = Graph::Build(pair.before.proto), after = Graph::Build(pair.after.proto);
  ASSERT_TRUE(graph.ok() && after.ok());
  auto stimulus = Stimulus::Create(*graph, *after, pair.relation, 1);
  ASSERT_TRUE(stimulus.ok()) << stimulus.status();
  auto runner = Runner::Create(pair.before.proto, "", {}, exec::AliasMode::kOff, 1);
  ASSERT_TRUE(runner.ok()) << runner.status();
  Driver driver(pair.relation, *stimulus, 5);
  Plan plan;
  plan.name = "two steps";
  plan.capacity = 16;
  plan.steps = {EvenStep(1, 0, 1), EvenStep(1, 1, 1)};
  EXPECT_EQ(driver.RunSource(*runner, plan).steps.size(), 2u);
  driver.KeepTo(&rules);
  const Record record = driver.RunSource(*runner, plan);
  EXPECT_EQ(record.steps.size(), 1u);
  EXPECT_TRUE(record.excluded);
  EXPECT_EQ(record.stopped, "w[0] <= 0");
}
constexpr char kTwoPresents[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,S,4] x, float[B,1,16,4] past, int64[B] at)
  => (float[B,S,4] y, float[B,1,16,4] now, float[B,1,16,4] other)
<int64[1] axis = {1}>
{
  x4 = Unsqueeze (x, axis)
  turned = Neg (x4)
  now = TensorScatter <axis = 2> (past, x4, at)
  other = TensorScatter <axis = 2> (past, turned, at)
  news = Shape <start = 1, end = 2> (x)
  nonpad = Add (at, news)
  y4 = Attention <is_causal = 1> (x4, now, now, , , , nonpad)
  y = Squeeze (y4, axis)
})";

Manifest RelationOfTwoPresents() {
  Manifest m;
  ManifestCache c;
  c.id = "0.key_value";
  c.role = CacheRole::kKeyValue;
  c.input = "past";
  c.output = "now";
  c.dtype = "float32";
  c.layout = "BNSD";
  c.alias = CacheAlias::kCopy;
  c.source = {"past", "now", UpdateKind::kTensorScatter, "BNSD", 2, false, {}};
  m.caches = {c};
  m.inputs = {{"past", CacheInput{c.id}}, {"x", SameInput{}}, {"at", SameInput{}}};
  m.outputs = {{"now", CacheOutput{c.id}}, {"y", SameOutput{}}, {"other", SameOutput{}}};
  return m;
}

Pair PairOfTwoPresents(const std::string& after) {
  const auto theirs = ParseModelText(kTwoPresents), mine = ParseModelText(after);
  EXPECT_TRUE(theirs.ok() && mine.ok());
  return {AsModel(*theirs), AsModel(*mine), RelationOfTwoPresents()};
}

// An output that is no cache may hold its slots all the same, with those of padding tokens.
TEST(Padding, RowsInSlotsOfAnOutputAreNotCompared) {
  const std::string renamed = absl::StrReplaceAll(kTwoPresents, {{"news", "count"}});
  for (const std::string& after : {std::string(kTwoPresents), renamed}) {
    const VerifyReport report = Judged(PairOfTwoPresents(after));
    EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << report.reason;
    ASSERT_NE(PlanOf(report, "right pads"), nullptr);
    EXPECT_GT(PlanOf(report, "right pads")->steps, 1) << PlanOf(report, "right pads")->note;
    EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, "other"));
  }
}

// The slots of tokens are compared in such an output, and all slots where no step has padding
// tokens.
TEST(Padding, TokensInSlotsOfAnOutputAreCompared) {
  const std::string last = absl::StrReplaceAll(
      kTwoPresents, {{"other = TensorScatter <axis = 2> (past, turned, at)",
                      "half = Constant <value = float {0.5}> () most = Mul (past, half) "
                      "other = TensorScatter <axis = 2> (most, turned, at)"}});
  EXPECT_EQ(Judged(PairOfTwoPresents(last)).verdict, VerdictKind::kDifferent);
}
}  // namespace
}  // namespace kvlift
