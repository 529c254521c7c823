// LIBS: verify
// SRCS: support/verdict.cc
// Verdicts on a small pair: a decoder that appends to its caches by Concat, and the same decoder
// with TensorScatter; then ten ways to break the second, and relations that do not fit.
#include "verify/judge/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/verdict.h"

namespace kvlift {
namespace {

constexpr char kBefore[] = R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,2,P,4] pk, float[B,2,P,4] pv)
  => (float[B,S,8] logits, float[B,2,T,4] nk, float[B,2,T,4] nv)
<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4, -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8,
   0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8, 1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8] wk = {1.5,-0.7,0.9,1.1,-1.3,0.6,1.7,-0.4},
 float[8] wv = {-0.5,1.2,0.8,-1.6,0.7,1.4,-0.9,1.1}>
{
  x = Gather (table, ids)
  k = Mul (x, wk)
  v = Mul (x, wv)
  shape = Constant <value = int64[4] {0, 0, 2, 4}> ()
  k4 = Reshape (k, shape)
  v4 = Reshape (v, shape)
  q4 = Reshape (x, shape)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
  nk = Concat <axis = 2> (pk, key)
  nv = Concat <axis = 2> (pv, value)
  y, k_all, v_all = Attention <is_causal = 1> (query, key, value, , pk, pv)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  flat = Constant <value = int64[3] {0, 0, 8}> ()
  logits = Reshape (y4, flat)
})";

constexpr char kAfter[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,2,M,4] pk, float[B,2,M,4] pv, int64[B] at)
  => (float[B,S,8] logits, float[B,2,M,4] nk, float[B,2,M,4] nv)
<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4, -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8,
   0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8, 1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8] wk = {1.5,-0.7,0.9,1.1,-1.3,0.6,1.7,-0.4},
 float[8] wv = {-0.5,1.2,0.8,-1.6,0.7,1.4,-0.9,1.1},
 int64[1] one = {1}, int64[2] heads = {1, 0}>
{
  x = Gather (table, ids)
  k = Mul (x, wk)
  v = Mul (x, wv)
  shape = Constant <value = int64[4] {0, 0, 2, 4}> ()
  k4 = Reshape (k, shape)
  v4 = Reshape (v, shape)
  q4 = Reshape (x, shape)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
  news = Shape <start = 1, end = 2> (ids)
  nonpad = Add (at, news)
  y = Attention <is_causal = 1> (query, nk, nv, , , , nonpad)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  flat = Constant <value = int64[3] {0, 0, 8}> ()
  logits = Reshape (y4, flat)
})";

Manifest Relation() { return OneLayerRelation({"ids"}); }

VerifyReport Judge(const std::string& before, const std::string& after, const Manifest& relation) {
  const auto report = Verify(ModelOfText(before), ModelOfText(after), relation, {});
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport{};
}

void ExpectInconclusive(const VerifyReport& report, const std::string& code,
                        const std::string& names) {
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive);
  EXPECT_EQ(report.reason.substr(0, code.size()), code) << report.reason;
  EXPECT_NE(report.reason.find(names), std::string::npos) << report.reason;
}

TEST(VerifyTest, EqualWithEveryControlDetected) {
  const VerifyReport report = Judge(kBefore, kAfter, Relation());
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
  EXPECT_GE(report.controls.size(), 40u);
  std::set<std::string> groups;
  for (const ControlResult& control : report.controls) {
    EXPECT_FALSE(control.missed()) << control.mutant;
    EXPECT_TRUE(control.detected_by.empty() || control.not_run.empty()) << control.mutant;
    if (!control.detected_by.empty()) groups.insert(control.group);
  }
  for (const char* group : {"write", "wiring", "length and mask", "arithmetic", "heads", "graph",
                            "aliasing", "relation"}) {
    EXPECT_EQ(groups.count(group), 1u) << group;
  }
  EXPECT_EQ(report.outputs.size(), 3u);
  EXPECT_FALSE(report.counterexample.has_value());
}

TEST(VerifyTest, AModelThatShapeInferenceRefusesIsDifferent) {
  // The limit of a Range is a scalar. ONNX Runtime refuses to load a constant of rank 1.
  const std::string after = With(
      With(kAfter, "int64[1] one = {1},", "int64[1] one = {1}, int64 none = {0}, int64 by = {1},"),
      "nonpad = Add (at, news)",
      "zeros = Range (none, one, by) more = Add (at, news) nonpad = Add (more, zeros)");
  const VerifyReport report = Judge(kBefore, after, Relation());
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << report.reason;
  EXPECT_EQ(report.reason.rfind("KV404 runtimes refuse the converted model: shape inference", 0),
            0u)
      << report.reason;
}

// ONNX Runtime warns of such a declaration, and runs the model; it refuses other element types.
TEST(VerifyTest, AWrongShapeDeclaredInsideTheGraphDoesNotMakeAModelDifferent) {
  const VerifyReport shape = Judge(
      kBefore, With(kAfter, "int64[1] one = {1},", "int64[1] one = {1}, float[7] k,"), Relation());
  EXPECT_EQ(shape.verdict, VerdictKind::kEqual) << shape.reason;
  const VerifyReport type =
      Judge(kBefore, With(kAfter, "int64[1] one = {1},", "int64[1] one = {1}, int64[B,S,8] k,"),
            Relation());
  EXPECT_EQ(type.verdict, VerdictKind::kDifferent) << type.reason;
}

TEST(VerifyTest, EveryBrokenModelIsDifferent) {
  const struct {
    const char *name, *from, *to, *output;
  } kBroken[] = {
      {"write index + 1", "(pk, key, at)", "(pk, key, nonpad)", "nk"},
      {"write index dropped", "(pv, value, at)", "(pv, value)", "nv"},
      {"updates swapped", "nk = TensorScatter <axis = 2> (pk, key, at)",
       "nk = TensorScatter <axis = 2> (pk, value, at)", "nk"},
      {"keys and values swapped", "(query, nk, nv,", "(query, nv, nk,", "logits"},
      {"stale keys", "(query, nk, nv,", "(query, pk, nv,", "logits"},
      {"stale values", "(query, nk, nv,", "(query, nk, pv,", "logits"},
      {"length short", ", , , nonpad)", ", , , at)", "logits"},
      {"length long", "nonpad = Add (at, news)", "exact = Add (at, news) nonpad = Add (exact, one)",
       "logits"},
      {"not causal", "Attention <is_causal = 1> (query, nk", "Attention (query, nk", "logits"},
      {"scale", "<is_causal = 1> (query, nk", "<is_causal = 1, scale = 0.4> (query, nk", "logits"},
      {"heads", "y = Attention <is_causal = 1> (query, nk,",
       "turned = Gather <axis = 1> (nk, heads) y = Attention <is_causal = 1> (query, turned,",
       "logits"},
  };
  for (const auto& broken : kBroken) {
    SCOPED_TRACE(broken.name);
    const VerifyReport report = Judge(kBefore, With(kAfter, broken.from, broken.to), Relation());
    EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << report.reason;
    EXPECT_NE(report.reason.find("KV404"), std::string::npos) << report.reason;
    if (report.counterexample && report.counterexample->output != "caches") {
      EXPECT_EQ(report.counterexample->output, broken.output) << report.reason;
      EXPECT_FALSE(report.counterexample->plan.empty());
      EXPECT_FALSE(report.counterexample->element.empty());
      EXPECT_NE(report.counterexample->before, report.counterexample->after);
    }
  }
}

// The plans of a full proof, by name; a model that allows them all runs them all.
TEST(VerifyTest, FullRunsEveryPlan) {
  VerifyOptions options;
  options.full = true;
  const auto report = Verify(ModelOfText(kBefore), ModelOfText(kAfter), Relation(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->verdict, VerdictKind::kEqual) << report->reason;
  for (const char* name :
       {"prefill of 1", "prefill of 2", "prefill of 7", "decode", "batch", "chunks", "ragged",
        "right pads", "last slot", "one past the end", "dirty buffer", "garbage", "permuted batch",
        "split prompt", "twice the capacity", "in place", "guard", "poison", "long past"}) {
    const auto plan = std::find_if(report->plans.begin(), report->plans.end(),
                                   [&](const PlanResult& p) { return p.name == name; });
    ASSERT_NE(plan, report->plans.end()) << name;
    EXPECT_TRUE(plan->status == "bitwise" || plan->status == "within bound")
        << name << ": " << plan->status << ", " << plan->note;
    EXPECT_GT(plan->steps, 0) << name;
  }
  std::set<std::string> skipped;
  for (const PlanResult& plan : report->plans) {
    if (plan.status != "skipped") continue;
    EXPECT_FALSE(plan.note.empty()) << plan.name;
    skipped.insert(plan.name);
  }
  // The rest of the catalogue: listed with what does not allow it.
  EXPECT_EQ(skipped, std::set<std::string>({"left pads", "ragged prompt", "changed places",
                                            "past the window", "around the end"}));
}

// A past whose rows are taken along the batch, as a search over sequences does.
constexpr std::pair<const char*, const char*> kReordered[] = {
    {"g (int64[B,S] ids,", "g (int64[B,S] ids, int64[B] order,"},
    {"x = Gather (table, ids)",
     "rk = Gather <axis = 0> (pk, order) rv = Gather <axis = 0> (pv, order) "
     "x = Gather (table, ids)"},
};

std::string Reordered(std::string text, std::vector<std::pair<std::string, std::string>> more) {
  for (const auto& [from, to] : kReordered) text = With(text, from, to);
  for (const auto& [from, to] : more) text = With(text, from, to);
  return text;
}

TEST(VerifyTest, SequencesChangePlaces) {
  const std::string before =
      Reordered(kBefore, {{"Concat <axis = 2> (pk, key)", "Concat <axis = 2> (rk, key)"},
                          {"Concat <axis = 2> (pv, value)", "Concat <axis = 2> (rv, value)"},
                          {"value, , pk, pv)", "value, , rk, rv)"}});
  const std::string after =
      Reordered(kAfter, {{"TensorScatter <axis = 2> (pk,", "TensorScatter <axis = 2> (rk,"},
                         {"TensorScatter <axis = 2> (pv,", "TensorScatter <axis = 2> (rv,"}});
  Manifest relation = Relation();
  relation.inputs.push_back({"order", SameInput{}});
  for (ManifestCache& cache : relation.caches) cache.alias = CacheAlias::kCopy;
  const VerifyReport report = Judge(before, after, relation);
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
  const auto control =
      std::find_if(report.controls.begin(), report.controls.end(), [](const ControlResult& c) {
        return c.mutant.find("sequences stay in place") != std::string::npos;
      });
  ASSERT_NE(control, report.controls.end());
  EXPECT_NE(control->detected_by.find("changed places"), std::string::npos) << control->detected_by;

  const VerifyReport broken = Judge(
      before, With(after, "rv = Gather <axis = 0> (pv, order)", "rv = Identity (pv)"), relation);
  EXPECT_EQ(broken.verdict, VerdictKind::kDifferent) << broken.reason;
}

// The past is read after the write, so it cannot be written in place as the relation says; no
// output tells.
std::string ReadsThePastLate() {
  return With(With(kAfter, "int64[1] one", "float none = {0}, int64[1] one"),
              "logits = Reshape (y4, flat)",
              "plain = Reshape (y4, flat) d = Sub (pk, nk) m = ReduceMax <keepdims = 0> (d) "
              "z = Mul (m, none) logits = Add (plain, z)");
}

TEST(VerifyTest, FalseAliasIsCaught) {
  const VerifyReport report = Judge(kBefore, ReadsThePastLate(), Relation());
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << report.reason;
  EXPECT_NE(report.reason.find("KV430"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("pk"), std::string::npos) << report.reason;
  Manifest relation = Relation();
  relation.caches[0].alias = CacheAlias::kCopy;
  const VerifyReport copied = Judge(kBefore, ReadsThePastLate(), relation);
  // The proof does not see that the sum adds 0.
  EXPECT_EQ(copied.verdict, VerdictKind::kEqualAsTested) << copied.reason;
  EXPECT_TRUE(copied.assumptions.Has(AssumptionKind::kAlias, "0.key"));
  ASSERT_EQ(copied.aliases.size(), 2u);
  EXPECT_FALSE(copied.aliases[0].safe);
  EXPECT_EQ(copied.aliases[0].readers, std::vector<std::string>{"d"});
  EXPECT_TRUE(copied.aliases[1].safe);
  EXPECT_EQ(copied.aliases[1].writer, "nv");
}

// A reader that can be run before the write leaves the update in place, and is named with its
// place in the schedule.
TEST(VerifyTest, ReaderBeforeTheWriteIsCertified) {
  const std::string after = With(
      With(kAfter, "int64[1] one", "float none = {0}, int64[1] one"), "logits = Reshape (y4, flat)",
      "plain = Reshape (y4, flat) m = ReduceMax <keepdims = 0> (pk) z = Mul (m, none) "
      "logits = Add (plain, z)");
  const VerifyReport report = Judge(kBefore, after, Relation());
  EXPECT_EQ(report.verdict, VerdictKind::kEqualAsTested) << report.reason;
  ASSERT_EQ(report.aliases.size(), 2u);
  EXPECT_TRUE(report.aliases[0].safe);
  ASSERT_EQ(report.aliases[0].order.size(), 1u);
  EXPECT_NE(report.aliases[0].order[0].find("m (step"), std::string::npos);
  EXPECT_NE(report.aliases[0].order[0].find("before nk"), std::string::npos);
}

// Three numbers for any batch, of three sequences, too.
TEST(VerifyTest, OutputThatHasNoBatchIsAsLongAsOne) {
  Manifest relation = Relation();
  relation.outputs.push_back({"flat", SameOutput{}});
  const auto given = [](const std::string& text) {
    return With(text, "[B,S,8] logits,", "[B,S,8] logits, int64[3] flat,");
  };
  const VerifyReport report = Judge(given(kBefore), given(kAfter), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << report.reason;
}

TEST(VerifyTest, OutputWithoutPlace) {
  Manifest relation = Relation();
  relation.outputs.pop_back();
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "logits");
}

TEST(VerifyTest, InputWithoutPlace) {
  Manifest relation = Relation();
  relation.inputs.pop_back();
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "at");
}

TEST(VerifyTest, CacheThatTheSourceLacks) {
  Manifest relation = Relation();
  relation.caches[0].source.input = "nobody";
  relation.inputs.push_back({"ids", RenamedInput{"pk"}});
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "nobody");
}

TEST(VerifyTest, RenamedOutputThatTheSourceLacks) {
  Manifest relation = Relation();
  relation.outputs.push_back({"nk", RenamedOutput{"nothing"}});
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "nothing");
}

TEST(VerifyTest, CacheIdThatIsUnknown) {
  Manifest relation = Relation();
  relation.inputs[0].as = CacheInput{"7.key"};
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "7.key");
}

// An output that claims to be a cache would otherwise be compared with nothing.
TEST(VerifyTest, OutputThatOnlyClaimsToBeACache) {
  const std::string after =
      With(With(kAfter, "(float[B,S,8] logits,", "(float[B,S,8] logits, float[B,S,8] extra,"),
           "logits = Reshape (y4, flat)", "logits = Reshape (y4, flat) extra = Neg (logits)");
  Manifest relation = Relation();
  relation.outputs.push_back({"extra", CacheOutput{"0.key"}});
  ExpectInconclusive(Judge(kBefore, after, relation), "KV403", "extra");
}

TEST(VerifyTest, LayoutThatDoesNotFit) {
  Manifest relation = Relation();
  relation.caches[0].source.layout = "BNXD";
  ExpectInconclusive(Judge(kBefore, kAfter, relation), "KV403", "pk");
}

TEST(VerifyTest, OperatorWithoutKernelIsNamed) {
  const std::string before = With(kBefore, "logits = Reshape (y4, flat)",
                                  "z = Reshape (y4, flat) logits = com.example.Odd (z)");
  const VerifyReport report =
      Judge(With(before, "\"\" : 24", "\"\" : 24, \"com.example\" : 1"), kAfter, Relation());
  ExpectInconclusive(report, "KV401", "Odd");
}

TEST(VerifyTest, NanInTheSourceIsNoVerdict) {
  const auto nan = [](const char* text) {
    return With(text, "logits = Reshape (y4, flat)",
                "z = Reshape (y4, flat) m = Abs (z) n = Neg (m) logits = Sqrt (n)");
  };
  ExpectInconclusive(Judge(nan(kBefore), nan(kAfter), Relation()), "KV405", "logits");
}

// Both models with a further input of this type.
VerifyReport JudgeLabelled(const std::string& type) {
  const auto with = [&](const char* text) {
    return With(text, "(int64[B,S] ids,", "(" + type + " label, int64[B,S] ids,");
  };
  Manifest relation = Relation();
  relation.inputs.push_back({"label", SameInput{}});
  return Judge(with(kBefore), with(kAfter), relation);
}

TEST(VerifyTest, InputThatCannotBeFed) {
  ExpectInconclusive(JudgeLabelled("string[B]"), "KV402", "label");
}

TEST(VerifyTest, SourceForNoSequences) {
  const auto none = With(kBefore, "float[B,2,P,4] pk", "float[0,2,P,4] pk");
  ExpectInconclusive(Judge(none, kAfter, Relation()), "KV402", "no sequences");
}

TEST(VerifyTest, InputTooLargeToBeFed) {
  EXPECT_EQ(JudgeLabelled("int64[B,9223372036854775807]").verdict, VerdictKind::kInconclusive);
}

// An output that no cache reaches tells nothing of what is done to the caches.
TEST(VerifyTest, ControlThatIsNotDetected) {
  const auto deaf = [](const char* text) {
    return With(text, "logits = Reshape (y4, flat)",
                "z = Reshape (y4, flat) n = Mul (z, zeros) logits = Add (n, x)");
  };
  const auto zeros = [&](const char* text) {
    return With(deaf(text), "float[8] wk", "float[8] zeros = {0,0,0,0,0,0,0,0}, float[8] wk");
  };
  VerifyOptions options;
  options.proof = false;
  const auto unproved =
      Verify(ModelOfText(zeros(kBefore)), ModelOfText(zeros(kAfter)), Relation(), options);
  ASSERT_TRUE(unproved.ok()) << unproved.status();
  ExpectInconclusive(*unproved, "KV407", "not detected");
  // What no plan tells, the proof tells.
  const VerifyReport proved = Judge(zeros(kBefore), zeros(kAfter), Relation());
  EXPECT_EQ(proved.verdict, VerdictKind::kEqual) << proved.reason;
}

// Weights that let nothing of what is in a cache through to the output.
TEST(VerifyTest, OutputsThatHardlyTellWhatIsInACache) {
  const auto faint = [](const char* text) {
    return With(With(text, "float[8] wk", "float faint = {1e-6}, float[8] wk"),
                "logits = Reshape (y4, flat)",
                "z = Reshape (y4, flat) n = Mul (z, faint) logits = Add (n, x)");
  };
  VerifyOptions options;
  options.controls = false;
  const auto report =
      Verify(ModelOfText(faint(kBefore)), ModelOfText(faint(kAfter)), Relation(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectInconclusive(*report, "KV408", "slot");
}

TEST(VerifyTest, CoverageIsReported) {
  const VerifyReport report = Judge(kBefore, kAfter, Relation());
  const std::map<std::string, std::string> coverage(report.coverage.begin(), report.coverage.end());
  EXPECT_EQ(coverage.at("last slot"), "reached");
  EXPECT_EQ(coverage.at("lengths in one batch"), "differ");
  EXPECT_EQ(coverage.at("sensitivity").substr(0, 6), "4 of 4");
  Manifest relation = Relation();
  relation.uniform = true;
  const VerifyReport uniform = Judge(kBefore, kAfter, relation);
  EXPECT_EQ(uniform.verdict, VerdictKind::kEqual) << uniform.reason;
  const std::map<std::string, std::string> less(uniform.coverage.begin(), uniform.coverage.end());
  EXPECT_EQ(less.at("lengths in one batch"),
            "equal: the relation gives one length for the whole batch");
}

TEST(VerifyTest, OneStepIsNotEnough) {
  Manifest relation = Relation();
  relation.capacity_value = 1;
  const VerifyReport report = Judge(kBefore, kAfter, relation);
  ExpectInconclusive(report, "KV406", "");
}

}  // namespace
}  // namespace kvlift
