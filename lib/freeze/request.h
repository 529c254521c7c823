// The request of `convert --freeze`, and the sizes of one graph that follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace kvlift {

// The sizes of one graph.
struct FreezeSizes {
  std::optional<int64_t> batch;   // B; absent: the model declares it as a number
  std::optional<int64_t> tokens;  // S; absent: the model declares it as a number
  // Sizes by the name of a dimension (dim_param), or by "INPUT.shape[AXIS]" for one axis of an
  // input.
  std::vector<std::pair<std::string, int64_t>> others;
};

struct FreezeRequest {
  std::optional<int64_t> batch;
  std::vector<int64_t> tokens;  // one graph for each number, each once; empty: one graph
  std::vector<std::pair<std::string, int64_t>> others;

  // Returns the sizes of each graph, in the order of `tokens`; never empty.
  std::vector<FreezeSizes> Graphs() const;
};

// Reads "batch=1,tokens=1|128,NAME=7", with blanks around any part. InvalidArgument names the part
// that is not an assignment of positive numbers, or that assigns a name twice; only `tokens` takes
// several numbers.
absl::StatusOr<FreezeRequest> ReadFreeze(std::string_view text);

}  // namespace kvlift
