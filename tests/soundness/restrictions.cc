#include "soundness/restrictions.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace kvlift::soundness {
namespace {

std::optional<int64_t> Number(absl::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Reads "3", "S", "2*S", or "P of the sequence".
std::optional<int64_t> Term(absl::string_view text, const Sizes& sizes) {
  int64_t product = 1;
  for (const absl::string_view factor : absl::StrSplit(text, '*')) {
    if (const auto number = Number(factor)) {
      product *= *number;
    } else if (const auto size = sizes.find(std::string(factor)); size != sizes.end()) {
      product *= size->second;
    } else {
      return std::nullopt;
    }
  }
  return product;
}

// Reads terms joined by " + " or " - ".
std::optional<int64_t> Sum(absl::string_view text, const Sizes& sizes) {
  int64_t sum = 0;
  for (const absl::string_view part : absl::StrSplit(text, " + ")) {
    int64_t sign = 1;
    for (absl::string_view term : absl::StrSplit(part, " - ")) {
      if (absl::ConsumePrefix(&term, "-")) sign = -sign;
      const auto value = Term(term, sizes);
      if (!value) return std::nullopt;
      sum += sign * *value;
      sign = -1;
    }
  }
  return sum;
}

// Removes the place that a condition is about, which follows in brackets.
absl::string_view Bare(const std::string& condition) {
  return absl::string_view(condition).substr(0, condition.find(" ("));
}

bool IsRange(AssumptionKind kind) {
  return kind == AssumptionKind::kIndexRange || kind == AssumptionKind::kIntegerRange ||
         kind == AssumptionKind::kCapacity || kind == AssumptionKind::kOther;
}

}  // namespace

Restrictions RestrictionsOf(const onnx::ModelProto& before, const Manifest& manifest,
                            const Assumptions& assumptions) {
  Restrictions r;
  const auto& inputs = before.graph().input();
  r.reordered = std::any_of(inputs.begin(), inputs.end(),
                            [](const auto& input) { return input.name() == "beams"; });
  r.one_length = manifest.uniform || r.reordered;
  r.one_token_with_past = manifest.limits.new_tokens_with_past == 1;
  const auto require = [&](const std::string& name, std::optional<AllElements> all) {
    if (all) (*all == AllElements::kOnes ? r.ones : r.zeros).push_back(name);
  };
  for (const DroppedInput& input : manifest.dropped) {
    require(input.name, AllOf(input));
    if (IsGiven(input, DroppedValue::kPositions)) r.counted.push_back(input.name);
  }
  for (const ManifestInput& input : manifest.inputs) require(input.name, input.all);
  for (const Precondition& condition : manifest.preconditions) {
    if (condition.code == "KV236" || condition.code == "KV248") r.no_padding = true;
    if (condition.code == "KV303") r.tokens_visible = true;
    if (condition.code == "KV306") r.one_length = true;
    if (condition.code == "KV320") r.one_token_with_past = true;
    if (condition.code != "KV307") continue;
    for (const auto& input : before.graph().input()) {
      if (condition.text.find(input.name()) != std::string::npos) r.counted.push_back(input.name());
    }
  }
  for (const Assumption& a : assumptions.all()) {
    if (IsHidden(a)) r.may_stop = true;
    if (IsRange(a.kind)) r.sizes.push_back(a.condition);
    switch (a.kind) {
      case AssumptionKind::kMaskValues:
        r.binary.push_back(a.subject);
        break;
      case AssumptionKind::kAllOnes:
        r.ones.push_back(a.subject);
        break;
      case AssumptionKind::kAllZeros:
        r.zeros.push_back(a.subject);
        break;
      case AssumptionKind::kPositions:
        r.counted.push_back(a.subject);
        break;
      case AssumptionKind::kOneLength:
        r.one_length = true;
        break;
      case AssumptionKind::kNewTokens:
        r.one_token_with_past = true;
        break;
      case AssumptionKind::kPadding:
        r.no_padding = r.no_padding || a.subject.empty();
        r.tokens_visible = true;
        break;
      case AssumptionKind::kOtherDimension:
        // The masks of this fuzzer have a column for each token of the longest sequence.
        r.one_length = r.no_padding = true;
        break;
      case AssumptionKind::kVisibleKey:
        r.tokens_visible = true;
        break;
      case AssumptionKind::kScoreRange:
        r.tame = true;
        break;
      case AssumptionKind::kDimension:
      case AssumptionKind::kMaskWidth:
        r.sizes.push_back(a.condition);
        break;
      default:
        break;
    }
  }
  return r;
}

Assumptions LedgerOf(const Proof& proof) {
  Assumptions all = proof.assumptions;
  for (const ProofFact& fact : proof.facts) {
    for (const Assumption& given : fact.given) all.Add(given);
  }
  return all;
}

bool IsHidden(const Assumption& entry) {
  // No user can promise what the conversion computes.
  return IsRange(entry.kind) && entry.condition.find("after:") == std::string::npos &&
         Bare(entry.condition).find('[') != absl::string_view::npos;
}

std::optional<bool> Holds(const std::string& condition, const Sizes& sizes) {
  const absl::string_view text = Bare(condition);
  for (const char* relation : {" <= ", " < ", " = "}) {
    const std::vector<absl::string_view> sides = absl::StrSplit(text, relation);
    if (sides.size() < 2) continue;
    for (size_t k = 0; k + 1 < sides.size(); ++k) {
      const auto x = Sum(sides[k], sizes), y = Sum(sides[k + 1], sizes);
      if (!x || !y) return std::nullopt;
      const bool holds = relation[1] == '=' ? *x == *y : relation[2] == '=' ? *x <= *y : *x < *y;
      if (!holds) return false;
    }
    return true;
  }
  return std::nullopt;
}

}  // namespace kvlift::soundness
