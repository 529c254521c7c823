// Shrinks a counterexample to the smallest step in which the models still differ.
#pragma once

#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"
#include "verify/steps/plans.h"

namespace kvlift {

// The check that found the difference; by default the comparison of a plan with the source.
struct DetectingCheck {
  bool self_check = false;  // a self check of the converted model (self_checks.h)
  double unused = 0;        // amplitude of the noise that it puts into slots without a token
  Runner* mode = nullptr;   // the converted model in the executor's mode that differs; null: none
};

// Looks for a step with fewer sequences, tokens and slots that differs as well, and writes into
// `found` its sizes, its feeds and outputs, and the first nodes whose values differ. If no single
// step differs, the plan up to the failing step is taken. The counterexample of a self check stays
// as it is unless running the plan again, against the source or in `mode`, shows a difference. With
// `mode`, the cache slots behind the tokens are written as the mode left them, so that any runtime
// that is fed them gives what the mode gave.
void Shrink(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
            const PlanLimits& limits, const Plan& plan, int source_nodes,
            const DetectingCheck& check, Counterexample* found);

}  // namespace kvlift
