// LIBS: proof rewrites verify
// SRCS: support/case_file.cc support/models.cc
// Layers that are the same are proved once; what is said of them is what proving each would say.
#include <set>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "proof/folding.h"
#include "proof/opset13.h"
#include "proof/prover.h"
#include "rewrite/convert.h"
#include "support/case_file.h"
#include "support/models.h"
#include "verify/mutant_maker.h"
#include "verify/mutants.h"

namespace kvlift {
namespace {

// Numbers of a weight [8, 8], other ones for each seed.
std::string Weight(const std::string& name, int seed) {
  std::string text = fmt::format("float[8,8] {} = {{", name);
  for (int k = 0; k < 64; ++k) {
    text += fmt::format("{}0.{}", k == 0 ? "" : ", ", 1 + (k * 7 + seed * 13) % 97);
  }
  return text + "}";
}

struct Decoder {
  int layers = 4;
  int other_scale = -1;    // the layer with another scale
  int other_bound = -1;    // the layer that sees one key less
  int shared_weight = -1;  // the layer whose keys and values have one weight
  bool same_numbers = false;
};

std::string Text(const Decoder& d) {
  std::string inputs, outputs, weights, nodes;
  for (int i = 0; i < d.layers; ++i) {
    inputs += fmt::format(", float[B,2,P,4] past_k{0}, float[B,2,P,4] past_v{0}", i);
    outputs += fmt::format(
        ", float[B,2,\"P + S\",4] present_k{0}, float[B,2,\"P + S\",4] present_v{0}", i);
    for (const char* which : {"q", "k", "v", "o"}) {
      weights += fmt::format(
          ",\n  {}", Weight(fmt::format("w{}{}", which, i), d.same_numbers ? 0 : i * 4 + which[0]));
    }
    nodes += fmt::format(R"(
  q{0} = MatMul(x{0}, wq{0})
  k{0} = MatMul(x{0}, wk{0})
  v{0} = MatMul(x{0}, {1})
  q4_{0} = Reshape(q{0}, heads)
  k4_{0} = Reshape(k{0}, heads)
  v4_{0} = Reshape(v{0}, heads)
  qh{0} = Transpose<perm = [0, 2, 1, 3]>(q4_{0})
  kh{0} = Transpose<perm = [0, 2, 1, 3]>(k4_{0})
  vh{0} = Transpose<perm = [0, 2, 1, 3]>(v4_{0})
  present_k{0} = Concat<axis = 2>(past_k{0}, kh{0})
  present_v{0} = Concat<axis = 2>(past_v{0}, vh{0})
  kt{0} = Transpose<perm = [0, 1, 3, 2]>(present_k{0})
  product{0} = MatMul(qh{0}, kt{0})
  scores{0} = Mul(product{0}, {2})
  masked{0} = Add(scores{0}, {3})
  probs{0} = Softmax<axis = -1>(masked{0})
  context{0} = MatMul(probs{0}, present_v{0})
  c4_{0} = Transpose<perm = [0, 2, 1, 3]>(context{0})
  c{0} = Reshape(c4_{0}, columns)
  o{0} = MatMul(c{0}, wo{0})
  x{4} = Add(x{0}, o{0})
)",
                         i, fmt::format("w{}{}", i == d.shared_weight ? "k" : "v", i),
                         i == d.other_scale ? "other_scale" : "scale",
                         i == d.other_bound ? "other_mask" : "mask", i + 1);
  }
  return fmt::format(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (float[B,S,8] x0{}) => (float[B,S,8] y{})
<
  int64[4] heads = {{0, 0, 2, 4}}, int64[3] columns = {{0, 0, 8}},
  float scale = {{0.5}}, float other_scale = {{0.25}}, float low = {{-inf}}, float none0 = {{0}},
  int64 axis_s = {{2}}, int64 zero = {{0}}, int64 one = {{1}},
  int64[1] axes_1 = {{1}}, int64[1] axes_0 = {{0}}{}
>
{{
  past_dims = Shape(past_k0)
  p = Gather(past_dims, axis_s)
  new_dims = Shape(x0)
  s = Gather(new_dims, one)
  t = Add(p, s)
  rows = Range(p, t, one)
  cols = Range(zero, t, one)
  rows2 = Unsqueeze(rows, axes_1)
  cols2 = Unsqueeze(cols, axes_0)
  sees = LessOrEqual(cols2, rows2)
  mask = Where(sees, none0, low)
  before2 = Sub(rows2, one)
  window = Greater(cols2, before2)
  sees_few = And(sees, window)
  other_mask = Where(sees_few, none0, low)
{}
  y = Relu(x{})
}})",
                     inputs, outputs, weights, nodes, d.layers);
}

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
  return Listed(ProveCase(c.source, after, c.relation, {}, {}));
}

std::string Folded(const Converted& c, const onnx::ModelProto& after) {
  return Listed(ProveConversion(c.source, after, c.relation));
}

// The first layer has the cache that the mask's size is read from; the others are the same.
TEST(Folding, LayersThatAreTheSameAreProvedOnce) {
  const Converted c = ConvertText(Text({}));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 2, 2}));
  const std::string whole = Whole(c, *c.after);
  EXPECT_FALSE(SaysOtherwise(whole)) << whole;
  EXPECT_EQ(Folded(c, *c.after), whole);
}

TEST(Folding, WeightsThatAreTheSameAreLayersToo) {
  Decoder d;
  d.same_numbers = true;
  const Converted c = ConvertText(Text(d));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 2, 2}));
  EXPECT_EQ(Folded(c, *c.after), Whole(c, *c.after));
}

// A scale, a bound of the mask: that layer is proved by itself, and those around it are folded.
TEST(Folding, ALayerWithAnotherConstantIsProvedByItself) {
  for (const bool scale : {true, false}) {
    Decoder d;
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

// One weight in layer 1 where the others have two: what is proved of it need not hold of them.
TEST(Folding, ALayerThatSharesAWeightStandsForNoneThatDoesNot) {
  Decoder d;
  d.shared_weight = 1;
  const Converted c = ConvertText(Text(d));
  EXPECT_EQ(Copies(c), (std::multiset<size_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(Folded(c, *c.after), Whole(c, *c.after));
}

TEST(Folding, OfMutantsTheSameIsSaid) {
  const Converted c = ConvertText(Text({}));
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
  const Converted c = ConvertText(Text({}));
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
  Converted c = ConvertText(Text({}));
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
  EXPECT_EQ(Folded(c, *conversion->model), Whole(c, *conversion->model));
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
