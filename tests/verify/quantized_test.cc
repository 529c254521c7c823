// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc support/verdict.cc
// Caches in few bits: equal within quantisation, exactly as defined, and never plain equal.
#include "verify/variants/quantized.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "contract/manifest_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/models.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"
#include "verify/judge/verify_quantized.h"

namespace kvlift {
namespace {

using ::testing::StartsWith;

struct Converted {
  Model before, after;
  Manifest manifest;
};

Converted ConvertModel(const std::string& name, const std::string& how) {
  Converted c;
  c.before = LoadTestModel(name);
  ConvertOptions options;
  options.quantize_cache = ReadCacheQuantization(how);
  EXPECT_TRUE(options.quantize_cache.has_value()) << how;
  auto result = Convert(c.before, options, AllRules());
  EXPECT_TRUE(result.ok() && result->model) << name;
  c.manifest = result->manifest;
  c.after = AsModel(*result->model);
  return c;
}

VerifyReport Judge(const Converted& c, bool controls = true) {
  VerifyOptions options;
  options.controls = controls;
  auto report = Verify(c.before, c.after, c.manifest, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

struct Kind {
  const char *model, *how;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.model << " " << kind.how; }

class Models : public ::testing::TestWithParam<Kind> {};

TEST_P(Models, AreEqualWithinQuantisation) {
  const Converted c = ConvertModel(GetParam().model, GetParam().how);
  const VerifyReport report = Judge(c);
  EXPECT_EQ(report.verdict, VerdictKind::kEqualWithinQuantization) << Summary(report);
  bool moved = false, rounding = false;
  for (const OutputResult& output : report.outputs) {
    if (output.name.rfind("stored: ", 0) == 0) continue;
    EXPECT_LE(output.ratio, 1);
    moved = moved || output.max_abs > 1e-4;
  }
  EXPECT_TRUE(moved) << "nothing was rounded";
  for (const ControlResult& control : report.controls) {
    const bool named = control.mutant.find("scales of the next group") != std::string::npos ||
                       control.mutant.find("rounded towards zero") != std::string::npos;
    rounding = rounding || (named && !control.detected_by.empty());
  }
  EXPECT_TRUE(rounding || std::string(GetParam().how) == "fp8");
  int proved = 0;
  for (const ProofFact& fact : report.proof.facts) {
    if (fact.text.rfind("values and scales", 0) != 0) continue;
    EXPECT_TRUE(fact.holds()) << fact.about << ": " << fact.text << ": " << fact.why_not;
    ++proved;
  }
  EXPECT_GT(proved, 0);
}

INSTANTIATE_TEST_SUITE_P(Quantised, Models,
                         ::testing::Values(Kind{"llama_optimum", "int8:4"},
                                           Kind{"gpt2_optimum", "int8:channel"},
                                           Kind{"toy_scatter_ts", "int8:channel"},
                                           Kind{"qwen2_optimum", "fp8"}));

TEST(VerifyQuantizedTest, SummaryStandsInTheManifest) {
  const Converted c = ConvertModel("llama_optimum", "int8:channel");
  ASSERT_TRUE(c.manifest.quantization.has_value());
  EXPECT_EQ(c.manifest.quantization->scheme, "int8:channel");
  ASSERT_TRUE(c.manifest.quantization->bytes_before && c.manifest.quantization->bytes_after);
  EXPECT_LT(*c.manifest.quantization->bytes_after, *c.manifest.quantization->bytes_before);
  const auto read = ManifestFromJson(ToJson(c.manifest).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(c.manifest));
  EXPECT_TRUE(HasQuantizedCaches(*read));
}

TEST(VerifyQuantizedTest, GroupsOf32TakeAQuarterAndAnEighth) {
  // 1 + 4 / 32 bytes instead of 4.
  EXPECT_GE(4.0 / (1 + 4.0 / 32), 3.5);
  EXPECT_FALSE(ReadCacheQuantization("int8:0").has_value());
  EXPECT_FALSE(ReadCacheQuantization("int8:4x").has_value());
  EXPECT_FALSE(ReadCacheQuantization("int4:32").has_value());
  EXPECT_EQ(ReadCacheQuantization("int8:32")->group, 32);
}

// The model with one kind of node changed.
Converted Edited(Converted c, const std::function<void(onnx::NodeProto*)>& edit) {
  onnx::ModelProto model = *c.after.proto;
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) edit(&node);
  c.after = AsModel(std::move(model));
  return c;
}

TEST(VerifyQuantizedTest, OtherScalesAreNotTheDefinition) {
  Converted c = ConvertModel("llama_optimum", "int8:4");
  onnx::ModelProto model = *c.after.proto;
  bool found = false;
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.float_data_size() != 1 || tensor.float_data(0) != 127) continue;
    tensor.set_float_data(0, 120);
    found = true;
  }
  ASSERT_TRUE(found);
  c.after = AsModel(std::move(model));
  const VerifyReport report = Judge(c, false);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent) << Summary(report);
  EXPECT_THAT(report.reason, StartsWith("KV435"));
}

TEST(VerifyQuantizedTest, WhatIsNotQuantisedByTheOperatorIsNotRead) {
  const Converted c = Edited(ConvertModel("llama_optimum", "int8:4"), [](onnx::NodeProto* node) {
    if (node->op_type() != "QuantizeLinear") return;
    node->set_op_type("Cast");
    node->mutable_input()->RemoveLast();
    node->clear_attribute();
    auto* to = node->add_attribute();
    to->set_name("to");
    to->set_type(onnx::AttributeProto::INT);
    to->set_i(onnx::TensorProto::INT8);
  });
  const VerifyReport report = Judge(c, false);
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << Summary(report);
  EXPECT_THAT(report.reason, StartsWith("KV432"));
}

// Bounds all scales from above by a number that the rows of the plans do not reach.
Converted WithBoundedScales(Converted c) {
  onnx::ModelProto model = *c.after.proto;
  auto& nodes = *model.mutable_graph()->mutable_node();
  auto& bound = *model.mutable_graph()->add_initializer();
  bound.set_name("bound");
  bound.set_data_type(onnx::TensorProto::FLOAT);
  bound.add_float_data(1000);
  std::set<std::string> scales;
  for (const onnx::NodeProto& node : nodes) {
    if (node.op_type() == "QuantizeLinear") scales.insert(node.input(1));
  }
  EXPECT_FALSE(scales.empty());
  for (int k = 0; k < nodes.size(); ++k) {
    const std::string scale = nodes[k].output(0);
    if (scales.erase(scale) == 0) continue;
    nodes[k].set_output(0, scale + " unbounded");
    onnx::NodeProto& least = *nodes.Add();
    least.set_op_type("Min");
    least.add_input(scale + " unbounded");
    least.add_input("bound");
    least.add_output(scale);
    std::rotate(nodes.begin() + k + 1, nodes.end() - 1, nodes.end());
  }
  c.after = AsModel(std::move(model));
  return c;
}

TEST(VerifyQuantizedTest, ScalesThatDoNotFitLargeRowsAreNotProved) {
  for (const char* name : {"llama_optimum", "bloom_optimum"}) {
    const VerifyReport report = Judge(WithBoundedScales(ConvertModel(name, "int8:4")), false);
    EXPECT_EQ(report.verdict, VerdictKind::kEqualAsTested) << name << ": " << Summary(report);
    EXPECT_THAT(report.reason, StartsWith("KV410")) << name;
  }
}

// The verdict where the third part of the check, on rounded rows, says this.
VerifyReport WithLast(const VerifyReport& last) {
  const Converted c = ConvertModel("llama_optimum", "int8:4");
  const auto verify = [&](const Model&, const Model&, const Manifest&, const VerifyOptions&,
                          const VerifyPart& part) -> absl::StatusOr<VerifyReport> {
    if (part.bounds != nullptr) return last;
    VerifyReport equal;
    equal.verdict = VerdictKind::kEqual;
    return equal;
  };
  return *VerifyQuantized(c.before, c.after, c.manifest, {}, verify);
}

TEST(VerifyQuantizedTest, OutputsAreHeldAgainstTheBound) {
  VerifyReport last;
  last.verdict = VerdictKind::kDifferent;
  last.reason = "KV404 logits differs first at decode";
  VerifyReport report = WithLast(last);
  EXPECT_EQ(report.verdict, VerdictKind::kDifferent);
  EXPECT_EQ(report.reason,
            std::string("KV433") + " with rounded rows: logits differs first at decode");
  last = {};
  last.verdict = VerdictKind::kEqual;
  last.outputs.emplace_back();
  last.outputs.back().name = "tokens";
  last.outputs.back().by_fixed_bound = 3;
  report = WithLast(last);
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive);
  EXPECT_THAT(report.reason, StartsWith("KV434"));
  last.outputs.back().by_bound = 1;
  EXPECT_EQ(WithLast(last).verdict, VerdictKind::kEqualWithinQuantization);
}

}  // namespace
}  // namespace kvlift
