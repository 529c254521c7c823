// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Rows that move in the source and stay in the conversion are proved to be the same ones.
#include <functional>
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

TextCase Case() {
  auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/shifting_buffer_mask.onnxtxt");
  EXPECT_TRUE(c.ok()) << c.status();
  return *std::move(c);
}

// Returns the unproved facts of the case with changes to both models' texts.
std::string Unproved(
    const TextChanges& before, const TextChanges& after,
    const std::function<void(Manifest*)>& change = [](Manifest*) {}) {
  return Unproved(ProofOfPair("shifting_buffer_mask", before, after, change));
}

TEST(Shifts, AreProved) {
  const TextCase c = Case();
  const auto source = ParseModelText(c.before), result = ParseModelText(*c.after);
  ASSERT_TRUE(source.ok() && result.ok());
  const auto conversion = Convert(AsModel(*source), c.options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const Proof proof = ProveConversion(*source, *result, conversion->manifest);
  EXPECT_EQ(Unproved(proof), "");
  std::vector<std::string> rows;
  for (const ProofFact& fact : proof.facts) {
    if (fact.about == "0.key") rows.push_back(fact.text);
  }
  EXPECT_EQ(rows, (std::vector<std::string>{
                      "slot (t + P + S) mod M holds row t of the source's present, of rows that "
                      "stay",
                      "slot (t + P + S) mod M holds row t of the source's present, of new rows"}));
  EXPECT_EQ(proof.facts.size(), 2 * 2 + 5 + 2);
}

// Each is another model.
TEST(Shifts, OtherPlacesAreNot) {
  const std::string write = "Mod (write_indices, \"/kvlift/constant/ints_8\")";
  const TextChanges changes[] = {
      {{"q_heads, present_k, present_v, \"/kvlift/shared/mask_8\"",
        "q_heads, present_k, present_v, mask"}},
      {{"circular", "linear"}},
      {{write, "Sub (write_indices, write_indices)"}},
      {{write, "Mod (write_indices, \"/kvlift/constant/ints_1\")"}},
      {{"Sub (\"/kvlift/shared/mask_4\", \"/kvlift/shared/mask_5\")",
        "Add (\"/kvlift/shared/mask_4\", \"/kvlift/shared/mask_5\")"}},
      {{"Mul (\"/kvlift/shared/S\", \"/kvlift/constant/ints_-1\")",
        "Mul (\"/kvlift/shared/S\", \"/kvlift/constant/ints_1\")"}},
      {{"TensorScatter <axis: int = 2, mode: string = \"circular\"> (past_v, v_new",
        "TensorScatter <axis: int = 2, mode: string = \"circular\"> (past_v, k_new"}},
      {{"(past_k, k_new,", "(past_v, k_new,"}},
      {{"Expand (\"/kvlift/constant/ints_8\", \"/kvlift/shared/B\")",
        "Expand (\"/kvlift/constant/ints_1\", \"/kvlift/shared/B\")"}},
      {{"q_heads, present_k, present_v", "q_heads, present_v, present_k"}},
      {{"= Attention (q_heads", "= Attention <is_causal: int = 1> (q_heads"}},
      {{"context = Attention (q_heads, present_k, present_v, \"/kvlift/shared/mask_8\"",
        "twice_k = Concat <axis: int = 2> (present_k, present_k)\n"
        "twice_v = Concat <axis: int = 2> (present_v, present_v)\n"
        "context = Attention (q_heads, twice_k, twice_v, \"\""},
       {"[\"/kvlift/layers.0/Attention\"] ", ""}},
  };
  for (const TextChanges& change : changes) {
    EXPECT_NE(Unproved({}, change), "") << change[0].second;
  }
}

// Sources that do not do what the conversion says.
TEST(Shifts, OtherSourcesAreNot) {
  const TextChanges changes[] = {
      {{"Concat<axis = 2>(k_old, k_new)", "Concat<axis = 2>(k_new, k_old)"}},
      {{"Slice(past_k, S1, end1, axes_2)", "Slice(past_v, S1, end1, axes_2)"}},
      {{"Where(mask, scaled, low)", "Where(mask, low, scaled)"}},
  };
  for (const TextChanges& change : changes) {
    EXPECT_NE(Unproved(change, {}), "") << change[0].second;
  }
}

TEST(Shifts, StepsOfOneTokenAreProved) {
  const TextChanges one = {{"[B,S,", "[B,1,"}, {"[B,1,S,8] mask", "[B,1,1,8] mask"}};
  const TextCase c = Case();
  const auto source = ParseModelText(absl::StrReplaceAll(c.before, one));
  ASSERT_TRUE(source.ok()) << source.status();
  const auto conversion = Convert(AsModel(*source), c.options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  EXPECT_EQ(Unproved(ProveConversion(*source, *conversion->model, conversion->manifest)), "");
}

// What counts the tokens has to be seen.
TEST(Shifts, RelationsThatAreWrongAreNotProved) {
  EXPECT_NE(Unproved({}, {},
                     [](Manifest* m) {
                       std::get<ControlInput>(m->inputs.back().as).value =
                           ControlValue::kTotalLength;
                     }),
            "");
  EXPECT_NE(Unproved({}, {},
                     [](Manifest* m) {
                       std::swap(m->caches[0].source.input, m->caches[1].source.input);
                     }),
            "");
  EXPECT_NE(Unproved({}, {}, [](Manifest* m) { m->caches[0].source.kind = UpdateKind::kScatter; }),
            "");
}

}  // namespace
}  // namespace kvlift
