// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Windows of the source are proved to be in the slots of rings, and seen there.
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/models.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kSliding[] = "decomposed_attention_sliding_ring";
constexpr char kWindow[] = "growing_window_ring";

std::set<std::string> TextsAbout(const Proof& proof, const std::string& what) {
  std::set<std::string> texts;
  for (const ProofFact& fact : proof.facts) {
    if (fact.about == what) texts.insert(fact.text);
  }
  return texts;
}

TEST(Rings, AreProved) {
  const Proof proof = ProofOfPair(kSliding, {}, {});
  EXPECT_EQ(Unproved(proof), "");
  const std::string holds = "slot t mod C holds token t as the source's present does, of ";
  EXPECT_EQ(TextsAbout(proof, "0.key"),
            (std::set<std::string>{"while windows fill: " + holds + "rows that stay",
                                   "while windows fill: " + holds + "new rows",
                                   "once windows are full: " + holds + "rows that stay",
                                   "once windows are full: " + holds + "new rows"}));
  const std::set<std::string> attention = TextsAbout(proof, "context");
  for (const char* text :
       {"while windows fill: shows each query the source's keys",
        "while windows fill: shows no query a slot without a row",
        "once windows are full: shows each query the source's keys",
        "once windows are full: shows no query a key that has left, in the source either",
        "once windows are full: shows no query a slot without a row"}) {
    EXPECT_TRUE(attention.contains(text)) << text;
  }
  EXPECT_EQ(attention.size(), 7 + 6);
}

// Returns the unproved facts of the case with changes to its source and its options.
std::string UnprovedWith(const std::string& name, const TextChanges& before,
                         const std::function<void(ConvertOptions*)>& change) {
  auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
  EXPECT_TRUE(c.ok()) << c.status();
  const auto source = ParseModelText(absl::StrReplaceAll(c->before, before));
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return "no model";
  change(&c->options);
  const auto conversion = Convert(AsModel(*source), c->options, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!conversion.ok() || !conversion->model) return "no conversion";
  for (const ManifestCache& cache : conversion->manifest.caches) {
    EXPECT_TRUE(cache.ring.has_value()) << cache.id;
  }
  return Unproved(ProveConversion(*source, *conversion->model, conversion->manifest));
}

TEST(Rings, OfAFixedSizeAreProved) {
  for (const char* name : {kSliding, kWindow}) {
    for (const int64_t slots : {6, 7, 9, 4096}) {
      EXPECT_EQ(UnprovedWith(name, {}, [&](ConvertOptions* o) { o->window_capacity = slots; }), "")
          << name << ' ' << slots;
    }
  }
}

TEST(Rings, StepsOfOneTokenAreProved) {
  for (const char* name : {kSliding, kWindow}) {
    for (const bool fixed : {false, true}) {
      EXPECT_EQ(UnprovedWith(name, {{"[B,S,", "[B,1,"}},
                             [&](ConvertOptions* o) {
                               if (fixed) o->window_capacity = 6;
                             }),
                "")
          << name;
    }
  }
}

TEST(Rings, OneSequenceAndTheTargetOrtAreProved) {
  const auto same = [](ConvertOptions*) {};
  for (const char* name : {kSliding, kWindow}) {
    EXPECT_EQ(UnprovedWith(name, {{"[B,", "[1,"}}, same), "") << name;
    EXPECT_EQ(UnprovedWith(name, {}, [](ConvertOptions* o) { o->target = Target::kOrt; }), "")
        << name;
  }
}

// A window of one token more than the mask shows, or one less, is still the same window.
TEST(Rings, WidthsOfWindowsAreTheSources) {
  const auto same = [](ConvertOptions*) {};
  EXPECT_EQ(UnprovedWith(kSliding, {{"int64 width = {4}", "int64 width = {2}"}}, same), "");
  EXPECT_EQ(UnprovedWith(kSliding, {{"int64 width = {4}", "int64 width = {4096}"}}, same), "");
  EXPECT_NE(Unproved(ProofOfPair(kSliding, {{"int64 width = {4}", "int64 width = {3}"}}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(kSliding, {{"int64 width = {4}", "int64 width = {5}"}}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(kWindow, {{"last5 = {-5}", "last5 = {-4}"}}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(kWindow, {{"last5 = {-5}", "last5 = {-6}"}}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(kWindow,
                                 {{"present_k = Slice(k_full", "present_k = Slice(v_full"}}, {})),
            "");
}

// Each is another model.
TEST(Rings, OtherPlacesAreNot) {
  const std::string write = "= Mod (write_indices, \"/kvlift/shared/window_capacity\")";
  const std::string keys = "q_heads, present_k, present_v, ";
  const TextChanges both[] = {
      {{"circular", "linear"}},
      {{write, "= Sub (write_indices, write_indices)"}},
      {{write, "= Mod (write_indices, \"/kvlift/constant/ints_three\")"},
       {"int64 \"/kvlift/constant/int_0\" =  {0}",
        "int64 \"/kvlift/constant/int_0\" =  {0}, "
        "int64[1] \"/kvlift/constant/ints_three\" = {3}"}},
      {{"(past_k, k_new,", "(past_v, k_new,"}},
      {{"(past_v, v_new,", "(past_v, k_new,"}},
      {{keys, "q_heads, present_v, present_k, "}},
      {{keys, "q_heads, past_k, past_v, "}},
      {{"= Attention (q_heads", "= Attention <is_causal: int = 1> (q_heads"}},
      {{"= Min (\"/kvlift/shared/nonpad_kv_seqlen\", \"/kvlift/shared/window_capacity\")",
        "= Sub (\"/kvlift/shared/window_capacity\", \"/kvlift/shared/S\")"}},
      {{"= Min (\"/kvlift/shared/nonpad_kv_seqlen\"", "= Min (\"/kvlift/shared/S\""}},
  };
  for (const char* name : {kSliding, kWindow}) {
    for (const TextChanges& change : both) {
      EXPECT_NE(Unproved(ProofOfPair(name, {}, change)), "") << name << ": " << change[0].second;
    }
  }
  const TextChanges sliding[] = {
      {{"ints_-3\" =  {-3}", "ints_-3\" =  {-2}"}},
      {{"ints_-3\" =  {-3}", "ints_-3\" =  {-4}"}},
      {{"ints_3\" =  {3}", "ints_3\" =  {2}"}},
      {{"ints_3\" =  {3}", "ints_3\" =  {4}"}},
      {{keys + "\"/kvlift/shared/mask_17\"", keys + "\"/kvlift/shared/mask_16\""}},
      {{keys + "\"/kvlift/shared/mask_17\"", keys + "\"/kvlift/shared/mask_10\""}},
      {{keys + "\"/kvlift/shared/mask_17\"", keys + "\"\""}},
      {{"Mul (\"/kvlift/shared/window_capacity\"", "Mul (\"/kvlift/shared/S\""}},
  };
  for (const TextChanges& change : sliding) {
    EXPECT_NE(Unproved(ProofOfPair(kSliding, {}, change)), "") << change[0].second;
  }
  const TextChanges window[] = {
      {{"ints_-5\" =  {-5}", "ints_-5\" =  {-4}"}},
      {{"ints_5\" =  {5}", "ints_5\" =  {6}"}},
      {{"scalar_5\" =  {5}", "scalar_5\" =  {6}"}},
      {{keys + "\"/kvlift/shared/mask_9\"", keys + "\"\""}},
  };
  for (const TextChanges& change : window) {
    EXPECT_NE(Unproved(ProofOfPair(kWindow, {}, change)), "") << change[0].second;
  }
  // A smaller bound counts slots from in front of the first row, where no row is visible: a step
  // has at most as many tokens as slots behind the five rows.
  for (const char* bound : {"ints_5\" =  {4}", "ints_5\" =  {3}"}) {
    EXPECT_EQ(Unproved(ProofOfPair(kWindow, {}, {{"ints_5\" =  {5}", bound}})), "") << bound;
  }
}

// What a ring is has to be what the source keeps.
TEST(Rings, RelationsThatAreWrongAreNotProved) {
  for (const char* name : {kSliding, kWindow}) {
    const std::function<void(Manifest*)> changes[] = {
        [](Manifest* m) {
          std::get<ControlInput>(m->inputs.back().as).value = ControlValue::kTotalLength;
        },
        [](Manifest* m) { std::swap(m->caches[0].source.input, m->caches[1].source.input); },
        [](Manifest* m) { std::swap(m->caches[0].source.output, m->caches[1].source.output); },
        [](Manifest* m) { m->caches[0].ring.reset(); },
        [](Manifest* m) { m->caches[0].ring->window -= 1; },
        [](Manifest* m) { m->caches[0].ring->window = m->caches[1].ring->window -= 1; },
        [](Manifest* m) { m->caches[0].source.growing = m->caches[1].source.growing = false; },
    };
    for (size_t k = 0; k < std::size(changes); ++k) {
      EXPECT_NE(Unproved(ProofOfPair(name, {}, {}, changes[k])), "") << name << ' ' << k;
    }
  }
}

// A ring that has no slot for a new token holds no step.
TEST(Rings, NoStepFitsARingAsLargeAsItsWindow) {
  const std::string extent = "window_capacity,4]";
  for (const int slots : {3, 2}) {
    const Proof proof = ProofOfPair(kSliding, {}, {{extent, fmt::format("{},4]", slots)}});
    EXPECT_NE(Unproved(proof).find("what its slots hold is not seen"), std::string::npos);
  }
  EXPECT_EQ(Unproved(ProofOfPair(kSliding, {}, {{extent, "4,4]"}})), "");
}

// A decoder of layers with windows and without: rings and buffers of one write index.
TEST(Rings, ADecoderOfBothKindsOfLayers) {
  const Model source = LoadTestModel("gemma2_optimum");
  for (const Target target : {Target::kSpec, Target::kOrt}) {
    ConvertOptions options;
    options.window = WindowForm::kCircular;
    options.target = target;
    const auto conversion = Convert(source, options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    int rings = 0;
    for (const ManifestCache& cache : conversion->manifest.caches) rings += cache.ring ? 1 : 0;
    EXPECT_EQ(rings, 2);
    EXPECT_EQ(conversion->manifest.caches.size(), 4);
    const Proof proof = ProveConversion(*source.proto, *conversion->model, conversion->manifest);
    EXPECT_EQ(Unproved(proof), "");
    EXPECT_FALSE(TextsAbout(proof, "logits").empty());
  }
}

}  // namespace
}  // namespace kvlift
