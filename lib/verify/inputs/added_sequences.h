// Sources whose caches have no batch axis, since they join the tokens of all sequences on one axis:
// KeyValueCache of OpenPPL in its form for dynamic batching (onnxio/model/functional_form.h). The
// converted model of such a source has one sequence.
//
// The source's cache inputs and outputs get a batch axis of extent 1, and inputs that say where
// sequences begin and end become nodes that compute what the relation requires for one sequence.
// None of these changes alters the value of an element. The rest of lib/verify handles sources with
// a batch axis only.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/inputs/adapted_layouts.h"
#include "verify/report/verify_report.h"

namespace kvlift {

// Returns true if the layout of a source cache lacks the letter B that the converted cache's has.
bool LacksSequences(const Manifest& relation);
// Returns true if a dropped input says where sequences begin or end.
bool TellsOfSequences(const DroppedInput& dropped);

// Returns the source with a batch axis, and its relation to the converted model. FailedPrecondition
// names an input or output that the source does not have, or has without a shape.
absl::StatusOr<Adapted> AddSequences(const Model& before, const Manifest& relation);

// Turns the source's steps in the report's counterexample back into feeds and outputs of `before`:
// removes the batch axis and adds the dropped inputs. Does nothing without a counterexample.
void RemoveSequences(const Model& before, const Manifest& relation, VerifyReport* report);

}  // namespace kvlift
