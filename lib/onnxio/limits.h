// Limits of what is read, each checked where it is exceeded first.
#pragma once

#include <cstdint>

namespace kvlift {

// protobuf's: sizes are int.
inline constexpr int64_t kMaxModelBytes = (int64_t{1} << 31) - 1;
// Bodies of If, Loop and Scan inside one another.
inline constexpr int kMaxSubgraphDepth = 30;
// protobuf messages inside one another: three per body, and room for one error of our own.
inline constexpr int kMaxMessageDepth = 200;
// Brackets inside one another in ONNX text.
inline constexpr int kMaxTextNesting = 200;

}  // namespace kvlift
