// How a value of the conversion and one of the source are the same.
#pragma once

namespace kvlift {

enum class Sameness {
  kNone,      // not seen to be the same
  kInCommon,  // equal elements wherever both have one; extents may differ, or one of the source's
              // stand for several of the conversion's
  kWhole,     // the same element type, rank, extents and elements
};

}  // namespace kvlift
