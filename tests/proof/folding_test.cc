// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Layers that are the same are proved once; what is said of them is what proving each would say.
#include "proof/prove/folding.h"

#include <set>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "proof/lower/opset13.h"
#include "proof/prove/prove_conversion.h"
#include "proof/prove/prover.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/layered_decoder.h"
#include "support/models.h"
#include "sym/expr/expr.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutants.h"

namespace kvlift {
namespace {

struct Converted {
  onnx::ModelProto source;
  std::shared_ptr<const onnx::ModelProto> after;
  Manifest relation;
};

Converted ConvertText(const std::string& text) {
  Converted c;
  auto before = ParseModelText(text);
  EXPECT_TRUE(before.ok()) << before.status();
  if (!before.ok()) return c;
  auto conversion = Convert(AsModel(*before), {}, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  c.source = *std::move(before);
  c.relation = conversion->manifest;
  c.after = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  return c;
}

std::string Listed(const Proof& proof) {
  std::string text = proof.not_tried;
  for (const ProofFact& fact : proof.facts) {
    text +=
        fmt::format("{}: {}: {} {}\n", fact.about, fact.text, WordOf(fact.status), fact.why_not);
    for (const Assumption& given : fact.given) text += fmt::format("  given {}\n", given.condition);
  }
  return text;
}

// The facts without what they rest on.
std::string Facts(const Proof& proof) {
  Proof plain = proof;
  for (ProofFact& fact : plain.facts) {
    fact.given.clear();
    if (fact.status == FactStatus::kGiven) fact.status = FactStatus::kProved;
  }
  return Listed(plain);
}

std::set<std::string> LedgerOf(const Proof& proof) {
  std::set<std::string> ledger;
  // A size that several inputs have is one entry of the whole models, and several of the folded.
  // The range of integers is that of all cases of steps.
  for (const Assumption& assumption : proof.assumptions.all()) {
    const bool is_other = assumption.kind == AssumptionKind::kDimension ||
                          assumption.kind == AssumptionKind::kIntegerRange ||
                          assumption.subject == "numbers";
    if (!is_other) ledger.insert(assumption.condition);
  }
  for (const ProofFact& fact : proof.facts) {
    for (const Assumption& given : fact.given) ledger.insert(given.condition);
  }
  return ledger;
}

// Some fact of the list does not hold.
bool SaysOtherwise(const std::string& listed) {
  return listed.find(": open ") != std::string::npos ||
         listed.find(": refuted ") != std::string::npos;
}

// How often each cache of the folded pair stands for those of other layers.
std::multiset<size_t> Copies(const Converted& c) {
  std::multiset<size_t> copies;
  const auto folded = FoldLayers(c.source, *c.after, c.relation);
  if (!folded) return copies;
  for (const ManifestCache& cache : folded->relation.caches) {
    const auto it = folded->copies.find(cache.id);
    copies.insert(it == folded->copies.end() ? 0 : it->second.size());
  }
  return copies;
}

std::string Whole(const Converted& c, const onnx::ModelProto& after) {
  return Facts(ProveCase(c.source, after, c.relation, {}, {}));
}

std::string Folded(const Converted& c, const onnx::ModelProto& after) {
  return Facts(ProveConversion(c.source, after, c.relation));
}

// The first layer has the cache that the mask's size is read from; the others are the same.
TEST(Folding, LayersThatAreTheSameAreProvedOnce) {
  const Converted c = ConvertText(Text(LayeredDecoder()));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 2, 2}));
  const std::string whole = Whole(c, *c.after);
  EXPECT_FALSE(SaysOtherwise(whole)) << whole;
  EXPECT_EQ(Folded(c, *c.after), whole);
}

// The facts of the whole models are those of the folded ones, so that the cost of a proof does not
// grow with the number of layers.
TEST(Folding, TheWholeModelsAreNotProvedOnceMore) {
  const Converted c = ConvertText(Text(LayeredDecoder()));
  const auto folded = FoldLayers(c.source, *c.after, c.relation);
  ASSERT_TRUE(folded.has_value());
  const Proof once =
      ProveCase(folded->before, folded->after, folded->relation, {}, folded->boundaries);
  EXPECT_TRUE(Unfold(*folded, c.relation, 0, once).has_value()) << Listed(once);
}

TEST(Folding, NodesThatNothingReadsBelongToTheirLayer) {
  LayeredDecoder d;
  d.unread = true;
  const Converted c = ConvertText(Text(d));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 2, 2}));
  const std::string whole = Whole(c, *c.after);
  EXPECT_FALSE(SaysOtherwise(whole)) << whole;
  EXPECT_EQ(Folded(c, *c.after), whole);
}

TEST(Folding, WeightsThatAreTheSameAreLayersToo) {
  LayeredDecoder d;
  d.same_numbers = true;
  const Converted c = ConvertText(Text(d));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 2, 2}));
  EXPECT_EQ(Folded(c, *c.after), Whole(c, *c.after));
}

// A scale, a bound of the mask: that layer is proved by itself, and those around it are folded.
TEST(Folding, ALayerWithAnotherConstantIsProvedByItself) {
  for (const bool scale : {true, false}) {
    LayeredDecoder d;
    d.layers = 9;
    (scale ? d.other_scale : d.other_bound) = 4;
    const Converted c = ConvertText(Text(d));
    // Layers 5 to 8 first; what is left of them stays beside 1 to 4.
    EXPECT_EQ(Copies(c).count(0), 2 * 5) << scale;
    EXPECT_EQ(Copies(c).count(3), 2) << scale;
    const auto once = FoldLayers(c.source, *c.after, c.relation);
    ASSERT_TRUE(once.has_value());
    const auto twice = FoldLayers(once->before, once->after, once->relation);
    ASSERT_TRUE(twice.has_value());
    EXPECT_EQ(twice->relation.caches.size(), 2 * 4) << scale;
    const std::string whole = Whole(c, *c.after);
    EXPECT_FALSE(SaysOtherwise(whole)) << whole;
    EXPECT_EQ(Folded(c, *c.after), whole);
  }
}

// The work for a layer does not grow with the number of layers.
TEST(Folding, ManyLayersWithConstantsOfTheirOwnAreProved) {
  LayeredDecoder d;
  d.layers = 24;
  d.own_scales = true;
  const Converted c = ConvertText(Text(d));
  const int64_t usual = sym::MaxSteps();
  sym::SetMaxSteps(d.layers * 30'000);
  const std::string proved = Folded(c, *c.after);
  sym::SetMaxSteps(1000);
  const std::string stopped = Folded(c, *c.after);
  sym::SetMaxSteps(usual);
  EXPECT_FALSE(SaysOtherwise(proved)) << proved;
  EXPECT_THAT(stopped, testing::HasSubstr("the limit of 1000 steps is reached"));
}

// One weight in layer 1 where the others have two: what is proved of it need not hold of them.
TEST(Folding, ALayerThatSharesAWeightStandsForNoneThatDoesNot) {
  LayeredDecoder d;
  d.shared_weight = 1;
  const Converted c = ConvertText(Text(d));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(Folded(c, *c.after), Whole(c, *c.after));
}

TEST(Folding, OfMutantsTheSameIsSaid) {
  const Converted c = ConvertText(Text(LayeredDecoder()));
  const auto graph = Graph::Build(c.after);
  ASSERT_TRUE(graph.ok());
  MutantLimits limits;
  limits.everywhere = true;
  int tried = 0;
  for (const Mutant& mutant : MakeMutants(*graph, c.relation, limits)) {
    if (mutant.detector != Detector::kPlans) continue;
    const auto model = BuildMutant(*graph, mutant);
    const std::string whole = Whole(c, *model);
    EXPECT_EQ(Folded(c, *model), whole) << mutant.group << ": " << mutant.name;
    if (!mutant.equivalent.empty() || mutant.equivalent_if || mutant.guard) continue;
    EXPECT_TRUE(SaysOtherwise(whole)) << mutant.group << ": " << mutant.name;
    ++tried;
  }
  EXPECT_GE(tried, 60);
}

// A weight of layer 2 that is another one: the source's name, other numbers.
TEST(Folding, AWeightOfOneLayerThatIsAnotherOneIsFound) {
  const Converted c = ConvertText(Text(LayeredDecoder()));
  onnx::ModelProto changed = *c.after;
  bool found = false;
  for (auto& tensor : *changed.mutable_graph()->mutable_initializer()) {
    if (tensor.name() != "wk2") continue;
    found = true;
    if (tensor.float_data_size() > 0) {
      tensor.set_float_data(5, 3);
    } else {
      (*tensor.mutable_raw_data())[23] = 0x40;
    }
  }
  ASSERT_TRUE(found);
  const std::string whole = Whole(c, changed);
  EXPECT_TRUE(SaysOtherwise(whole));
  EXPECT_EQ(Folded(c, changed), whole);
}

// Caches of two layers that the relation has the wrong way round.
TEST(Folding, ARelationThatMixesLayersIsFound) {
  Converted c = ConvertText(Text(LayeredDecoder()));
  std::swap(c.relation.caches[4].source.input, c.relation.caches[6].source.input);
  const std::string whole = Whole(c, *c.after);
  EXPECT_TRUE(SaysOtherwise(whole));
  EXPECT_EQ(Folded(c, *c.after), whole);
}

class FoldedModel : public testing::TestWithParam<const char*> {};

TEST_P(FoldedModel, SaysTheSame) {
  Converted c;
  const Model source = LoadTestModel(GetParam());
  auto conversion = Convert(source, {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  auto plain = AsOpset13(*source.proto);
  ASSERT_TRUE(plain.ok());
  c.source = *std::move(plain);
  c.relation = conversion->manifest;
  const Proof whole = ProveCase(c.source, *conversion->model, c.relation, {}, {});
  const Proof folded = ProveConversion(c.source, *conversion->model, c.relation);
  EXPECT_EQ(Facts(folded), Facts(whole));
  EXPECT_EQ(LedgerOf(folded), LedgerOf(whole));
}

// Entries about a layer that stands for others are said of these, too; a name that only begins like
// one of the layer's is another.
TEST(LayerNames, EntriesAreSaidOfEachLayer) {
  LayerNames names;
  EXPECT_TRUE(names.Add("past.1.key", {"past.2.key", "past.3.key"}));
  EXPECT_TRUE(names.Add("scores", {"scores_2", "scores_3"}));
  EXPECT_FALSE(names.Add("scores", {"others", "scores_3"}));
  Assumptions all;
  const auto entry = [](const std::string& text) {
    return Assumption{AssumptionKind::kDimension, "", text};
  };
  names.AddForFirst(3, entry("P = past.1.key.shape[2]"), &all);
  names.AddForFirst(3, entry("each query of scores sees a key"), &all);
  names.AddForFirst(3, entry("scores_9 + my.scores is finite"), &all);
  std::vector<std::string> texts;
  for (const Assumption& a : all.all()) texts.push_back(a.condition);
  EXPECT_THAT(texts,
              testing::ElementsAre(
                  "P = past.1.key.shape[2]", "P = past.2.key.shape[2]", "P = past.3.key.shape[2]",
                  "each query of scores sees a key", "each query of scores_2 sees a key",
                  "each query of scores_3 sees a key", "scores_9 + my.scores is finite"));
}

INSTANTIATE_TEST_SUITE_P(Models, FoldedModel,
                         testing::Values("gpt_oss_optimum", "llama_optimum", "gpt2_optimum",
                                         "gemma2_optimum", "llama_dynamic_dynamo",
                                         "llama_attention_opset23", "llama_genai_gqa",
                                         "bloom_optimum", "whisper_decoder_with_past_optimum",
                                         "llama_static_ts"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace kvlift
