// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/disguise.cc support/models.cc
// Every conversion of the text cases and of the real models is proved equal to its source.
#include <map>
#include <random>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/disguise.h"
#include "support/models.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

std::string Summary(const VerifyReport& report) {
  std::string text = fmt::format("{}\n", report.reason);
  for (const PlanResult& plan : report.plans) {
    text +=
        fmt::format("  {}: {} after {} steps {}\n", plan.name, plan.status, plan.steps, plan.note);
  }
  for (const ControlResult& control : report.controls) {
    if (control.detected_by.empty()) text += fmt::format("  {} not detected\n", control.mutant);
  }
  if (report.counterexample) {
    const Counterexample& c = *report.counterexample;
    text += fmt::format("  plan {}, step {}, {}[{}]: {} and {}\n  {}\n", c.plan, c.step, c.output,
                        fmt::join(c.element, ","), c.before, c.after, c.text);
  }
  return text;
}

// Right conversions of which the proof leaves a fact open, and what it says of that: they are equal
// as tested.
const std::map<std::string, std::string>& OpenFacts() {
  constexpr char kOperators[] = "outside the attentions, the source's operators";
  static const auto* const facts = new std::map<std::string, std::string>{
      // The source's Softmax is one of opset 12 over several axes, which the conversion spells out
      // with Flatten and Reshape; the proof does not.
      {"decomposed_attention_keep_softmax_flattens", kOperators},
      // The conversion keeps its index into the heads of one layer from going beyond them; that it
      // never does follows from two bounds together.
      {"growing_concat_layers_on_heads", "rows [0, P + S) hold"},
      // The source's Gather needs B <= L place by place, and the conversion's Slice as a bound.
      {"growing_concat_range_ends_with_sequences", "has operands that fit each other"},
      // Only the condition of an If says that there are as many keys as values.
      {"growing_concat_merged_present_alone", "is the source's attention"},
      // The source's sink is behind all slots of the buffer, and the conversion's behind the valid
      // ones.
      {"attention_op_group_query_buffer_sink", "reads the source's keys"},
  };
  return *facts;
}

void ExpectEqual(const std::string& name, const onnx::ModelProto& before,
                 const ConvertOptions& convert, const VerifyOptions& options,
                 const std::string& unproved = "") {
  const Model source = AsModel(before);
  const auto converted = Convert(source, convert, AllRules());
  ASSERT_TRUE(converted.ok()) << converted.status();
  if (!converted->model) return;
  const auto report = Verify(source, AsModel(*converted->model), converted->manifest, options);
  ASSERT_TRUE(report.ok()) << report.status();
  if (!unproved.empty()) {
    EXPECT_EQ(report->verdict, VerdictKind::kInconclusive) << Summary(*report);
    EXPECT_TRUE(report->reason.starts_with(unproved)) << report->reason;
    return;
  }
  if (const auto open = OpenFacts().find(name); open != OpenFacts().end()) {
    EXPECT_EQ(report->verdict, VerdictKind::kEqualAsTested) << Summary(*report);
    EXPECT_NE(report->reason.find(open->second), std::string::npos) << report->reason;
    return;
  }
  EXPECT_EQ(report->verdict,
            convert.quantize_cache ? VerdictKind::kEqualWithinQuantization : VerdictKind::kEqual)
      << Summary(*report);
  EXPECT_FALSE(report->plans.empty());
}

class TextCases : public ::testing::TestWithParam<std::string> {};

TEST_P(TextCases, AreProvedEqual) {
  const auto c = LoadCase(GetParam());
  ASSERT_TRUE(c.ok()) << c.status();
  const auto before = ParseModelText(c->before);
  ASSERT_TRUE(before.ok()) << before.status();
  const size_t slash = GetParam().rfind('/') + 1;
  const std::string name = GetParam().substr(slash, GetParam().find('.', slash) - slash);
  ExpectEqual(name, *before, c->options, {}, c->unproved.value_or(""));
}

INSTANTIATE_TEST_SUITE_P(Cases, TextCases, ::testing::ValuesIn(CaseFiles()), [](const auto& file) {
  const size_t slash = file.param.rfind('/') + 1;
  return file.param.substr(slash, file.param.find('.', slash) - slash);
});

// ONNX Runtime fills the slots behind the new rows with 0 where the host binds two buffers, and the
// conversion keeps what is there.
TEST(Ledger, SaysThatGroupQueryAttentionSharesItsBuffer) {
  const auto says_so = [](const std::string& name) {
    const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
    EXPECT_TRUE(c.ok()) << c.status();
    const auto before = c.ok() ? ParseModelText(c->before) : c.status();
    if (!before.ok()) return false;
    const Model source = AsModel(*before);
    const auto converted = Convert(source, c->options, AllRules());
    EXPECT_TRUE(converted.ok() && converted->model.has_value());
    if (!converted.ok() || !converted->model) return false;
    const auto report = Verify(source, AsModel(*converted->model), converted->manifest, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() && report->assumptions.Has(AssumptionKind::kOther, "past_k");
  };
  EXPECT_TRUE(says_so("attention_op_group_query_buffer"));
  EXPECT_FALSE(says_so("attention_op_group_query"));
}

class RealModels : public ::testing::TestWithParam<std::string> {};

TEST_P(RealModels, AreProvedEqual) {
  ExpectEqual(GetParam(), *LoadTestModel(GetParam()).proto, {}, {});
}

TEST_P(RealModels, AreProvedEqualForGenai) {
  ConvertOptions options;
  options.target = Target::kGenai;
  ExpectEqual("genai " + GetParam(), *LoadTestModel(GetParam()).proto, options, {});
}

TEST_P(RealModels, AreProvedEqualInDisguise) {
  std::mt19937 rng(1);
  const Model loaded = LoadTestModel(GetParam());
  onnx::ModelProto model = *loaded.proto;
  DisguiseFully(&model, rng);
  VerifyOptions options;
  options.controls = false;
  ExpectEqual("disguised " + GetParam(), model, {}, options);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModels, ::testing::ValuesIn(ModelNames()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace kvlift
