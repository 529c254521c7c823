// The verdict on models of several layers, layer by layer (layer_pieces.h). Layers that differ in
// names and weights only form a class, and one layer of each class is run, with arbitrary hidden
// states as its input. So the cost follows the number of distinct layers, and rounding errors do
// not accumulate over the depth of the model.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/judge/verify.h"

namespace kvlift {

// Judges one pair of models. proof: the proof of this pair; never null here.
using VerifyWhole = std::function<absl::StatusOr<VerifyReport>(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions&,
    const Proof* proof)>;

// Returns the merged report of all classes. nullopt if the models have to be run whole; `why` then
// says why: a fact of the whole models or of a piece does not hold, the relation does not fit, the
// models cannot be cut, a piece cannot be run alone, or there are fewer than three layers and no
// half types. proof: the proof of the whole models. verify: called once for each class whose models
// differ, up to the first class that is not accepted. Errors are those of Graph::Build and of
// `verify`.
absl::StatusOr<std::optional<VerifyReport>> VerifyByLayer(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions& options,
    const Proof& proof, const VerifyWhole& verify, std::string* why);

}  // namespace kvlift
