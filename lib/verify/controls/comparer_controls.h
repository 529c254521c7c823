// Negative controls of the comparison itself: a recorded output of the source is changed a little,
// and comparing the converted model with it must then report a difference.
#pragma once

#include <vector>

#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"

namespace kvlift {

// Returns the controls of every output and cache, or of one output and one cache if not `all`. Each
// changes the last step of one record: one element of the last sequence is moved by 30 bounds of
// the source, or by more where the converted model's bounds are wider, or all signs are inverted.
// Outputs of integer or 8-bit types get none. The result is empty if no record runs all sequences
// together without padding tokens.
std::vector<ControlResult> RunComparerControls(const Driver& driver, Runner& converted,
                                               const std::vector<Record>& records,
                                               const Manifest& relation, bool all);

}  // namespace kvlift
