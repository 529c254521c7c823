// LIBS: verify rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Models of several layers are judged layer by layer: which pieces they are cut into, which of
// these are the same, and what is said of them.
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/spans.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/half_model.h"
#include "support/layered_decoder.h"
#include "support/models.h"
#include "verify/judge/verify.h"
#include "verify/layers/cuts.h"
#include "verify/layers/layer_pieces.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutants.h"
#include "verify/steps/decisions.h"
#include "verify/variants/drawn_weights.h"
#include "verify/variants/weight_places.h"

namespace kvlift {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Pair {
  Model before, after;
  Manifest relation;
};

Pair Converted(const Model& source) {
  auto conversion = Convert(source, {}, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!conversion.ok() || !conversion->model) return {};
  return {source, AsModel(*std::move(conversion->model)), conversion->manifest};
}

Pair ConvertedText(const LayeredDecoder& d, int32_t type = onnx::TensorProto::FLOAT) {
  const auto source = ParseModelText(Text(d));
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return {};
  return Converted(AsModel(type == onnx::TensorProto::FLOAT ? *source : InHalf(*source, type)));
}

// Names of the first piece of each class, with those of the others: "layer 1: layer 2, layer 3".
std::vector<std::string> ClassesOf(const Pair& pair) {
  const auto theirs = Graph::Build(pair.before.proto), mine = Graph::Build(pair.after.proto);
  if (!theirs.ok() || !mine.ok()) return {"a graph cannot be built"};
  const auto classes = CutIntoPieces(pair.before, *theirs, pair.after, *mine, pair.relation);
  if (!classes.ok()) return {std::string(classes.status().message())};
  std::vector<std::string> names;
  for (const PieceClass& c : *classes) {
    std::string text = c.piece.name;
    if (c.same_nodes) text += " (same nodes)";
    if (!c.others.empty()) text += fmt::format(": {}", fmt::join(c.others, ", "));
    names.push_back(std::move(text));
  }
  return names;
}

VerifyReport Judge(const Pair& pair, bool whole = false) {
  VerifyOptions options;
  options.whole = whole;
  const auto report = Verify(pair.before, pair.after, pair.relation, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport();
}

TEST(Cuts, AreTheHiddenStatesBetweenLayers) {
  const Pair pair = ConvertedText({});
  const auto before = Graph::Build(pair.before.proto), after = Graph::Build(pair.after.proto);
  ASSERT_TRUE(before.ok() && after.ok());
  // What enters the first layer is an input of the models.
  EXPECT_THAT(FindCuts(*before, *after, pair.relation),
              ElementsAre(Cut{"x1"}, Cut{"x2"}, Cut{"x3"}, Cut{"x4"}));
}

TEST(Cuts, DoNotDependOnNodesThatNothingReads) {
  LayeredDecoder d;
  d.unread = true;
  EXPECT_EQ(ClassesOf(ConvertedText(d)), ClassesOf(ConvertedText({})));
}

TEST(Cuts, OfOneLayerThereAreNone) {
  LayeredDecoder d;
  d.layers = 1;
  EXPECT_THAT(ClassesOf(ConvertedText(d)), ElementsAre("no layers are found"));
}

TEST(Pieces, LayersThatDifferInWeightsAloneAreOneClass) {
  // The weights of the first layer stand beside an input of the model, not beside hidden states.
  EXPECT_THAT(ClassesOf(ConvertedText({})),
              ElementsAre("layer 0", "layer 1: layer 2, layer 3", "rest (same nodes)"));
}

TEST(Pieces, ALayerWithAScaleOrAMaskOfItsOwnIsAClassOfItsOwn) {
  LayeredDecoder scale, bound;
  scale.other_scale = 2;
  bound.other_bound = 2;
  for (const LayeredDecoder& d : {scale, bound}) {
    EXPECT_THAT(ClassesOf(ConvertedText(d)),
                ElementsAre("layer 0", "layer 1: layer 3", "layer 2", "rest (same nodes)"));
  }
}

// One weight for keys and values, where the others have two.
TEST(Pieces, ALayerThatSharesAWeightIsAClassOfItsOwn) {
  LayeredDecoder d;
  d.shared_weight = 3;
  EXPECT_THAT(ClassesOf(ConvertedText(d)),
              ElementsAre("layer 0", "layer 1: layer 2", "layer 3", "rest (same nodes)"));
}

// Layer 2 of the conversion multiplies by a weight that the source does not have: it is not judged
// by what is said of layer 1.
TEST(Pieces, ALayerOfTheConversionWithAnotherWeightIsAClassOfItsOwn) {
  Pair pair = ConvertedText({});
  onnx::ModelProto changed = *pair.after.proto;
  for (auto& tensor : *changed.mutable_graph()->mutable_initializer()) {
    if (tensor.name() != "wk2") continue;
    const auto bytes = InlineBytes(tensor);
    ASSERT_TRUE(bytes.ok());
    tensor.clear_float_data();
    tensor.set_raw_data(*bytes);
    (*tensor.mutable_raw_data())[23] = 0x40;
  }
  pair.after = AsModel(changed);
  EXPECT_THAT(ClassesOf(pair),
              ElementsAre("layer 0", "layer 1: layer 3", "layer 2", "rest (same nodes)"));
  EXPECT_EQ(Judge(pair).verdict, VerdictKind::kDifferent);
}

TEST(Verdict, IsTheSameByLayerAndWhole) {
  LayeredDecoder scale, bound;
  scale.other_scale = 2;
  bound.other_bound = 1;
  for (const LayeredDecoder& d : {LayeredDecoder(), scale, bound}) {
    const Pair pair = ConvertedText(d);
    const VerifyReport cut = Judge(pair), whole = Judge(pair, /*whole=*/true);
    EXPECT_EQ(cut.verdict, VerdictKind::kEqual) << cut.reason;
    EXPECT_EQ(whole.verdict, VerdictKind::kEqual) << whole.reason;
    EXPECT_FALSE(cut.layers.empty()) << cut.whole_because;
    EXPECT_THAT(whole.layers, IsEmpty());
    EXPECT_EQ(cut.proof.facts.size(), whole.proof.facts.size());
  }
}

// A mutant of one layer, whichever it is, is never judged by another layer.
TEST(Verdict, OfNoMutantOfAnyLayerIsEqual) {
  for (const int32_t type : {onnx::TensorProto::FLOAT, onnx::TensorProto::FLOAT16}) {
    const Pair pair = ConvertedText({}, type);
    const auto graph = Graph::Build(pair.after.proto);
    ASSERT_TRUE(graph.ok());
    int tried = 0;
    for (const Mutant& mutant : MakeMutants(*graph, pair.relation, {})) {
      const bool may_be_equal = mutant.guard || !mutant.equivalent.empty() ||
                                mutant.equivalent_if || mutant.detector != Detector::kPlans;
      if (may_be_equal) continue;
      Pair wrong = pair;
      wrong.after = AsModel(*BuildMutant(*graph, mutant));
      VerifyOptions options;
      options.controls = false;
      const auto report = Verify(wrong.before, wrong.after, wrong.relation, options);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_NE(report->verdict, VerdictKind::kEqual) << mutant.name;
      EXPECT_THAT(report->layers, IsEmpty()) << mutant.name;
      ++tried;
    }
    EXPECT_GE(tried, 30);
  }
}

// What a layer says of the relation is what the whole relation says.
TEST(Verdict, ARelationOfAnotherSourceIsNoneOfItsLayers) {
  Pair pair = ConvertedText({});
  pair.relation.mode = BufferMode::kCircular;
  const VerifyReport report = Judge(pair);
  EXPECT_NE(report.verdict, VerdictKind::kEqual);
  EXPECT_THAT(report.layers, IsEmpty());
}

class HalfTypes : public testing::TestWithParam<int32_t> {};

TEST_P(HalfTypes, StructureIsJudgedInFloat32) {
  for (const int layers : {1, 2, 4}) {
    LayeredDecoder d;
    d.layers = layers;
    const VerifyReport report = Judge(ConvertedText(d, GetParam()));
    EXPECT_EQ(report.verdict, VerdictKind::kEqual) << layers << ": " << report.reason;
    EXPECT_TRUE(report.half_types.computed_in_float32);
    EXPECT_FALSE(report.half_types.plans.empty());
    for (const ControlResult& control : report.controls) {
      EXPECT_FALSE(control.missed()) << control.mutant;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTypes,
                         testing::Values(onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16),
                         [](const auto& type) {
                           return type.param == onnx::TensorProto::FLOAT16 ? "Float16" : "Bfloat16";
                         });

// A comparison that sees differences in float16 only.
Comparison DiffersInHalf(const exec::View& reference, const exec::View& actual, int source_nodes,
                         const exec::View& slack) {
  Comparison c = Compare(reference, actual, source_nodes, slack);
  if (reference.type == onnx::TensorProto::FLOAT16 && reference.size() > 0) {
    c.difference = Difference{{0}, 1, 2, "2 for 1"};
  }
  return c;
}

TEST(HalfTypesAlone, WhatDiffersInThemOnlyIsRounding) {
  const Pair pair = ConvertedText({}, onnx::TensorProto::FLOAT16);
  VerifyOptions options;
  options.compare = DiffersInHalf;
  const auto report = Verify(pair.before, pair.after, pair.relation, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->verdict, VerdictKind::kInconclusive);
  EXPECT_THAT(report->reason, HasSubstr("KV413"));
}

// A row that one model chooses and the other does not is no difference if rounding turns the
// choice.
TEST(HalfTypesAlone, ChoicesThatRoundingTurnsAreCounted) {
  LayeredDecoder d;
  d.router = true;
  const Pair pair = ConvertedText(d, onnx::TensorProto::BFLOAT16);
  VerifyOptions options;
  options.controls = false;
  const auto report = Verify(pair.before, pair.after, pair.relation, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->verdict, VerdictKind::kEqual) << report->reason;
  EXPECT_GT(report->half_types.unlike, 0);
  EXPECT_LT(report->half_types.unlike, report->half_types.decisions / 2);
}

// The values of a TopK are those that the source chose, of the converted model's own numbers.
TEST(Decisions, OfTheSourceAreFollowed) {
  const auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "g (float[1,1] x) => (float[1,2] best, bool[1,3] low)\n"
      "<float[1,3] w = {1, 3, 2}, int64[1] k = {2}, float two = {2}> {\n"
      "  y = MatMul(x, w)\n best, chosen = TopK(y, k)\n low = Less(y, two)\n}");
  ASSERT_TRUE(model.ok()) << model.status();
  const Model plain = AsModel(*model);
  const auto graph = Graph::Build(plain.proto);
  ASSERT_TRUE(graph.ok());
  Decisions decisions(*graph, *graph);
  const auto shown = decisions.WithDecisionsAsOutputs(plain),
             following = decisions.Following(plain);
  ASSERT_TRUE(shown.ok() && following.ok());
  const auto run = [](const Model& m, float x, exec::Feeds feeds) {
    auto runner = Runner::Create(m.proto, "", {}, exec::AliasMode::kOff, 1);
    EXPECT_TRUE(runner.ok()) << runner.status();
    feeds["x"] = exec::Tensor::Zeros(onnx::TensorProto::FLOAT, {1, 1});
    feeds["x"].span<float>()[0] = x;
    auto step = runner->Step(feeds);
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  };
  const exec::Feeds fed = decisions.FeedsOf(run(*shown, 1, {}));
  const exec::Fetches own = run(*following, -1, fed);
  // The source chose 1 and 2 among -1, -3 and -2; and 1 < 2 alone holds.
  EXPECT_THAT(own.at("best").span<float>(), ElementsAre(-3, -2));
  EXPECT_THAT(own.at("low").span<bool>(), ElementsAre(true, false, false));
  Plan plan;
  plan.steps.resize(1);
  Record record;
  record.plan = &plan;
  std::vector<exec::Fetches> all;
  all.push_back(run(*following, -1, fed));
  decisions.Count(record, {fed}, all);
  EXPECT_EQ(decisions.made(), 4);
  EXPECT_EQ(decisions.unlike(), 3);
}

TEST(DrawnWeights, AreTheSameForTheSamePlace) {
  const auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "g (float[B,64] x) => (float[B,32] y) <float[64,32] w = {0.5}> { y = MatMul (x, w) }");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto with = [&](const std::string& offset, int32_t type) {
    onnx::ModelProto other = *model;
    onnx::TensorProto& weight = *other.mutable_graph()->mutable_initializer(0);
    weight.clear_float_data();
    weight.clear_raw_data();
    weight.set_data_type(type);
    weight.set_data_location(onnx::TensorProto::EXTERNAL);
    const std::pair<std::string, std::string> where[] = {{"location", "absent.data"},
                                                         {"offset", offset}};
    for (const auto& [key, value] : where) {
      auto* entry = weight.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return AsModel(other);
  };
  const DrawnWeights weights(5);
  const auto are_same = [&](const std::string& offset, const std::string& other) {
    const auto drawn =
        weights.In(with(offset, onnx::TensorProto::FLOAT), with(other, onnx::TensorProto::FLOAT));
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    const RawData a = RawDataOf(drawn->first.proto->graph().initializer(0));
    const RawData b = RawDataOf(drawn->second.proto->graph().initializer(0));
    EXPECT_EQ(a.bytes.size(), 64 * 32 * sizeof(float));
    return a.bytes == b.bytes;
  };
  EXPECT_TRUE(are_same("0", "0"));
  EXPECT_FALSE(are_same("0", "8192"));
  const auto indices =
      weights.In(with("0", onnx::TensorProto::INT64), with("0", onnx::TensorProto::INT64));
  EXPECT_EQ(indices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(indices.status().message()), HasSubstr("w holds int64"));
}

// A model with one weight w [2, 2]: stored, or absent at this offset of this file.
Model OfWeight(const std::string& location, int offset, float stored = 0) {
  auto model = ParseModelText(
      fmt::format("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                  "g (float[B,2] x) => (float[B,2] y) <float[2,2] w = {{{0}, {0}, {0}, {0}}}> "
                  "{{ y = MatMul (x, w) }}",
                  stored + 0.5F));
  EXPECT_TRUE(model.ok()) << model.status();
  if (location.empty()) return AsModel(*model);
  onnx::TensorProto& weight = *model->mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.clear_raw_data();
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  const std::pair<std::string, std::string> where[] = {{"location", location},
                                                       {"offset", fmt::format("{}", offset)}};
  for (const auto& [key, value] : where) {
    auto* entry = weight.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  return AsModel(*model);
}

// Whether PairAbsentWeights takes the weights of two models to be the same.
bool ArePaired(const Model& before, const Model& after) {
  const auto paired = PairAbsentWeights(before, after);
  EXPECT_TRUE(paired.ok()) << paired.status();
  return paired.ok() && paired->before.proto->graph().initializer(0).SerializeAsString() ==
                            paired->after.proto->graph().initializer(0).SerializeAsString();
}

TEST(AbsentWeights, OfOneNameAreTheSameUnlessTheirPlacesDiffer) {
  EXPECT_TRUE(ArePaired(OfWeight("a", 0), OfWeight("a", 0)));
  EXPECT_FALSE(ArePaired(OfWeight("a", 0), OfWeight("a", 64)));
  // The file was copied.
  EXPECT_TRUE(ArePaired(OfWeight("a", 64), OfWeight("b", 64)));
  EXPECT_FALSE(ArePaired(OfWeight("a", 0), OfWeight("b", 64)));
  // One model stores the numbers.
  EXPECT_TRUE(ArePaired(OfWeight("a", 0), OfWeight("", 0)));
  EXPECT_TRUE(ArePaired(OfWeight("", 0), OfWeight("a", 0)));
  // Both do.
  EXPECT_FALSE(ArePaired(OfWeight("", 0), OfWeight("", 0, 1)));
}

TEST(AbsentWeights, ThatAreTakenToBeTheSameAreInTheLedger) {
  const auto assumed = [](const Model& before, const Model& after) {
    const auto paired = PairAbsentWeights(before, after);
    EXPECT_TRUE(paired.ok()) << paired.status();
    return paired.ok() && paired->assumed ? paired->assumed->condition : "";
  };
  EXPECT_EQ(assumed(OfWeight("a", 0), OfWeight("a", 0)), "");
  EXPECT_EQ(assumed(OfWeight("a", 0), OfWeight("a", 64)), "");
  EXPECT_THAT(assumed(OfWeight("a", 0), OfWeight("", 0)), HasSubstr("absent: w"));
  EXPECT_THAT(assumed(OfWeight("a", 0), OfWeight("b", 0)), HasSubstr("absent: w"));
}

TEST(DrawnWeights, AreReadAsWords) {
  EXPECT_EQ(*ReadWeights("stored"), std::nullopt);
  EXPECT_EQ(*ReadWeights("random"), 1);
  EXPECT_EQ(*ReadWeights("random:17"), 17);
  for (const char* words : {"random:", "random:-1", "random:x", "drawn"}) {
    EXPECT_FALSE(ReadWeights(words).ok()) << words;
  }
}

class BundledHalf : public testing::TestWithParam<const char*> {};

TEST_P(BundledHalf, IsEqualInFloat16) {
  const Model source = LoadTestModel(GetParam());
  const Pair pair = Converted(AsModel(InHalf(*source.proto, onnx::TensorProto::FLOAT16)));
  if (pair.before.proto == nullptr) return;
  const VerifyReport report = Judge(pair);
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << report.reason;
  EXPECT_TRUE(report.half_types.computed_in_float32);
}

INSTANTIATE_TEST_SUITE_P(Models, BundledHalf,
                         testing::Values("llama_optimum", "gpt2_optimum", "gemma2_optimum",
                                         "qwen2_optimum", "bloom_optimum", "llama_static_ts"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace kvlift
