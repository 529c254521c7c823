// LIBS: verify
// Self checks of a converted model, with one of its runners replaced by that of a wrong model.
#include "verify/controls/self_checks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/stimulus.h"
#include "verify/steps/source_probe.h"

namespace kvlift {
namespace {

constexpr char kModel[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (float[B,S,4] x, float[B,1,16,4] past, int64[B] at) => (float[B,S,4] y, float[B,1,16,4] now)
<int64[1] axis = {1}>
{
  x4 = Unsqueeze (x, axis)
  now = TensorScatter <axis = 2> (past, x4, at)
  news = Shape <start = 1, end = 2> (x)
  nonpad = Add (at, news)
  y4 = Attention <is_causal = 1> (x4, now, now, , , , nonpad)
  y = Squeeze (y4, axis)
})";

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

std::shared_ptr<const onnx::ModelProto> Parse(const std::string& text) {
  auto proto = ParseModelText(text);
  EXPECT_TRUE(proto.ok()) << proto.status();
  return std::make_shared<const onnx::ModelProto>(*std::move(proto));
}

class SelfChecksTest : public ::testing::Test {
 protected:
  // Runs all checks; runners of `mode` are those of another model.
  std::vector<SelfCheck> Run(exec::AliasMode mode, const std::string& other) {
    const auto model = Parse(kModel), wrong = Parse(other);
    auto graph = Graph::Build(model);
    auto stimulus = Stimulus::Create(*graph, *graph, relation_, 1);
    EXPECT_TRUE(stimulus.ok()) << stimulus.status();
    Driver driver(relation_, *stimulus, 5);
    auto runner = Runner::Create(model, "", {}, exec::AliasMode::kOff, 1);
    EXPECT_TRUE(runner.ok()) << runner.status();
    const auto probed = ProbeSource(*runner, *graph, relation_, 16, 1e4, &*stimulus, &driver);
    EXPECT_TRUE(probed.ok()) << probed.status();
    SelfCheckFacts facts;
    facts.limits.free_capacity = false;
    const std::vector<Plan> plans = MakePlans(facts.limits);
    std::vector<Record> records;
    for (const Plan& plan : plans) {
      if (plan.name == "decode") records.push_back(driver.RunSource(*runner, plan));
    }
    SelfChecks checks(driver, relation_, facts, records,
                      [&](std::vector<exec::CachePair> pairs, exec::AliasMode wanted) {
                        return Runner::Create(wanted == mode ? wrong : model, "", std::move(pairs),
                                              wanted, 1);
                      });
    return checks.Run(*runner, *runner);
  }

  Manifest relation_ = Relation();
};

TEST_F(SelfChecksTest, AllModesAgree) {
  for (const SelfCheck& check : Run(exec::AliasMode::kOff, kModel)) {
    EXPECT_TRUE(check.failed.empty()) << check.failed;
    EXPECT_FALSE(check.difference.has_value()) << check.result.name;
  }
}

TEST_F(SelfChecksTest, ModeThatGivesOtherResults) {
  const std::string wrong = absl::StrReplaceAll(kModel, {{"is_causal = 1", "is_causal = 0"}});
  for (const auto mode :
       {exec::AliasMode::kAuto, exec::AliasMode::kGuard, exec::AliasMode::kPoison}) {
    const std::vector<SelfCheck> checks = Run(mode, wrong);
    ASSERT_FALSE(checks.empty());
    ASSERT_TRUE(checks.back().difference.has_value()) << checks.back().result.name;
    EXPECT_EQ(checks.back().difference->text.substr(0, 5), "KV431");
    EXPECT_EQ(checks.back().difference->output, "y");
  }
}

// What the poison is for: a row that holds no token is read, with a weight that hides it.
TEST_F(SelfChecksTest, RowsWithoutTokensAreNeverRead) {
  const std::string wrong =
      absl::StrReplaceAll(kModel, {{"nonpad = Add (at, news)",
                                    "one = Constant <value = int64[1] {1}> () sum = Add (at, news) "
                                    "nonpad = Add (sum, one)"}});
  const std::vector<SelfCheck> checks = Run(exec::AliasMode::kPoison, wrong);
  ASSERT_FALSE(checks.empty());
  EXPECT_EQ(checks.back().result.name, "poison");
  ASSERT_TRUE(checks.back().difference.has_value());
  EXPECT_NE(checks.back().difference->text.find("KV431"), std::string::npos);
}

// The check sees results, and not what was read: both models may read unused slots alike without
// an effect.
TEST_F(SelfChecksTest, UnusedSlotsAreSaidToChangeNoResult) {
  const std::vector<SelfCheck> checks = Run(exec::AliasMode::kOff, kModel);
  const auto garbage = std::find_if(checks.begin(), checks.end(), [](const SelfCheck& check) {
    return check.result.name == "garbage";
  });
  ASSERT_NE(garbage, checks.end());
  EXPECT_EQ(garbage->result.note, "unused slots change no result");
}

// A calibration over scores with -inf among them gives an endless scale. What quantisers then make
// of scores is NaN, and hidden keys get whatever weight a runtime makes of it.
TEST_F(SelfChecksTest, LedgerNamesAScaleThatIsNotFinite) {
  const auto ledger = [&](const std::string& scale) {
    auto graph = Graph::Build(Parse(absl::StrReplaceAll(
        kModel, {{"<int64[1] axis = {1}>",
                  "<int64[1] axis = {1}, float scale = {" + scale + "}, int8 none = {0}>"},
                 {"x4 = Unsqueeze (x, axis)",
                  "codes = QuantizeLinear (x, scale, none) back = DequantizeLinear (codes, scale, "
                  "none) x4 = Unsqueeze (back, axis)"}})));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return ClaimsOf(relation_, *graph, *graph);
  };
  EXPECT_TRUE(ledger("inf").Has(AssumptionKind::kFinite, "codes"));
  EXPECT_FALSE(ledger("0.5").Has(AssumptionKind::kFinite, "codes"));
}

}  // namespace
}  // namespace kvlift
