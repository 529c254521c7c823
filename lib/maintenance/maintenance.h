// Makes the companion of a converted model: a model over the same caches that moves their rows
// between two steps. Its inputs besides the caches are int64:
//
//   beam_indices [B]     sequence b gets the rows of sequence beam_indices[b];
//   keep_indices [B, K]  slot k of sequence b gets the row of slot keep_indices[b, k], for k < K.
//
// With both: new[b, .., k, ..] = old[beam_indices[b], .., keep_indices[b, k], ..] for k < K. Slots
// from K on hold arbitrary rows and are not valid. When it runs, an index outside the batch or the
// capacity is an error; an index of a slot without a token is not detected.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct MaintenanceOptions {
  bool keep = true, beam = true;  // which of the two inputs it has: at least one
};

struct Companion {
  onnx::ModelProto model;  // StampMetadata has not run on it
  Manifest manifest;       // says alias kSafe of all caches
};

// Does not check that rows may be moved to other slots: see ReadSlots (slots.h). Returns
// FailedPrecondition with the code KV234 if the manifest has no cache, if the layout of a cache is
// not known or its first axis is not that of sequences, or if a cache has the name of one of the
// inputs.
absl::StatusOr<Companion> MakeCompanion(const Graph& model, const Manifest& manifest,
                                        const MaintenanceOptions& options);

}  // namespace kvlift
