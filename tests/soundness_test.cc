// LIBS: soundness
// What the proof calls equal is equal: random pairs, held against the oracle
// (soundness/campaign.h). KVLIFT_FUZZ_SECONDS asks for more than the default number of pairs.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "contract/manifest_json.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "soundness/campaign.h"
#include "soundness/interpretation.h"
#include "soundness/sources.h"

namespace kvlift::soundness {
namespace {

constexpr int kSteps = 200;

// A source without masks of the host, and its conversion.
struct Pair {
  std::shared_ptr<const onnx::ModelProto> before, after;
  Manifest manifest;
};

Pair DrawPair(uint64_t seed) {
  for (;; ++seed) {
    Random random(seed);
    Model source;
    source.proto = std::make_shared<const onnx::ModelProto>(DrawSource(random));
    auto conversion = Convert(source, {}, AllRules());
    if (!conversion.ok() || !conversion->model) continue;
    return {source.proto, std::make_shared<const onnx::ModelProto>(*std::move(conversion->model)),
            conversion->manifest};
  }
}

Decision Decide(const Pair& pair, const Assumptions& assumptions = {}) {
  const auto meaning = Interpretation::Create(pair.before, pair.after, pair.manifest, assumptions);
  EXPECT_TRUE(meaning.ok()) << meaning.status();
  Random random(1);
  return meaning.ok() ? meaning->Decide(kSteps, random) : Decision();
}

std::shared_ptr<onnx::ModelProto> Copy(const std::shared_ptr<const onnx::ModelProto>& model) {
  return std::make_shared<onnx::ModelProto>(*model);
}

TEST(Interpretation, AModelIsItself) {
  int compared = 0;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const Pair pair = DrawPair(1000 * seed);
    // What the host adds to the scores may hide all that the source's own mask shows.
    const auto& inputs = pair.before->graph().input();
    const bool added = std::any_of(inputs.begin(), inputs.end(), [](const auto& input) {
      return input.name() == "mask" && input.type().tensor_type().elem_type() == 1;
    });
    if (added) continue;
    if (!HoldsWhole(ProveConversion(*pair.before, *pair.after, pair.manifest))) continue;
    const Decision decision = Decide(pair);
    EXPECT_FALSE(decision.difference) << decision.difference->where << "\n"
                                      << PrintModelText(*pair.before) << PrintModelText(*pair.after)
                                      << ToJson(pair.manifest).dump();
    compared += decision.judged;
  }
  EXPECT_GT(compared, 1000);
}

TEST(Interpretation, TellsAnotherWeight) {
  Pair pair = DrawPair(1);
  const auto other = Copy(pair.after);
  for (auto& tensor : *other->mutable_graph()->mutable_initializer()) {
    if (tensor.dims_size() == 2 && tensor.float_data_size() > 0) {
      tensor.set_float_data(0, tensor.float_data(0) + 1);
    }
  }
  pair.after = other;
  EXPECT_TRUE(Decide(pair).difference);
}

TEST(Interpretation, TellsAWriteElsewhere) {
  Pair pair = DrawPair(1);
  const auto other = Copy(pair.after);
  Sketch sketch(other.get(), "test", 0);
  const std::string bounded = sketch.Op("Min", {"write_indices", sketch.List({9})});
  for (auto& node : *other->mutable_graph()->mutable_node()) {
    if (node.op_type() == "TensorScatter") node.set_input(2, bounded);
  }
  pair.after = other;
  EXPECT_TRUE(Decide(pair).difference);
}

TEST(Interpretation, TellsACutOutput) {
  Pair pair = DrawPair(1);
  const auto other = Copy(pair.after);
  for (auto& node : *other->mutable_graph()->mutable_node()) {
    if (node.output(0) == "logits") node.set_output(0, "all_logits");
  }
  Sketch sketch(other.get(), "test");
  sketch.Op("Slice", {"all_logits", sketch.List({0}), sketch.List({2}), sketch.List({0})}, {},
            "logits");
  pair.after = other;
  const Decision decision = Decide(pair);
  ASSERT_TRUE(decision.difference);
  EXPECT_NE(decision.difference->where.find("[2, "), std::string::npos);
}

// Returns a drawn pair of which the source divides the left operand of its first product by 0.
Pair WithInfiniteProduct(uint64_t seed) {
  Pair pair = DrawPair(seed);
  const auto other = Copy(pair.before);
  auto* nodes = other->mutable_graph()->mutable_node();
  const auto is_product = [](const onnx::NodeProto& node) { return node.op_type() == "MatMul"; };
  const auto product = std::find_if(nodes->begin(), nodes->end(), is_product);
  EXPECT_NE(product, nodes->end());
  if (product == nodes->end()) return pair;
  const auto at = static_cast<int>(product - nodes->begin());
  Sketch sketch(other.get(), "test", at);
  const std::string infinite =
      sketch.Op("Div", {product->input(0), sketch.Like(onnx::TensorProto::FLOAT, 0)});
  std::find_if(nodes->begin(), nodes->end(), is_product)->set_input(0, infinite);
  pair.before = other;
  return pair;
}

TEST(Interpretation, LeavesOutInfiniteProductsIfTheLedgerDoes) {
  // A guard against NaN hides the difference in some of the pairs.
  Pair pair;
  bool differs = false;
  for (uint64_t seed = 1; seed <= 20 && !differs; ++seed) {
    pair = WithInfiniteProduct(seed);
    differs = Decide(pair).difference.has_value();
  }
  EXPECT_TRUE(differs);
  Assumptions ledger;
  ledger.Add({AssumptionKind::kFinite, "numbers", "is finite", AssumptionSource::kHost});
  const Decision decision = Decide(pair, ledger);
  EXPECT_FALSE(decision.difference);
  EXPECT_EQ(decision.runs, 0);
}

TEST(Soundness, NoPairThatDiffersIsProved) {
  Limits limits;
  limits.folder = KVLIFT_GENERATED_DIR "/soundness";
  const char* seconds = std::getenv("KVLIFT_FUZZ_SECONDS");
  if (seconds != nullptr) {
    limits.seconds = std::strtod(seconds, nullptr);
  } else {
    limits.pairs = 1500;
  }
  const Tally tally = soundness::Run(limits);
  EXPECT_TRUE(tally.failures.empty()) << tally.Text();
  EXPECT_GT(tally.proved, 100) << tally.Text();
  EXPECT_GT(tally.sampled_differ, 0) << tally.Text();
}

TEST(Soundness, CountsWhatItDraws) {
  Limits limits;
  limits.pairs = 100;
  const Tally tally = soundness::Run(limits);
  EXPECT_GE(tally.pairs, 100);
  EXPECT_GT(tally.proved, 0);
  const Tally again = Tally::Parsed(tally.Serialized());
  EXPECT_EQ(again.Text(), tally.Text());
  Tally twice = tally;
  twice.Merge(again);
  EXPECT_EQ(twice.pairs, 2 * tally.pairs);
  EXPECT_EQ(soundness::Run(limits).proved, tally.proved) << "a seed gives the same pairs";
}

}  // namespace
}  // namespace kvlift::soundness
