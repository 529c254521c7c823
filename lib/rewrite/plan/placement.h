// The layout that caches have at the interface of the result, as --layout or the target asks for.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "rewrite/recognise/analysis.h"
#include "rewrite/types/resolved_options.h"

namespace kvlift {

struct PlannedCache;

// [B, M, Nk*D]: heads and their elements on one axis, D fastest, for targets with 3-D caches.
inline constexpr char kHeadsInLastAxis[] = "BS(ND)";
inline constexpr char kHeadsFirst[] = "BNSD";

// The layout of a cache in the result.
struct Placement {
  std::string layout;
  int axis = 0;        // the sequence axis
  bool moved = false;  // the layout differs from that of the source
  // The number of heads that share the last axis with their elements in the source and have an axis
  // of their own in the result; 0 if no heads are split.
  int64_t split_heads = 0;
};
// heads: the result of HeadsInLastAxis for the cache.
Placement PlacementOf(Layout layout, const CacheUpdate& update, int64_t heads);

// Returns Nk of a cache [B, M, Nk*D] of which every attention reads all elements as those of Nk
// heads; 0 for other caches. update_index: into Analysis::updates.
int64_t HeadsInLastAxis(const Analysis& analysis, int update_index);

// Returns why caches cannot have the layout that the target and --layout ask for (KV229); nullopt
// if they can.
std::optional<Finding> JudgeLayouts(const Analysis& analysis, absl::Span<const PlannedCache> caches,
                                    const ResolvedOptions& options);

// Returns the extent of the axis with this letter; 0 if the extent is not a number.
int64_t ExtentOf(sym::Forms& forms, const CacheUpdate& update, char letter);

// Returns a value of the source that has the new rows in the layout of the result's cache; kNoValue
// if no value has them so, or if the layout stays.
ValueId FindRowsInTargetLayout(sym::Forms& forms, const PlannedCache& cache);

}  // namespace kvlift
