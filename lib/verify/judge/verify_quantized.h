// The verdict on a converted model with quantised caches (quantized.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/judge/judge_pair.h"
#include "verify/judge/verify.h"

namespace kvlift {

// Judges a pair of models without quantised caches.
using VerifyPlain = std::function<absl::StatusOr<VerifyReport>(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions& options,
    const VerifyPart& part)>;

// The verdict is "equal within quantisation" if every fact of the proof holds and
// - the model without quantisation is equal to the source,
// - values and scales, and the rows that are read back, are bit for bit those of the definition,
// - the outputs of the source and of the model with quantised rows differ by no more than the bound
//   that the oracle computes for this rounding.
// A recorder, if one is given, writes down the last comparison, with bounds for runtimes that fuse
// operators.
// Errors are those of `verify`; a model that cannot be taken apart is inconclusive (KV432).
absl::StatusOr<VerifyReport> VerifyQuantized(const Model& before, const Model& after,
                                             const Manifest& relation, const VerifyOptions& options,
                                             const VerifyPlain& verify,
                                             Recorder* recorder = nullptr);

}  // namespace kvlift
