// LIBS: proof rewrites verify
// SRCS: support/case_file.cc support/models.cc
// Conversions of real decoders are proved for all shapes, and no wrong variant of them is.
#include "proof/proof.h"

#include <algorithm>
#include <set>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "rewrite/convert.h"
#include "support/models.h"
#include "verify/mutant_maker.h"
#include "verify/mutants.h"

namespace kvlift {
namespace {

std::string Unproved(const Proof& proof) {
  std::string text = proof.not_tried;
  for (const ProofFact& fact : proof.facts) {
    if (!fact.proved) text += fmt::format("{}: {}: {}\n", fact.about, fact.text, fact.why_not);
  }
  return text;
}

class ProvedModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    source_ = LoadTestModel(GetParam());
    auto conversion = Convert(source_, {}, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    relation_ = conversion->manifest;
    after_ = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  }

  Proof Prove(const onnx::ModelProto& after) const {
    return ProveConversion(*source_.proto, after, relation_);
  }

  Model source_;
  Manifest relation_;
  std::shared_ptr<const onnx::ModelProto> after_;
};

TEST_P(ProvedModel, IsProvedForAllShapes) {
  const Proof proof = Prove(*after_);
  EXPECT_EQ(Unproved(proof), "");
  std::set<std::string> about;
  for (const ProofFact& fact : proof.facts) about.insert(fact.about);
  for (const ManifestCache& cache : relation_.caches) EXPECT_TRUE(about.contains(cache.id));
  EXPECT_TRUE(about.contains("logits"));
}

// Groups that change places or lengths. What changes numbers alone is told by running the model,
// unless it changes an operator.
TEST_P(ProvedModel, NoMutantIsProved) {
  const auto graph = Graph::Build(after_);
  ASSERT_TRUE(graph.ok());
  MutantLimits limits;
  limits.everywhere = true;
  const auto steps = ModelMeta(GetParam())["steps"].get<std::vector<int>>();
  limits.ragged = !relation_.uniform;
  limits.one_length = relation_.uniform_reason;
  limits.many_tokens = *std::max_element(steps.begin(), steps.end()) > 1;
  int tried = 0;
  for (const Mutant& mutant : MakeMutants(*graph, relation_, limits)) {
    // What is the same model in some or all cases may be proved to be the same.
    if (!mutant.equivalent.empty() || mutant.equivalent_if || mutant.guard) continue;
    if (mutant.detector != Detector::kPlans) continue;
    ++tried;
    const Proof proof = Prove(*BuildMutant(*graph, mutant));
    EXPECT_NE(Unproved(proof), "") << mutant.group << ": " << mutant.name;
  }
  EXPECT_GE(tried, 20);
}

INSTANTIATE_TEST_SUITE_P(Models, ProvedModel,
                         testing::Values("llama_optimum", "gpt2_optimum", "qwen2_optimum",
                                         "gemma2_optimum", "llama_dynamic_dynamo",
                                         "llama_attention_opset23", "toy_scatter_ts",
                                         "toy_onehot_where_ts", "toy_splice_ts", "llama_static_ts"),
                         [](const auto& model) { return std::string(model.param); });

TEST(Proof, BranchesAreNotTried) {
  const Model source = LoadTestModel("llama_optimum_merged");
  const auto conversion = Convert(source, {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model);
  const Proof proof = ProveConversion(*source.proto, *conversion->model, conversion->manifest);
  EXPECT_TRUE(proof.facts.empty());
  EXPECT_EQ(proof.not_tried, "a model has branches or loops");
}

// Without the precondition that says so, positions may be anything.
TEST(Proof, WhatRestsOnTheHostNeedsAPrecondition) {
  const Model source = LoadTestModel("toy_scatter_ts");
  const auto conversion = Convert(source, {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model);
  Manifest silent = conversion->manifest;
  silent.preconditions.clear();
  const Proof proof = ProveConversion(*source.proto, *conversion->model, silent);
  EXPECT_NE(Unproved(proof).find("no precondition says so"), std::string::npos);
}

}  // namespace
}  // namespace kvlift
