// Synthetic feeds for one decode step of any model: what each dimension of an input is, and values
// that a decoder accepts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/program.h"
#include "exec/session.h"
#include "ir/graph.h"
#include "rewrite/convert.h"

namespace kvlift::cli {

struct BenchCache {
  exec::CachePair pair;
  int64_t batch_axis = 0, axis = 2;
  bool growing = false;
  // Sizes of the heads as the attention over the cache has them, where the input does not say.
  int64_t window = 0;  // of a ring; 0: none
  int64_t heads_axis = -1, heads = 0, size_axis = -1, size = 0;
};

struct StepSize {
  int64_t batch = 1, context = 0, new_tokens = 1, capacity = 0;

  int64_t total() const { return context + new_tokens; }
};

std::vector<BenchCache> CachesOf(const Manifest& manifest);
std::vector<BenchCache> CachesOf(const Graph& graph, const Inspection& inspection);

// The caches' values before the step: small random numbers in the valid rows and zeros behind.
// FailedPrecondition names a dimension that nothing tells.
absl::StatusOr<exec::Feeds> CacheFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const StepSize& size);
// All other inputs. `manifest` may be null: positions and masks are then known by their names.
absl::StatusOr<exec::Feeds> OtherFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const Manifest* manifest, const StepSize& size);

}  // namespace kvlift::cli
