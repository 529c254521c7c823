// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Pairs whose caches grow in both models, such as a model before and after an optimiser.
#include <algorithm>
#include <set>
#include <string>

#include "support/proof_mutants.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

// Returns the relation of a model to itself. `conversion` relates its conversion to it.
Manifest RelationToItself(const onnx::ModelProto& model, const Manifest& conversion) {
  Manifest relation;
  for (const ManifestCache& cache : conversion.caches) {
    ManifestCache own = cache;
    own.input = cache.source.input;
    own.output = cache.source.output;
    own.layout = cache.source.layout;
    own.axis = cache.source.axis;
    own.grows = cache.source.growing;
    relation.caches.push_back(own);
  }
  std::set<std::string> given;
  for (const auto& tensor : model.graph().initializer()) given.insert(tensor.name());
  const auto cache_with = [&](const std::string& name) {
    return std::find_if(
        relation.caches.begin(), relation.caches.end(),
        [&](const ManifestCache& cache) { return cache.input == name || cache.output == name; });
  };
  for (const auto& input : model.graph().input()) {
    if (given.contains(input.name())) continue;
    const auto cache = cache_with(input.name());
    relation.inputs.push_back({input.name()});
    if (cache != relation.caches.end()) relation.inputs.back().as = CacheInput{cache->id};
  }
  for (const auto& output : model.graph().output()) {
    const auto cache = cache_with(output.name());
    relation.outputs.push_back({output.name()});
    if (cache != relation.caches.end()) relation.outputs.back().as = CacheOutput{cache->id};
  }
  return relation;
}

class GrowingPair : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    source_ = LoadTestModel(GetParam());
    const auto conversion = Convert(source_, {}, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    relation_ = RelationToItself(*source_.proto, conversion->manifest);
  }

  Model source_;
  Manifest relation_;
};

// An idle node makes another model of it, which is read operator by operator.
TEST_P(GrowingPair, AModelIsProvedToEqualItself) {
  onnx::ModelProto after = *source_.proto;
  onnx::NodeProto* const idle = after.mutable_graph()->add_node();
  idle->set_op_type("Identity");
  idle->add_input(source_.proto->graph().input(0).name());
  idle->add_output("idle");
  const Proof proof = ProveConversion(*source_.proto, after, relation_);
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_GT(proof.facts.size(), 2);
  std::set<std::string> about;
  for (const ProofFact& fact : proof.facts) about.insert(fact.about);
  for (const ManifestCache& cache : relation_.caches) EXPECT_TRUE(about.contains(cache.id));
  EXPECT_TRUE(about.contains("logits"));
}

TEST_P(GrowingPair, NoMutantIsProved) {
  MutantLimits limits;
  limits.many_tokens = true;
  EXPECT_GE(ExpectNoMutantProved(*source_.proto, source_.proto, relation_, limits), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, GrowingPair,
                         testing::Values("llama_optimum", "gpt2_optimum", "bloom_optimum",
                                         "gemma2_optimum", "qwen2_optimum", "gpt_oss_optimum",
                                         "llama_genai_gqa", "llama_genai_gqa_int8",
                                         "llama_attention_opset23", "llama_dynamic_dynamo",
                                         "llama_optimum_merged",
                                         "whisper_decoder_with_past_optimum"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(GrowingPair, TheSameModelNeedsNoReading) {
  const Proof proof = ProveConversion(*source_.proto, *source_.proto, relation_);
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.all().empty());
  // Under another relation it is read: two caches that exchange their places are others.
  Manifest other = relation_;
  std::swap(other.caches[0].output, other.caches[1].output);
  EXPECT_NE(Unproved(ProveConversion(*source_.proto, *source_.proto, other)), "");
}

// The text of a model with one cache, which makes y of x.
std::string SmallModel(int opset, const std::string& statements) {
  return fmt::format(
      "<ir_version: 8, opset_import: [\"\" : {}]>\n"
      "g (float[B,2,S,4] x, float[B,2,P,4] past) => (float[?,?,?,?] y, float[B,2,T,4] present)\n"
      "<int64[1] axis = {{1}}, float low = {{-1}}, float high = {{1}}> {{\n"
      "present = Concat <axis = 2> (past, x)\n{}\n}}",
      opset, statements);
}

std::string UnprovedOfSmall(const std::string& before, const std::string& after) {
  const auto source = ParseModelText(before), result = ParseModelText(after);
  EXPECT_TRUE(source.ok() && result.ok()) << source.status() << result.status();
  if (!source.ok() || !result.ok()) return "";
  ManifestCache cache;
  cache.id = "0.key";
  cache.input = "past";
  cache.output = "present";
  cache.dtype = "float32";
  cache.layout = "BNSD";
  cache.grows = true;
  cache.source = {"past", "present", UpdateKind::kConcat, "BNSD", 2, true, {}};
  Manifest relation;
  relation.caches = {cache};
  relation.inputs = {{"x"}, {"past", CacheInput{"0.key"}}};
  relation.outputs = {{"y"}, {"present", CacheOutput{"0.key"}}};
  return Unproved(ProveConversion(*source, *result, relation));
}

// Attributes that became inputs, and defaults that changed, are read by each model's own opset.
TEST(OperatorSets, OldNodesMeanWhatTheyMeant) {
  const std::string plain = "y = Identity (x)", half = "a, b = Split <axis = 3> (x)\n";
  const auto unproved = [](int before_opset, const std::string& before, int opset,
                           const std::string& after) {
    return UnprovedOfSmall(SmallModel(before_opset, before), SmallModel(opset, after));
  };
  EXPECT_EQ(unproved(13, plain, 10, plain), "");
  EXPECT_NE(unproved(13, plain, 10, "y = Clip <min = -1., max = 1.> (x)"), "");
  EXPECT_EQ(unproved(13, "y = Clip (x, low, high)", 10, "y = Clip <min = -1., max = 1.> (x)"), "");
  EXPECT_EQ(unproved(13, "a = Unsqueeze (x, axis)\ny = Squeeze (a, axis)", 11,
                     "a = Unsqueeze <axes = [1]> (x)\ny = Squeeze <axes = [1]> (a)"),
            "");
  EXPECT_EQ(unproved(13, half + "y = Sub (a, b)", 12, half + "y = Sub (a, b)"), "");
  EXPECT_NE(unproved(13, half + "y = Concat <axis = 3> (a, b, a)", 12,
                     "a, b = Split <axis = 3, split = [1, 3]> (x)\n"
                     "y = Concat <axis = 3> (a, b, a)"),
            "");
  EXPECT_EQ(unproved(21, "y = LogSoftmax <axis = -1> (x)", 12, "y = LogSoftmax <axis = -1> (x)"),
            "");
  EXPECT_NE(unproved(21, "y = LogSoftmax <axis = 2> (x)", 12, "y = LogSoftmax <axis = 2> (x)"), "");
  EXPECT_NE(unproved(21, "y = Hardmax <axis = 1> (x)", 12, "y = Hardmax <axis = 1> (x)"), "");
}

TEST(OperatorSets, BodiesMeanWhatTheyMeant) {
  const auto branch = [](const std::string& statement) {
    return "t = Constant <value = int64[1] {0}> ()\nflag = Cast <to = 9> (t)\ny = If (flag) <"
           "then_branch = a () => (float[?,?,?,?] r) { r = Identity (x) }, "
           "else_branch = b () => (float[?,?,?,?] r) { " +
           statement + " }>";
  };
  EXPECT_NE(UnprovedOfSmall(SmallModel(13, branch("r = Identity (x)")),
                            SmallModel(10, branch("r = Clip <min = -1., max = 1.> (x)"))),
            "");
  EXPECT_NE(UnprovedOfSmall(SmallModel(10, branch("r = Clip <min = -1., max = 1.> (x)")),
                            SmallModel(13, branch("r = Identity (x)"))),
            "");
}

TEST(OperatorSets, WhatOldOperatorsRefuse) {
  const auto unproved = [](int opset, const std::string& statement) {
    return UnprovedOfSmall(SmallModel(21, "y = Identity (x)"), SmallModel(opset, statement));
  };
  // Equal parts below opset 18, and no more parts than there are elements.
  EXPECT_EQ(unproved(17, "a, b = Split <axis = 3> (x)\ny = Identity (x)"), "");
  EXPECT_NE(unproved(17, "a, b = Split <axis = 2> (past)\ny = Identity (x)"), "");
  EXPECT_EQ(unproved(21, "a, b = Split <axis = 3, num_outputs = 2> (x)\ny = Identity (x)"), "");
  EXPECT_NE(unproved(21, "a, b = Split <axis = 2, num_outputs = 2> (past)\ny = Identity (x)"), "");
  // The mask of a Dropout, and operands of other shapes.
  EXPECT_NE(unproved(10, "d, mask = Dropout (x)\ny = Identity (d)"), "");
  EXPECT_NE(unproved(7, "m = Max (x, low)\ny = Identity (x)"), "");
  EXPECT_EQ(unproved(8, "m = Max (x, low)\ny = Identity (x)"), "");
  // A OneHot of no class.
  const std::string classes =
      "p = Shape <start = 2, end = 3> (past)\nvalues = Constant <value = float[2] {0, 1}> ()\n";
  EXPECT_NE(unproved(21, classes + "o = OneHot (axis, p, values)\ny = Identity (x)"), "");
  EXPECT_EQ(unproved(21, classes + "q = Add (p, axis)\no = OneHot (axis, q, values)\n"
                                   "y = Identity (x)"),
            "");
}

// Where the rank is not known, -1 and 3 may be two axes.
TEST(Reductions, AxesAreTheSameWhereTheRankIsNotKnown) {
  const auto reduced = [](const std::string& axes) {
    return SmallModel(17,
                      "dims = Shape (x)\nsome = Cast <to = 9> (dims)\n"
                      "left = Compress <axis = 0> (dims, some)\nopen = Reshape (x, left)\n"
                      "y = ReduceMax <axes = " +
                          axes + "> (open)");
  };
  EXPECT_EQ(UnprovedOfSmall(reduced("[-1]"), reduced("[-1]")).find("has other axes"),
            std::string::npos);
  EXPECT_NE(UnprovedOfSmall(reduced("[-1]"), reduced("[-2]")), "");
}

// What only some steps show.
TEST(GrowingPairs, DifferencesOfFewStepsAreNotProved) {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, kCase));
  ASSERT_TRUE(c.ok()) << c.status();
  const auto before = ParseModelText(c->before);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto conversion = Convert(AsModel(*before), c->options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const Manifest relation = RelationToItself(*before, conversion->manifest);
  const auto unproved = [&](const TextChanges& changes) {
    const auto after = ParseModelText(Changed(c->before, changes));
    EXPECT_TRUE(after.ok()) << after.status();
    return after.ok() ? Unproved(ProveConversion(*before, *after, relation)) : "";
  };
  EXPECT_EQ(unproved({}), "");
  const std::string constants =
      std::string(kConstantsOfSource) + " int64[1] far = {100000}, int64[1] none = {0},";
  const std::string far =
      "rows = Shape <start = 2, end = 3> (past_k)\n  is_far = Greater (rows, far)\n"
      "  more = Cast <to = 1> (is_far)\n";
  EXPECT_NE(
      unproved({{kConstantsOfSource, constants},
                {kLastOfSource, far + "  y0 = Reshape(context4, y_shape)\n  y = Add(y0, more)"}}),
      "");
  const std::string grown = "present_v = Concat<axis = 2>(past_v, v_new)";
  EXPECT_NE(unproved({{kConstantsOfSource, constants},
                      {grown, far + "  grown = Concat<axis = 2>(past_v, v_new)\n"
                                    "  present_v = Add(grown, more)"}}),
            "");
  EXPECT_NE(unproved({{grown, "present_v = Concat<axis = 2>(v_new, past_v)"}}), "");
}

}  // namespace
}  // namespace kvlift
