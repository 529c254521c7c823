// How a model adds new rows to a cache, in the words of the manifest and of `inspect`.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace kvlift {

enum class CacheKind {
  kConcat,         // new rows are put behind the past
  kWindow,         // so, and the last rows are kept
  kScatter,        // a scatter writes into a buffer
  kSplice,         // slices of a buffer are joined with the new rows
  kSelect,         // a Where selects the new rows
  kBlend,          // the new rows are blended in by products and sums
  kShift,          // first in, first out
  kFused,          // an operator keeps the cache by itself
  kTensorScatter,  // TensorScatter writes into a buffer: nothing is to be converted
};

// The word of each kind. docs/schema/manifest.schema.json has the same words.
inline constexpr std::array<std::pair<CacheKind, std::string_view>, 9> kCacheKindWords = {{
    {CacheKind::kConcat, "concat"},
    {CacheKind::kWindow, "window"},
    {CacheKind::kScatter, "scatter"},
    {CacheKind::kSplice, "splice"},
    {CacheKind::kSelect, "select"},
    {CacheKind::kBlend, "blend"},
    {CacheKind::kShift, "shift"},
    {CacheKind::kFused, "fused"},
    {CacheKind::kTensorScatter, "tensor_scatter"},
}};

constexpr std::string_view WordOf(CacheKind kind) {
  for (const auto& [other, word] : kCacheKindWords) {
    if (other == kind) return word;
  }
  return {};
}

}  // namespace kvlift
