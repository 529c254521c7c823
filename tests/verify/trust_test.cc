// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc support/verdict.cc
// Ways in which wrong models were called equal, by the cause: each test is named after a row of the
// table of causes, and breaks a right pair in one way that no fixed plan of small sizes shows.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"
#include "support/verdict.h"
#include "verify/controls/trees.h"
#include "verify/judge/verify.h"
#include "verify/steps/thresholds.h"

namespace kvlift {
namespace {

constexpr char kTable[] = R"(<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4,
   -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8, 0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8,
   1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8] wk = {1.5,-0.7,0.9,1.1,-1.3,0.6,1.7,-0.4},
 float[8] wv = {-0.5,1.2,0.8,-1.6,0.7,1.4,-0.9,1.1},
 float[8] freq = {0.3,0.5,0.7,1.1,1.3,1.7,1.9,2.3}, int64[1] last = {-1},
 int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}, int64[1] one = {1}>)";

constexpr char kEmbed[] = R"({
  word = Gather (table, ids)
  at_float = Cast <to = 1> (pos)
  at_row = Unsqueeze (at_float, last)
  angle = Mul (at_row, freq)
  turned = Cos (angle)
  x = Add (word, turned)
  k = Mul (x, wk)
  v = Mul (x, wv)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  q4 = Reshape (x, heads)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
)";

constexpr char kEnd[] = R"(
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (y4, flat)
})";

std::string Before() {
  return std::string(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[B,S] ids, int64[B,S] pos, float[B,1,S,T] bias, float[B,2,P,4] pk, float[B,2,P,4] pv)
  => (float[B,S,8] logits, float[B,2,T,4] nk, float[B,2,T,4] nv)
)") + kTable +
         kEmbed +
         R"(
  nk = Concat <axis = 2> (pk, key)
  nv = Concat <axis = 2> (pv, value)
  y, k_all, v_all = Attention (query, key, value, bias, pk, pv)
)" + kEnd;
}

std::string After() {
  return std::string(R"(<ir_version: 12, opset_import: ["" : 24]>
g (int64[B,S] ids, int64[B,S] pos, float[B,1,S,T] bias, float[B,2,M,4] pk, float[B,2,M,4] pv,
   int64[B] at)
  => (float[B,S,8] logits, float[B,2,M,4] nk, float[B,2,M,4] nv)
)") + kTable +
         kEmbed +
         R"(
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
  news = Shape <start = 1, end = 2> (ids)
  nonpad = Add (at, news)
  y = Attention (query, nk, nv, bias, , , nonpad)
)" + kEnd;
}

Manifest Relation() { return OneLayerRelation({"ids", "pos", "bias"}); }

VerifyReport Judge(const std::string& before, const std::string& after,
                   const Manifest& relation = Relation(), const VerifyOptions& options = {}) {
  const auto report = Verify(ModelOfText(before), ModelOfText(after), relation, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport{};
}

std::string Plans(const VerifyReport& report) {
  std::string text = report.reason;
  for (const PlanResult& p : report.plans) text += "\n" + p.name + ": " + p.status + " " + p.note;
  for (const ControlResult& c : report.controls) {
    if (c.missed()) text += "\nmissed: " + c.mutant;
  }
  return text;
}

const PlanResult* PlanOf(const VerifyReport& report, const std::string& name) {
  const auto at = std::find_if(report.plans.begin(), report.plans.end(),
                               [&](const PlanResult& p) { return p.name == name; });
  return at == report.plans.end() ? nullptr : &*at;
}

// The plan tells, whatever the proof says.
void ExpectToldBy(const std::string& plan, const VerifyReport& report) {
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << Plans(report);
  ASSERT_NE(PlanOf(report, plan), nullptr) << Plans(report);
  EXPECT_EQ(PlanOf(report, plan)->status, "different") << Plans(report);
}

// Expects that the plan of a right model ran.
void ExpectRun(const std::string& plan, const VerifyReport& report) {
  ASSERT_NE(PlanOf(report, plan), nullptr) << Plans(report);
  EXPECT_GT(PlanOf(report, plan)->steps, 0) << Plans(report);
}

TEST(TrustTest, RightPairPassesEveryPlan) {
  const VerifyReport report = Judge(Before(), After());
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Plans(report);
  for (const char* plan :
       {"nine sequences", "prefill of 11", "free masks", "free positions", "long past"}) {
    ExpectRun(plan, report);
  }
  EXPECT_FALSE(report.assumptions.Has(AssumptionKind::kPositions, "pos"));
  EXPECT_FALSE(report.assumptions.Has(AssumptionKind::kMaskValues, "bias"));
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kFinite, "bias"));
}

// A host may override what is an initializer and an input, where it is an input.
TEST(TrustTest, ADefaultThatIsNoInputAnyMore) {
  const auto kept = [](const VerifyReport& report) {
    return report.assumptions.Has(AssumptionKind::kOther, "freq");
  };
  const std::string before =
      With(Before(), "float[B,2,P,4] pv)", "float[B,2,P,4] pv, float[8] freq)");
  const std::string after = With(After(), "int64[B] at)", "int64[B] at, float[8] freq)");
  EXPECT_TRUE(kept(Judge(before, After())));
  EXPECT_FALSE(kept(Judge(before, after)));
  EXPECT_FALSE(kept(Judge(Before(), After())));
}

// The source keeps its last eight rows, which the relation does not say.
TEST(TrustTest, SourceThatRunsOnWithoutAppending) {
  std::string before =
      With(Before(), "nk = Concat <axis = 2> (pk, key)",
           "all_k = Concat <axis = 2> (pk, key) nk = Slice (all_k, from, far, on)");
  before = With(before, "nv = Concat <axis = 2> (pv, value)",
                "all_v = Concat <axis = 2> (pv, value) nv = Slice (all_v, from, far, on)");
  before = With(before, "int64[1] one = {1}",
                "int64[1] from = {-8}, int64[1] far = {9223372036854775807}, int64[1] on = {2}, "
                "int64[1] one = {1}");
  const VerifyReport report = Judge(before, After());
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << Plans(report);
  EXPECT_TRUE(report.reason.starts_with("KV402")) << report.reason;
}

// The source runs one sequence, or two, and reads the biases of two as those of its two heads.
TEST(TrustTest, TwoSequencesAndNotThree) {
  const std::string before =
      With(Before(), "y, k_all, v_all = Attention (query, key, value, bias, pk, pv)",
           "of_heads = Transpose <perm = [1, 0, 2, 3]> (bias)\n"
           "  y, k_all, v_all = Attention (query, key, value, of_heads, pk, pv)");
  ExpectToldBy("two sequences", Judge(before, After()));
}

TEST(TrustTest, Row01LogitsOfEightSequences) {
  ExpectToldBy("nine sequences",
               Judge(Before(), With(With(After(), "logits = Reshape (y4, flat)",
                                         "all = Reshape (y4, flat) logits = Slice (all, from, to)"),
                                    "int64[1] one = {1}",
                                    "int64[1] from = {0}, int64[1] to = {8}, int64[1] one = {1}")));
}

TEST(TrustTest, Row03ValidLengthOfAtMostFourHundred) {
  ExpectToldBy(
      "long past",
      Judge(Before(), With(With(After(), "nonpad = Add (at, news)",
                                "total = Add (at, news) nonpad = Min (total, most)"),
                           "int64[1] one = {1}", "int64[1] most = {400}, int64[1] one = {1}")));
}

// The source also runs with one row of the bias for all sequences, which no plan feeds.
TEST(TrustTest, RowsThatAreFedAsSequencesAreInTheLedger) {
  const auto named_apart = [](const std::string& model) {
    return absl::StrReplaceAll(model, {{"float[B,1,S,T] bias", "float[L,1,S,T] bias"}});
  };
  const VerifyReport report = Judge(named_apart(Before()), named_apart(After()));
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Plans(report);
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kDimension, "bias"));
  EXPECT_FALSE(Judge(Before(), After()).assumptions.Has(AssumptionKind::kDimension, "bias"));
}

TEST(TrustTest, Row11CapacityIsRead) {
  Manifest relation = Relation();
  relation.capacity_value = 32;
  const VerifyReport report =
      Judge(Before(), absl::StrReplaceAll(After(), {{"2,M,4", "2,24,4"}}), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent);
  EXPECT_EQ(report.reason.substr(0, 5), "KV411") << report.reason;
}

TEST(TrustTest, Row11ModeIsRead) {
  Manifest relation = Relation();
  relation.mode = BufferMode::kCircular;
  const VerifyReport report = Judge(Before(), After(), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent);
  EXPECT_EQ(report.reason.substr(0, 5), "KV411") << report.reason;
}

TEST(TrustTest, Row11RolesAreRead) {
  Manifest relation = Relation();
  std::swap(relation.caches[0].role, relation.caches[1].role);
  const VerifyReport report = Judge(Before(), After(), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent);
  EXPECT_EQ(report.reason.substr(0, 5), "KV411") << report.reason;
}

// Returns what the ledger says about the caches that the manifest claims.
std::string ClaimsAboutCaches(const std::function<void(Manifest*)>& change) {
  Manifest relation = Relation();
  change(&relation);
  const VerifyReport report = Judge(Before(), After(), relation);
  std::string text;
  for (const Assumption& a : report.assumptions.all()) {
    const bool claimed =
        a.kind == AssumptionKind::kOther && a.source == AssumptionSource::kManifest;
    if (claimed) text += a.condition + "\n";
  }
  return text;
}

TEST(TrustTest, Row11ClaimsAboutCachesAreConfirmedOrListed) {
  EXPECT_EQ(ClaimsAboutCaches([](Manifest*) {}), "");
  EXPECT_EQ(ClaimsAboutCaches([](Manifest* m) { m->capacity_value = 32; }),
            "pk has 32 slots\npv has 32 slots\n");
  EXPECT_EQ(ClaimsAboutCaches([](Manifest* m) { m->caches[1].layer = 3; }),
            "pk is of layer 0\npv is of layer 3\n");
  EXPECT_EQ(ClaimsAboutCaches([](Manifest* m) { m->caches[0].source.kind = UpdateKind::kScatter; }),
            "the source writes pk by scatter\n");
}

TEST(TrustTest, Row11AnInputIsDroppedOrFed) {
  Manifest relation = Relation();
  relation.dropped.push_back({"bias", AllElements::kZeros});
  const VerifyReport report = Judge(Before(), After(), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive);
  EXPECT_EQ(report.reason, "KV403 the relation both drops and feeds bias");
}

TEST(TrustTest, Row11AnInputThatIsNotReadHasNoReader) {
  Manifest relation = Relation();
  std::erase_if(relation.inputs, [](const ManifestInput& input) { return input.name == "bias"; });
  relation.dropped.push_back({"bias", DroppedValue::kNotRead});
  EXPECT_EQ(Judge(Before(), After(), relation).reason,
            "KV403 the relation says that bias is not read, and the source reads it");
}

TEST(TrustTest, Row11EachInputAndOutputHasOnePlace) {
  const auto reason = [](const std::function<void(Manifest*)>& change) {
    Manifest relation = Relation();
    change(&relation);
    return Judge(Before(), After(), relation).reason;
  };
  EXPECT_EQ(reason([](Manifest* m) { m->inputs.push_back({"ids"}); }),
            "KV403 the input ids has two places in the relation");
  EXPECT_EQ(reason([](Manifest* m) { m->outputs.push_back(m->outputs[0]); }),
            "KV403 the output nk has two places in the relation");
  EXPECT_EQ(reason([](Manifest* m) {
              for (ManifestInput& input : m->inputs) {
                if (input.name == "pk") input.as = SameInput();
              }
            }),
            "KV403 no input of the relation is that of the cache 0.key");
}

TEST(TrustTest, Row11ZerosThatAreRequiredAreCalledZeros) {
  Manifest relation = Relation();
  for (ManifestInput& input : relation.inputs) {
    if (input.name == "pos") input.all = AllElements::kZeros;
  }
  const VerifyReport report = Judge(Before(), After(), relation);
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kAllZeros, "pos"));
  EXPECT_FALSE(report.assumptions.Has(AssumptionKind::kAllOnes, "pos"));
}

TEST(TrustTest, Row11ClaimsAreListed) {
  Manifest relation = Relation();
  relation.uniform = true;
  relation.limits.new_tokens_with_past = 1;
  const VerifyReport report = Judge(Before(), After(), relation);
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kOneLength, ""));
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kNewTokens, ""));
}

TEST(TrustTest, Row11PreconditionAboutSomethingElseHidesNoMask) {
  const auto padded = [](std::string text) {
    text = With(text, "float[B,1,S,T] bias", "float[B,1,S,T] bias, int64[B,T] mask");
    return With(text, "k = Mul (x, wk)",
                "low = Constant <value = float {-10000}> () no = Constant <value = float {0}> () "
                "yes = Cast <to = 9> (mask) hides = Where (yes, no, low) "
                "both = Constant <value = int64[2] {1, 2}> () h4 = Unsqueeze (hides, both) "
                "k = Mul (x, wk)");
  };
  const std::string before =
      With(With(padded(Before()), "k = Mul (x, wk)", "b = Add (bias, h4) k = Mul (x, wk)"),
           "value, bias, pk", "value, b, pk");
  Manifest relation = Relation();
  relation.inputs.push_back({"mask", SameInput{}});
  relation.preconditions.push_back(
      {"KV305", "another mask is all ones", PreconditionStatus::kAssumed});
  const VerifyReport report = Judge(before, padded(After()), relation);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << Plans(report);
}

TEST(TrustTest, Row12MasksOfAnyNumbers) {
  ExpectToldBy(
      "free masks",
      Judge(Before(), With(With(After(), "nk, nv, bias,", "nk, nv, hides,"), "k = Mul (x, wk)",
                           "low = Constant <value = float {-3e38}> () "
                           "no = Constant <value = float {0}> () "
                           "yes = Equal (bias, no) hides = Where (yes, no, low) k = Mul (x, wk)")));
}

TEST(TrustTest, Row12PositionsWithGaps) {
  ExpectToldBy("free positions",
               Judge(Before(), With(With(After(), "Cast <to = 1> (pos)", "Cast <to = 1> (near)"),
                                    "word = Gather (table, ids)",
                                    "word = Gather (table, ids) "
                                    "low = Constant <value = int64 {0}> () "
                                    "high = Constant <value = int64 {511}> () "
                                    "near = Clip (pos, low, high)")));
}

TEST(TrustTest, Row12TreesAreRunBranchByBranch) {
  ConvertOptions convert;
  convert.tree_mask = true;
  const Model source = LoadTestModel("llama_optimum");
  const auto converted = Convert(source, convert, AllRules());
  ASSERT_TRUE(converted.ok()) << converted.status();
  ASSERT_TRUE(converted->model.has_value());
  ASSERT_TRUE(TakesTrees(converted->manifest));
  VerifyOptions options;
  options.controls = false;
  const auto right = Verify(source, AsModel(*converted->model), converted->manifest, options);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_TRUE(Accepts(right->verdict, Accept::kTested)) << Plans(*right);
  ExpectRun("trees", *right);
  EXPECT_NE(PlanOf(*right, "trees")->status, "skipped") << Plans(*right);

  // Whatever the tree, each token sees all before it.
  std::string name;
  for (const ManifestInput& input : converted->manifest.inputs) {
    if (IsControl(input, ControlValue::kLowerTriangle)) name = input.name;
  }
  onnx::ModelProto wrong = *converted->model;
  onnx::GraphProto nodes;
  const auto add = [&](const std::string& op, const std::string& in, const std::string& out) {
    onnx::NodeProto* node = nodes.add_node();
    node->set_op_type(op);
    node->add_input(in);
    node->add_output(out);
    return node;
  };
  add("Shape", name, "edit.shape");
  auto* one = add("ConstantOfShape", "edit.shape", "edit.ones")->add_attribute();
  one->set_name("value");
  one->set_type(onnx::AttributeProto::TENSOR);
  one->mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  one->mutable_t()->add_dims(1);
  one->mutable_t()->add_float_data(1);
  auto* upper = add("Trilu", "edit.ones", "edit.lower")->add_attribute();
  upper->set_name("upper");
  upper->set_type(onnx::AttributeProto::INT);
  upper->set_i(0);
  auto* to = add("Cast", "edit.lower", "edit.mask")->add_attribute();
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(onnx::TensorProto::BOOL);
  for (onnx::NodeProto node : wrong.graph().node()) {
    for (std::string& input : *node.mutable_input()) {
      if (input == name && node.op_type() != "Shape") input = "edit.mask";
    }
    *nodes.add_node() = std::move(node);
  }
  wrong.mutable_graph()->mutable_node()->Swap(nodes.mutable_node());
  const auto report = Verify(source, AsModel(wrong), converted->manifest, options);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectToldBy("trees", *report);
}

TEST(TrustTest, Row12ThresholdsDirectThePlans) {
  const std::string after =
      With(With(After(), "logits = Reshape (y4, flat)",
                "plain = Reshape (y4, flat) twice = Add (plain, plain) much = Equal (news, c37) "
                "logits = Where (much, twice, plain)"),
           "int64[1] one = {1}", "int64[1] c37 = {37}, int64[1] one = {1}");
  EXPECT_EQ(FindUnmatched(*ModelOfText(Before()).proto, *ModelOfText(after).proto).numbers,
            std::vector<int64_t>{37});
  ExpectToldBy("around 37 new tokens", Judge(Before(), after));
}

TEST(TrustTest, Row13EqualAsksForAllFacts) {
  // The proof sees no 0 that is computed.
  const std::string after = With(After(), "logits = Reshape (y4, flat)",
                                 "plain = Reshape (y4, flat) zero = Sub (plain, plain) "
                                 "logits = Add (plain, zero)");
  const VerifyReport report = Judge(Before(), after);
  EXPECT_EQ(report.verdict, VerdictKind::kEqualAsTested) << Plans(report);
  EXPECT_EQ(report.reason.substr(0, 5), "KV410") << report.reason;
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kCapacity, ""));
  EXPECT_FALSE(Accepts(report.verdict, Accept::kProved));
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested));
}

TEST(TrustTest, Row13WithoutAProofNothingIsEqual) {
  VerifyOptions options;
  options.proof = false;
  options.controls = false;
  EXPECT_EQ(Judge(Before(), After(), Relation(), options).verdict, VerdictKind::kEqualAsTested);
}

TEST(TrustTest, Row13RefutedFactIsADifference) {
  Proof proof;
  proof.facts.push_back({"logits", "the same operators", FactStatus::kProved, {}, {}, ""});
  EXPECT_EQ(FirstThatFails(proof), nullptr);
  proof.facts.push_back({"0.key", "rows", FactStatus::kOpen, {}, {}, "not seen"});
  EXPECT_EQ(FirstThatFails(proof), &proof.facts[1]);
  proof.facts.push_back({"logits", "weights", FactStatus::kRefuted, {}, {}, "other bytes"});
  EXPECT_EQ(FirstThatFails(proof), &proof.facts[2]);
  // A row of a table that no plan reads.
  const auto wide = [](const std::string& text, const char* last) {
    return With(text, "table = {0.9",
                std::string("spare = {") + last + "}, float[4,8] table = {0.9");
  };
  const VerifyReport report =
      Judge(wide(Before(), "1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8"),
            wide(After(), "1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,9"));
  const ProofFact* fact = FirstThatFails(report.proof);
  const bool refuted = fact != nullptr && fact->status == FactStatus::kRefuted;
  EXPECT_EQ(report.reason.substr(0, 5) == "KV409", refuted) << report.reason;
}

TEST(TrustTest, Row14PlansThatAreSplitSaySo) {
  Manifest relation = Relation();
  relation.limits.new_tokens_with_past = 1;
  const VerifyReport report = Judge(Before(), After(), relation);
  ASSERT_NE(PlanOf(report, "decode"), nullptr);
  EXPECT_EQ(PlanOf(report, "decode")->note.find("chunk"), std::string::npos);
  EXPECT_NE(PlanOf(report, "decode")->note.find("7, 1, 1, 1, 1, 1, 1"), std::string::npos)
      << PlanOf(report, "decode")->note;
}

TEST(TrustTest, Row14MutantsThatDoNotRunAreNotDetected) {
  const VerifyReport report = Judge(Before(), After());
  const auto unrun = std::count_if(report.controls.begin(), report.controls.end(),
                                   [](const ControlResult& c) { return !c.not_run.empty(); });
  EXPECT_GT(unrun, 0);
  for (const ControlResult& control : report.controls) {
    EXPECT_TRUE(control.not_run.empty() || control.detected_by.empty()) << control.mutant;
  }
}

TEST(TrustTest, Row14SeveralTokensArePartOfCoverage) {
  const VerifyReport report = Judge(Before(), After());
  const auto line = std::find_if(report.coverage.begin(), report.coverage.end(),
                                 [](const auto& l) { return l.first == "new tokens of a step"; });
  ASSERT_NE(line, report.coverage.end());
  EXPECT_EQ(line->second, "several");
}

// Rows of pads differ, as a precondition says they may; those of tokens do not.
TEST(TrustTest, Row18RowsOfPadsAreComparedUnlessAPreconditionExcludesThem) {
  const auto padded = [](std::string text) {
    text = With(text, "float[B,1,S,T] bias", "float[B,1,S,T] bias, int64[B,T] mask");
    return With(text, "k = Mul (x, wk)",
                "low = Constant <value = float {-10000}> () no = Constant <value = float {0}> () "
                "yes = Cast <to = 9> (mask) hides = Where (yes, no, low) "
                "both = Constant <value = int64[2] {1, 2}> () h4 = Unsqueeze (hides, both) "
                "b = Add (bias, h4) k = Mul (x, wk)");
  };
  const std::string before = With(padded(Before()), "value, bias, pk", "value, b, pk");
  const std::string after =
      With(With(padded(After()), "nk, nv, bias,", "nk, nv, b,"), "logits = Reshape (y4, flat)",
           "plain = Reshape (y4, flat) count = Shape <start = 1, end = 2> (ids) "
           "from = Neg (count) end = Constant <value = int64[1] {9223372036854775807}> () "
           "own = Slice (yes, from, end, one) row = Unsqueeze (own, last) "
           "logits = Where (row, plain, no)");
  Manifest relation = Relation();
  relation.inputs.push_back({"mask", SameInput{}});
  const VerifyReport told = Judge(before, after, relation);
  EXPECT_EQ(told.verdict, VerdictKind::kDifferent) << Plans(told);
  relation.preconditions.push_back(
      {"KV303", "rows of pads may differ", PreconditionStatus::kAssumed});
  const VerifyReport report = Judge(before, after, relation);
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Plans(report);
  EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, ""));
  relation.preconditions.back().code = "KV236";
  const VerifyReport none = Judge(before, after, relation);
  ASSERT_NE(PlanOf(none, "ragged prompt"), nullptr);
  EXPECT_EQ(PlanOf(none, "ragged prompt")->status, "skipped");
}

// A token sees keys from the front alone, so padding in front of its sequence leaves it none. The
// proof takes for granted that there is no such padding, and no plan feeds it.
TEST(TrustTest, Row18PaddingThatHidesAllKeysOfATokenIsNotFed) {
  const auto c = LoadCase(std::string(KVLIFT_TESTDATA_DIR) +
                          "/rewrites/decomposed_attention_padding_finite_minimum.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  const auto judge = [&](const std::string& rows) {
    const auto source = ParseModelText(With(c->before, "rows = Range(p, t, one)", rows));
    EXPECT_TRUE(source.ok()) << source.status();
    const Model before = AsModel(*source);
    const auto converted = Convert(before, c->options, AllRules());
    EXPECT_TRUE(converted.ok() && converted->model) << converted.status();
    VerifyOptions options;
    options.controls = false;
    auto report = Verify(before, AsModel(*converted->model), converted->manifest, options);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(Accepts(report->verdict, Accept::kProved)) << report->reason << Plans(*report);
    return *std::move(report);
  };
  const VerifyReport causal = judge("rows = Range(p, t, one)");
  const VerifyReport front = judge("s = Sub(t, p)\nrows = Range(zero, s, one)");
  for (const char* plan : {"left pads", "ragged prompt", "free masks"}) {
    ASSERT_NE(PlanOf(front, plan), nullptr) << plan;
    EXPECT_EQ(PlanOf(front, plan)->status, "skipped") << plan;
    ASSERT_NE(PlanOf(causal, plan), nullptr) << plan;
    EXPECT_NE(PlanOf(causal, plan)->status, "skipped") << plan;
  }
  EXPECT_TRUE(front.assumptions.Has(AssumptionKind::kPadding, "context"));
  EXPECT_FALSE(causal.assumptions.Has(AssumptionKind::kPadding, "context"));
}

// Ones and zeros that are cast to bool: nothing is added to scores.
TEST(TrustTest, Row17FloatMaskOfOnesAndZeros) {
  const auto truth = [](std::string text) {
    text = With(text, "k = Mul (x, wk)", "see = Cast <to = 9> (bias) k = Mul (x, wk)");
    return text;
  };
  const VerifyReport report = Judge(With(truth(Before()), "value, bias, pk", "value, see, pk"),
                                    With(truth(After()), "nk, nv, bias,", "nk, nv, see,"));
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Plans(report);
}

}  // namespace
}  // namespace kvlift
