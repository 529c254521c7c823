// Synthetic feeds for one decode step of any model: the size of each input dimension, and values
// that a decoder accepts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "ir/graph.h"
#include "rewrite/convert/convert.h"

namespace kvlift::cli {

// A cache of the model that is measured.
struct BenchCache {
  exec::CachePair pair;
  int64_t batch_axis = 0, axis = 2;
  // The past has `context` tokens; else the buffer has `capacity` slots.
  bool growing = false;
  int64_t window = 0;  // slots of a ring buffer; 0: not a ring buffer
  // Head count and head size where the input does not declare them, from the attention that reads
  // the cache. An axis of -1 or a size of 0: not known.
  int64_t heads_axis = -1, heads = 0, size_axis = -1, size = 0;
};

// The sizes of one step. Lengths are in tokens.
struct StepSize {
  int64_t batch = 1, context = 0, new_tokens = 1, capacity = 0;

  int64_t total() const { return context + new_tokens; }
};

// Returns the caches of a converted model, from its manifest, or of any model, as recognised.
std::vector<BenchCache> CachesOf(const Manifest& manifest);
std::vector<BenchCache> CachesOf(const Graph& graph, const Inspection& inspection);

// Returns the caches' values before the step: small random numbers in the valid rows, zeros behind
// them. FailedPrecondition names a dimension whose size is unknown.
absl::StatusOr<exec::Feeds> CacheFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const StepSize& size);
// Returns all other inputs. `manifest` may be null: positions and masks are then recognised by
// their names. FailedPrecondition as for CacheFeeds.
absl::StatusOr<exec::Feeds> OtherFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const Manifest* manifest, const StepSize& size);

}  // namespace kvlift::cli
