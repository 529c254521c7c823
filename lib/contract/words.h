// The table of words that the JSON of manifests and reports uses for the kinds of contract/kinds.h
// and contract/assumptions.h. Reader, writer, documents of the tools and the tests of docs/schema
// share it; no other code compares such words.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "contract/assumptions.h"
#include "contract/kinds.h"

namespace kvlift {

template <typename Kind>
struct KindWord {
  Kind kind;
  std::string_view word;
};

// Returns the words of an enumeration: each enumerator and each word once, in the order in which
// docs/schema lists them.
template <typename Kind>
absl::Span<const KindWord<Kind>> WordsOf() = delete;
template <>
absl::Span<const KindWord<InputAs>> WordsOf();
template <>
absl::Span<const KindWord<OutputAs>> WordsOf();
template <>
absl::Span<const KindWord<ControlValue>> WordsOf();
template <>
absl::Span<const KindWord<AllElements>> WordsOf();
template <>
absl::Span<const KindWord<DroppedValue>> WordsOf();
template <>
absl::Span<const KindWord<CacheRole>> WordsOf();
template <>
absl::Span<const KindWord<CacheAlias>> WordsOf();
template <>
absl::Span<const KindWord<UpdateKind>> WordsOf();
template <>
absl::Span<const KindWord<BufferMode>> WordsOf();
template <>
absl::Span<const KindWord<CacheRead>> WordsOf();
template <>
absl::Span<const KindWord<PreconditionStatus>> WordsOf();
template <>
absl::Span<const KindWord<ShownEquality>> WordsOf();
template <>
absl::Span<const KindWord<ShortSteps>> WordsOf();
template <>
absl::Span<const KindWord<CompanionStep>> WordsOf();
template <>
absl::Span<const KindWord<PositionSource>> WordsOf();
template <>
absl::Span<const KindWord<AssumptionKind>> WordsOf();
template <>
absl::Span<const KindWord<AssumptionSource>> WordsOf();

// Returns the word of a kind.
template <typename Kind>
std::string_view WordOf(Kind kind) {
  const auto words = WordsOf<Kind>();
  const auto it = std::find_if(words.begin(), words.end(),
                               [&](const KindWord<Kind>& known) { return known.kind == kind; });
  return it == words.end() ? std::string_view() : it->word;
}

// Returns the kind that a word stands for; nullopt for any other word.
template <typename Kind>
std::optional<Kind> ReadWord(std::string_view word) {
  for (const KindWord<Kind>& known : WordsOf<Kind>()) {
    if (known.word == word) return known.kind;
  }
  return std::nullopt;
}

}  // namespace kvlift
