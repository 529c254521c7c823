// Code points that a terminal shows in no column or in two. Sorted, without overlaps.
#pragma once

#include "absl/types/span.h"

namespace kvlift {

struct CodeRange {
  char32_t first, last;
};

absl::Span<const CodeRange> CombiningRanges();
absl::Span<const CodeRange> WideRanges();

}  // namespace kvlift
