// The companion of a converted model: a model over the same caches that moves their rows, between
// two steps.
//
//   beam_indices [B]     sequence b becomes what sequence beam_indices[b] was;
//   keep_indices [B, K]  slot k of sequence b becomes what slot keep_indices[b, k] was, k < K.
//
// With both, sequences first: new[b, .., k, ..] = old[beam[b], .., keep[b, k], ..] for k < K. Slots
// from K on hold rows of some tokens; they are valid no longer. Indices outside the batch or the
// capacity are errors when it runs; a slot that holds no token is the host's error.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct MaintenanceOptions {
  bool keep = true, beam = true;  // one of them at least
};

struct Companion {
  onnx::ModelProto model;  // not yet stamped
  Manifest manifest;       // alias: "safe" for all
};

// Whether keeping means what it says is not asked here (slots.h). FailedPrecondition, with the code
// KV234, names a cache whose axes are not known or whose first axis is not that of sequences.
absl::StatusOr<Companion> MakeCompanion(const Graph& model, const Manifest& manifest,
                                        const MaintenanceOptions& options);

}  // namespace kvlift
