// Tables of the code points that a terminal shows in no column (combining) or in two (wide). Ranges
// include both ends, are sorted and do not overlap.
#pragma once

#include "absl/types/span.h"

namespace kvlift {

struct CodeRange {
  char32_t first, last;
};

absl::Span<const CodeRange> CombiningRanges();
absl::Span<const CodeRange> WideRanges();

}  // namespace kvlift
