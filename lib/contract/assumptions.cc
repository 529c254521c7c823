#include "contract/assumptions.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kvlift {

namespace {

struct KindWord {
  AssumptionKind kind;
  std::string_view word;
};
constexpr KindWord kKinds[] = {
    {AssumptionKind::kMaskValues, "mask_values"},
    {AssumptionKind::kAllOnes, "ones"},
    {AssumptionKind::kAllZeros, "zeros"},
    {AssumptionKind::kPositions, "positions"},
    {AssumptionKind::kOneLength, "uniform"},
    {AssumptionKind::kMaskWidth, "mask_width"},
    {AssumptionKind::kDimension, "dimension"},
    {AssumptionKind::kTreeMask, "tree_mask"},
    {AssumptionKind::kCapacity, "capacity"},
    {AssumptionKind::kNewTokens, "new_tokens"},
    {AssumptionKind::kIntegerRange, "integer_range"},
    {AssumptionKind::kIndexRange, "index_range"},
    {AssumptionKind::kFinite, "finite"},
    {AssumptionKind::kScoreRange, "score_range"},
    {AssumptionKind::kVisibleKey, "visible_key"},
    {AssumptionKind::kPadding, "padding"},
    {AssumptionKind::kAlias, "alias"},
    {AssumptionKind::kSequences, "sequences"},
    {AssumptionKind::kPastFlag, "past_flag"},
    {AssumptionKind::kOther, "other"},
};

struct SourceWord {
  AssumptionSource source;
  std::string_view word;
};
constexpr SourceWord kSources[] = {
    {AssumptionSource::kManifest, "manifest"},
    {AssumptionSource::kPlan, "plan"},
    {AssumptionSource::kHost, "host"},
    {AssumptionSource::kOperator, "operator"},
};

}  // namespace

std::string_view WordOf(AssumptionKind kind) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const KindWord& k) { return k.kind == kind; });
  return found == std::end(kKinds) ? "other" : found->word;
}

std::string_view WordOf(AssumptionSource source) {
  const auto* found = std::find_if(std::begin(kSources), std::end(kSources),
                                   [&](const SourceWord& s) { return s.source == source; });
  return found == std::end(kSources) ? "host" : found->word;
}

std::optional<AssumptionKind> AssumptionKindOf(std::string_view word) {
  for (const KindWord& known : kKinds) {
    if (known.word == word) return known.kind;
  }
  return std::nullopt;
}

std::optional<AssumptionSource> AssumptionSourceOf(std::string_view word) {
  for (const SourceWord& known : kSources) {
    if (known.word == word) return known.source;
  }
  return std::nullopt;
}

void Assumptions::Add(Assumption assumption) {
  if (std::find(all_.begin(), all_.end(), assumption) != all_.end()) return;
  all_.push_back(std::move(assumption));
}

void Assumptions::Add(const Assumptions& others) {
  for (const Assumption& other : others.all()) Add(other);
}

bool Assumptions::Has(AssumptionKind kind, std::string_view subject) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Assumption& a) { return a.kind == kind && a.subject == subject; });
}

}  // namespace kvlift
