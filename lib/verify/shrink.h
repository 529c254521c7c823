// The smallest step that still tells two models apart, and where they part.
#pragma once

#include <optional>

#include "verify/drive.h"
#include "verify/plans.h"
#include "verify/verify.h"

namespace kvlift {

// Makes of a counterexample that was found in a plan one step of fewer sequences, tokens and slots
// that differs as well, if there is one, and notes its feeds and the first nodes that differ.
// unused: it is that of a self check, with this amplitude in slots that hold no token; then it is
// left as it is where the source does not tell the difference.
void Shrink(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
            const PlanLimits& limits, const Plan& plan, int source_nodes,
            std::optional<double> unused, Counterexample* found);

}  // namespace kvlift
