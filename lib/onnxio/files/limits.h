// Limits on the models that are read and run. Each has a finding code, and a flag that raises it.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kvlift {

// protobuf's limit: its sizes are int.
inline constexpr int64_t kMaxModelBytes = (int64_t{1} << 31) - 1;
// Nesting depth of bodies of If, Loop and Scan.
inline constexpr int kMaxSubgraphDepth = 30;
// Nesting depth of protobuf messages: three per body, and a margin so that kvlift's own check of
// kMaxSubgraphDepth reports models that are nested too deeply.
inline constexpr int kMaxMessageDepth = 200;
// Nesting depth of brackets in ONNX text.
inline constexpr int kMaxTextNesting = 200;

// Sizes are in bytes; counts are per model unless said otherwise.
struct Limits {
  int64_t file_bytes = kMaxModelBytes;
  int64_t nodes = 2'000'000;   // in all graphs and functions together
  int64_t attributes = 4096;   // of one node
  int64_t functions = 10'000;  // model-local functions
  int64_t call_depth = 100;    // nesting depth of calls of model-local functions
  int64_t subgraph_depth = kMaxSubgraphDepth;
  int64_t rank = 64;                        // dimensions of a tensor or type
  int64_t name_bytes = 64 * 1024;           // of one name
  int64_t parsed_bytes = int64_t{4} << 30;  // estimated memory for parsing, without weights
  int64_t data_files = 10'000;              // files of external data
  int64_t analysis_steps = 5'000'000;       // symbolic arithmetic on indices, shapes and masks
  // Limits of running a model, whose sizes depend on computed values.
  int64_t elements = int64_t{1} << 31;   // of one value
  int64_t run_bytes = int64_t{8} << 30;  // all values held at once, without weights
  int64_t step_seconds = 600;            // time of one step, checked between operators
};

struct LimitInfo {
  std::string_view flag;  // without dashes
  std::string_view code;
  std::string_view what;  // what is counted, such as "nodes in the model"
  int64_t Limits::*value;
  int64_t most;  // largest value that the flag accepts
};

absl::Span<const LimitInfo> AllLimits();

// Returns OutOfRange with the finding code of the limit and the flag that raises it.
absl::Status OverLimit(int64_t Limits::*which, const Limits& limits);

}  // namespace kvlift
