// The smallest step that still tells two models apart, and where they part.
#pragma once

#include "verify/drive.h"
#include "verify/plans.h"
#include "verify/verify.h"

namespace kvlift {

// What told the difference, if the plan itself, held against the source, does not.
struct ToldBy {
  bool self_check = false;
  double unused = 0;       // amplitude in slots that hold no token
  Runner* mode = nullptr;  // the converted model in an executor's mode that gives other results
};

// Makes of a counterexample that was found in a plan one step of fewer sequences, tokens and slots
// that differs as well, if there is one, and notes its feeds and the first nodes that differ. That
// of a self check is left as it is where the source, or another mode, does not tell the difference.
// Of a mode the caches are noted as the mode left them behind the tokens: any runtime that is fed
// these gives what the mode gave.
void Shrink(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
            const PlanLimits& limits, const Plan& plan, int source_nodes, const ToldBy& told,
            Counterexample* found);

}  // namespace kvlift
