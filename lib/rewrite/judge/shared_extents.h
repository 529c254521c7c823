// Finds the values that all parts of a plan share: the extents B and S, the names of the past's
// length, and the masks of the host that are as long as the keys. Internal to lib/rewrite.
#pragma once

#include <optional>
#include <vector>

#include "rewrite/judge/plan_basis.h"

namespace kvlift::internal {

struct FoundExtents {
  SharedExtents extents;
  std::optional<Finding> refusal;  // a mask has a type that cannot be cut to the keys
};
FoundExtents FindSharedExtents(const Analysis& analysis, const std::vector<PlannedCache>& caches);

// Returns an input and an axis of it whose extent is P + S, a mask if there is one; nullopt if no
// input has such an axis.
std::optional<DerivedIndex> InputOfAllTokens(const Analysis& analysis,
                                             const SharedExtents& extents);

// Returns the masks [B, T] of ones of which the lowered graph reads only the width. The fused
// operators of the source read their lengths from these masks, so T is P + S.
std::vector<ValueId> WidthsOfOnes(const Analysis& a);

// Returns KV215 for an input that is as long as the past and is not a mask; nullopt if all such
// inputs are masks.
std::optional<Finding> OtherInputOfKeyLength(const PlanBasis& s);

// Returns the source of the past's length in the result, or the reason why it has no source.
std::variant<PlannedIndex, Finding> JudgeIndex(const PlanBasis& s);

}  // namespace kvlift::internal
