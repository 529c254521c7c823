// The verdict on models of several layers, layer by layer (pieces.h): each class of layers is run
// once, for any hidden states that enter it, so that the cost follows the layers that are distinct
// and rounding errors do not pile up over those that are not.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/verify.h"

namespace kvlift {

// proof: of these models.
using VerifyWhole = std::function<absl::StatusOr<VerifyReport>(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions&,
    const Proof* proof)>;

// nullopt where the models have to be run whole: they cannot be cut, some fact of the whole models
// or of a piece is open, or no more is saved than a layer. Sets `why` then. `proof` is that of the
// whole models; `verify` judges a pair of models and is called once for each class.
absl::StatusOr<std::optional<VerifyReport>> VerifyByLayer(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions& options,
    const Proof& proof, const VerifyWhole& verify, std::string* why);

}  // namespace kvlift
