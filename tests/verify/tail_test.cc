// LIBS: verify
// Mutants that are run without what stands in front of them.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "verify/controls/controls.h"
#include "verify/controls/mutant_cone.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/steps/source_probe.h"

namespace kvlift {
namespace {

constexpr int kLayers = 3;

// Layers that read each other's results, with one key and value cache each.
std::string Text() {
  std::string inputs, outputs, nodes;
  std::string in = "x4";
  for (int k = 0; k < kLayers; ++k) {
    inputs += fmt::format(", float[B,1,16,4] past{}", k);
    outputs += fmt::format(", float[B,1,16,4] now{}", k);
    nodes += absl::StrReplaceAll(
        "  rows# = MatMul (IN, w)\n"
        "  now# = TensorScatter <axis = 2> (past#, rows#, at)\n"
        "  read# = Attention <is_causal = 1> (IN, now#, now#, , , , nonpad)\n"
        "  out# = Add (IN, read#)\n",
        {{"#", fmt::format("{}", k)}, {"IN", in}});
    in = fmt::format("out{}", k);
  }
  return fmt::format(
      "<ir_version: 12, opset_import: [\"\" : 24]>\n"
      "g (float[B,S,4] x, int64[B] at{}) => (float[B,S,4] y{})\n"
      "<int64[1] axis = {{1}},\n"
      " float[4,4] w = {{1, 0.5, -0.25, 0, 0.25, 1, 0, 0.5, -0.5, 0.25, 1, 0, 0, -0.25, 0.5, 1}}>\n"
      "{{\n"
      "  x4 = Unsqueeze (x, axis)\n"
      "  news = Shape <start = 1, end = 2> (x)\n"
      "  nonpad = Add (at, news)\n"
      "{}"
      "  y = Squeeze ({}, axis)\n"
      "}}",
      inputs, outputs, nodes, in);
}

Manifest Relation() {
  Manifest m;
  for (int k = 0; k < kLayers; ++k) {
    ManifestCache c;
    c.id = fmt::format("{}.key_value", k);
    c.layer = k;
    c.role = CacheRole::kKeyValue;
    c.input = fmt::format("past{}", k);
    c.output = fmt::format("now{}", k);
    c.dtype = "float32";
    c.layout = "BNSD";
    c.alias = CacheAlias::kSafe;
    c.source = {c.input, c.output, UpdateKind::kTensorScatter, "BNSD", 2, false, {}};
    m.inputs.push_back({c.input, CacheInput{c.id}});
    m.outputs.push_back({c.output, CacheOutput{c.id}});
    m.caches.push_back(std::move(c));
  }
  m.inputs.push_back({"x", SameInput{}});
  m.inputs.push_back({"at", SameInput{}});
  m.outputs.push_back({"y", SameOutput{}});
  return m;
}

class TailTest : public ::testing::Test {
 protected:
  static Graph Parse(const std::string& text) {
    auto proto = ParseModelText(text);
    EXPECT_TRUE(proto.ok()) << proto.status();
    auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*std::move(proto)));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return *std::move(graph);
  }

  std::vector<ControlResult> Controls(double most_affected) const {
    Model model;
    model.proto = graph_.shared_model();
    auto stimulus = Stimulus::Create(graph_, graph_, relation_, 1);
    EXPECT_TRUE(stimulus.ok()) << stimulus.status();
    Driver driver(relation_, *stimulus, 5);
    auto runner = Runner::Create(model.proto, "", {}, exec::AliasMode::kOff, 1);
    EXPECT_TRUE(runner.ok()) << runner.status();
    EXPECT_TRUE(ProbeSource(*runner, graph_, relation_, 16, 1e4, &*stimulus, &driver).ok());
    PlanLimits limits;
    limits.free_capacity = false;
    const std::vector<Plan> plans = MakePlans(limits);
    std::vector<Record> records;
    for (const Plan& plan : plans) {
      if (plan.skipped.empty()) records.push_back(driver.RunSource(*runner, plan));
      if (records.size() > 0 && records.back().steps.empty()) records.pop_back();
      if (records.size() > 0) records.back().bitwise = true;
    }
    ControlOptions options;
    options.source = &graph_;
    options.threads = 1;
    options.many_tokens = true;
    options.most_affected = most_affected;
    options.overflow = [](const Model&) { return SelfCheck(); };
    options.judge = [](const Manifest&) { return std::string("not asked"); };
    Pace pace;
    options.pace = &pace;
    return RunControls(driver, model, graph_, relation_, records, options);
  }

  const Manifest relation_ = Relation();
  const Graph graph_ = Parse(Text());
};

TEST_F(TailTest, WhatStandsInFrontIsLeftOut) {
  const Graph mutant = Parse(absl::StrReplaceAll(
      Text(), {{"read2 = Attention <is_causal = 1>", "read2 = Attention <is_causal = 0>"}}));
  const auto tail = FindAffectedPart(graph_, mutant, relation_, 0.5);
  ASSERT_TRUE(tail.has_value());
  std::vector<std::string> nodes;
  for (const NodeId n : tail->nodes) nodes.push_back(mutant.NodeName(n));
  EXPECT_EQ(nodes, (std::vector<std::string>{"now2", "read2", "out2", "y"}));
  // The cache that the attention reads is written here, too.
  EXPECT_EQ(tail->fed, (std::vector<std::string>{"nonpad", "out1", "rows2"}));
  ASSERT_EQ(tail->relation.caches.size(), 1);
  EXPECT_EQ(tail->relation.caches[0].input, "past2");
  EXPECT_EQ(tail->relation.inputs.size(), 2) << "past2 and at";
  EXPECT_EQ(tail->relation.outputs.size(), 2) << "now2 and y";
  EXPECT_FALSE(FindAffectedPart(graph_, mutant, relation_, 0.1).has_value());
}

// What a step leaves in a cache reaches the nodes in front of the mutated one in the next.
TEST_F(TailTest, LaterStepsReadWhatCachesHold) {
  const Graph mutant =
      Parse(absl::StrReplaceAll(Text(), {{"now0 = TensorScatter <axis = 2> (past0, rows0, at)",
                                          "now0 = TensorScatter <axis = 2> (past0, x4, at)"}}));
  const auto tail = FindAffectedPart(graph_, mutant, relation_, 1.0);
  ASSERT_TRUE(tail.has_value());
  EXPECT_EQ(tail->relation.caches.size(), kLayers);
  EXPECT_FALSE(FindAffectedPart(graph_, mutant, relation_, 0.5).has_value());
}

TEST_F(TailTest, SameModelHasNone) {
  EXPECT_FALSE(FindAffectedPart(graph_, graph_, relation_, 1.0).has_value());
}

TEST_F(TailTest, MutantsAreToldAsByTheWholeModel) {
  const std::vector<ControlResult> whole = Controls(0), tails = Controls(1);
  ASSERT_EQ(whole.size(), tails.size());
  ASSERT_GT(whole.size(), 20);
  int told = 0;
  for (size_t k = 0; k < whole.size(); ++k) {
    EXPECT_EQ(whole[k].mutant, tails[k].mutant);
    EXPECT_EQ(whole[k].detected_by, tails[k].detected_by) << whole[k].mutant;
    EXPECT_EQ(whole[k].output, tails[k].output) << whole[k].mutant;
    told += whole[k].step.has_value() ? 1 : 0;
  }
  EXPECT_GT(told, 15);
}

}  // namespace
}  // namespace kvlift
