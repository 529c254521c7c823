// Negative controls of the comparison itself: what the source gave is changed a little, and the
// converted model must then no longer agree with it.
#pragma once

#include <vector>

#include "verify/drive.h"
#include "verify/verify.h"

namespace kvlift {

// One element of the last sequence in the last step moved by a few bounds, and all signs turned: of
// every output, or of two if not `all`.
std::vector<ControlResult> RunComparerControls(const Driver& driver, Runner& converted,
                                               const std::vector<Record>& records,
                                               const Manifest& relation, bool all);

}  // namespace kvlift
