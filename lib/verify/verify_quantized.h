// The verdict on a converted model whose caches are kept in few bits (quantized.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/verify.h"

namespace kvlift {

// How two models without such caches are compared.
struct VerifyPart {
  // The second model's rows are rounded, and this says of which size its errors are: only whether
  // outputs lie within them is judged.
  const Model* bounds = nullptr;
  // Whether outputs tell what slots and tokens hold.
  bool sensitivity = true;
  // The first model is known to read slots that hold no token.
  bool reads_unused = false;
};
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
