// Checks a converted model with a tree mask (speculative decoding): it runs all tokens of a random
// tree in one step, and each branch must give what the source gives for the branch alone.
#pragma once

#include <cstdint>

#include "contract/manifest.h"
#include "verify/controls/self_checks.h"
#include "verify/steps/drive.h"

namespace kvlift {

// Returns true if the converted model has a tree mask: an input that says which new tokens see each
// other.
bool TakesTrees(const Manifest& relation);

// Runs three trees of six tokens. Skipped if the models take no such step; a difference has the
// number of the tree as its step. seed: of the trees.
SelfCheck CheckTrees(const Driver& driver, Runner& source, Runner& converted,
                     const Manifest& relation, const PlanLimits& limits, int source_nodes,
                     uint64_t seed);

}  // namespace kvlift
