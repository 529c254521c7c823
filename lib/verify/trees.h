// A converted model whose new tokens are those of a tree, held against the source run once for each
// branch.
#pragma once

#include <cstdint>

#include "contract/manifest.h"
#include "verify/drive.h"
#include "verify/self_checks.h"

namespace kvlift {

// The relation has an input that says which new tokens see each other.
bool TakesTrees(const Manifest& relation);

SelfCheck CheckTrees(const Driver& driver, Runner& source, Runner& converted,
                     const Manifest& relation, const PlanLimits& limits, int source_nodes,
                     uint64_t seed);

}  // namespace kvlift
