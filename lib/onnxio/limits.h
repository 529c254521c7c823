// Limits of what is read, each checked where it is exceeded first, with a finding code and a flag
// that raises it.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kvlift {

// protobuf's: sizes are int.
inline constexpr int64_t kMaxModelBytes = (int64_t{1} << 31) - 1;
// Bodies of If, Loop and Scan inside one another.
inline constexpr int kMaxSubgraphDepth = 30;
// protobuf messages inside one another: three per body, and room for one error of our own.
inline constexpr int kMaxMessageDepth = 200;
// Brackets inside one another in ONNX text.
inline constexpr int kMaxTextNesting = 200;

struct Limits {
  int64_t file_bytes = kMaxModelBytes;
  int64_t nodes = 2'000'000;   // of all graphs and functions together
  int64_t attributes = 4096;   // of one node
  int64_t functions = 10'000;  // model-local
  int64_t call_depth = 100;    // of model-local functions
  int64_t subgraph_depth = kMaxSubgraphDepth;
  int64_t rank = 64;                        // of a tensor or type
  int64_t name_bytes = 64 * 1024;           // of one name
  int64_t parsed_bytes = int64_t{4} << 30;  // estimate of what parsing takes, without weights
  int64_t data_files = 10'000;              // of external data
  int64_t analysis_steps = 5'000'000;       // of symbolic arithmetic on indices, shapes and masks
  // Of running a model, where the sizes come from what is computed.
  int64_t elements = int64_t{1} << 31;   // of one value
  int64_t run_bytes = int64_t{8} << 30;  // of all values held at once, without weights
  int64_t step_seconds = 600;            // that one step may take; between operators
};

struct LimitInfo {
  std::string_view flag;  // without dashes
  std::string_view code;
  std::string_view what;  // "nodes in the model"
  int64_t Limits::*value;
  int64_t most;  // what the flag may say
};

absl::Span<const LimitInfo> AllLimits();

// OutOfRange with the code and the flag that raises the limit.
absl::Status OverLimit(int64_t Limits::*which, const Limits& limits);

}  // namespace kvlift
