// Relations to a source whose caches have no axis of sequences, since it joins the tokens of all on
// one axis: KeyValueCache of dynamic_batching (onnxio/in_out.h). The converted model has one
// sequence.
//
// Such a source is given that axis at its ends, of extent 1, and inputs that tell where its
// sequences begin and end are computed in it, as the relation requires them to be. That is exact;
// all else sees an ordinary source of one sequence.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/adapt.h"
#include "verify/verify.h"

namespace kvlift {

bool LacksSequences(const Manifest& relation);
// Of an input that is computed in such a source.
bool TellsOfSequences(const DroppedInput& dropped);

// FailedPrecondition says which input or output is not what the relation needs.
absl::StatusOr<Adapted> AddSequences(const Model& before, const Manifest& relation);

// Gives a counterexample the source's own caches and inputs again.
void RemoveSequences(const Model& before, const Manifest& relation, VerifyReport* report);

}  // namespace kvlift
