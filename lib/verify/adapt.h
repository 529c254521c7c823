// Relations in which a cache has other axes in the two models, not just in another order: the
// converted model may hold heads and their elements on one axis, or the source may.
//
// A layout then has a group: "BS(ND)" is a tensor of three axes, the last of which counts
// N * D elements, D fastest. Such a source is given the converted model's layout at its ends, by
// a Transpose and a Reshape, which are exact; all else sees plain layouts.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/verify.h"

namespace kvlift {

bool HasGroups(const Manifest& relation);

struct Adapted {
  Model before;
  Manifest relation;  // of `before` and the converted model, without groups
};

// FailedPrecondition says which cache's layouts do not fit together.
absl::StatusOr<Adapted> AdaptSource(const Model& before, const Model& after,
                                    const Manifest& relation);

// Gives the source's caches in the steps of a counterexample their own layout again.
void RestoreSource(const Model& before, const Model& after, const Manifest& relation,
                   VerifyReport* report);

}  // namespace kvlift
