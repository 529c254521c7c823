// Brings a source's caches to the axes of the converted model where one of the two joins several
// axes into one, say heads and head size.
//
// The layout of such a cache has a group: "BS(ND)" is a tensor [B, S, N*D], D fastest. The source's
// cache inputs and outputs get the converted model's axes by a Transpose and a Reshape, which move
// values and change none. The rest of lib/verify handles layouts without groups only.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/report/verify_report.h"

namespace kvlift {

// Returns true if a cache of the relation has a layout with a group, in either model.
bool HasGroups(const Manifest& relation);

struct Adapted {
  Model before;       // a copy of the source; it shares the source's weights and keeps them alive
  Manifest relation;  // relates `before` to the converted model; its layouts have no groups
};

// Returns the source with the axes of the converted model at each cache with a group; other caches
// stay as they are. FailedPrecondition names a cache whose two layouts do not fit together or whose
// sizes are not known.
absl::StatusOr<Adapted> AdaptSource(const Model& before, const Model& after,
                                    const Manifest& relation);

// Moves the source's caches in the steps of the report's counterexample back to the layout that
// `before` declares. Does nothing without a counterexample.
void RestoreSource(const Model& before, const Model& after, const Manifest& relation,
                   VerifyReport* report);

}  // namespace kvlift
