// Pairs of a small decoder and its conversion, with changes to the text of either.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/models.h"

namespace kvlift {

// The decoder of most tests, and the lines of its source and its conversion that tests change: the
// last statement, and a constant behind which others can be added.
inline constexpr char kCase[] = "decomposed_attention_padding";
inline constexpr char kLast[] = "y = Reshape (context4, y_shape)";
inline constexpr char kLastOfSource[] = "y = Reshape(context4, y_shape)";
inline constexpr char kConstants[] = "int64[1] \"/kvlift/constant/ints_0\" =  {0},";
inline constexpr char kConstantsOfSource[] = "int64[3] y_shape = {0, 0, 16},";

using TextChanges = std::vector<std::pair<std::string, std::string>>;

// Returns the facts that are not proved, one per line; empty if all are.
inline std::string Unproved(const Proof& proof) {
  std::string text = proof.not_tried;
  for (const ProofFact& fact : proof.facts) {
    if (!fact.holds()) text += fmt::format("{}: {}: {}\n", fact.about, fact.text, fact.why_not);
  }
  return text;
}

inline std::string Changed(std::string text, const TextChanges& changes) {
  for (const auto& [from, to] : changes) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  return text;
}

// Proves testdata/rewrites/NAME.onnxtxt with these changes to both texts. The manifest is that of
// the conversion without the changes, edited by `change`.
inline Proof ProofOfPair(
    const std::string& name, const TextChanges& before, const TextChanges& after,
    const std::function<void(Manifest*)>& change = [](Manifest*) {}) {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
  EXPECT_TRUE(c.ok()) << c.status();
  if (!c.ok()) return {};
  const auto source = ParseModelText(Changed(c->before, before));
  const auto result = ParseModelText(Changed(*c->after, after));
  EXPECT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(result.ok()) << result.status();
  const auto conversion = Convert(AsModel(*ParseModelText(c->before)), c->options, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!source.ok() || !result.ok() || !conversion.ok()) return {};
  Manifest relation = conversion->manifest;
  change(&relation);
  return ProveConversion(*source, *result, relation);
}

}  // namespace kvlift
