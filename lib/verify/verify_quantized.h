// The verdict on a converted model whose caches are kept in few bits (quantized.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/judge_pair.h"
#include "verify/verify.h"

namespace kvlift {

using VerifyPlain = std::function<absl::StatusOr<VerifyReport>(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions& options,
    const VerifyPart& part)>;

// Equal within quantisation, if
// - the model is equal to the source where rows are kept as they are,
// - values, scales and what is read of them are, bit for bit, what the definition gives, and
// - the outputs lie within the bound of what rounding rows to few bits may make of them.
absl::StatusOr<VerifyReport> VerifyQuantized(const Model& before, const Model& after,
                                             const Manifest& relation, const VerifyOptions& options,
                                             const VerifyPlain& verify);

}  // namespace kvlift
