// How a value of the converted model relates to a value of the source.
#pragma once

namespace kvlift {

enum class Sameness {
  kNone,  // the values are not shown to be related
  // Elements are equal wherever both values have one. Extents may differ, or the source may have
  // one element for several of the converted model's (a broadcast).
  kInCommon,
  // The values have the same element type, rank, extents and elements.
  kWhole,
};

}  // namespace kvlift
