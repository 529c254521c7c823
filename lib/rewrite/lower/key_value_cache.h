// Lowers KeyValueCache of the domains pmx and opmx (onnxio/model/functional_form.h): one tensor
// packs keys and values of all layers, and each layer's node writes into its part of the tensor.
//
// Each part becomes a cache: CACHE.LAYER.key and CACHE.LAYER.value, [B, M, Nk, D], or [B, Nk, M, D]
// for layouts with heads in front of the slots. The node becomes Slices and a Concat that write its
// rows, a Slice of all rows so far, and nodes that repeat their heads. Nothing reads the packed
// tensor afterwards.
//
// Quantised rows are lowered as if they were not quantised; the plan then quantises them with the
// operator's own rules for scales (PlannedQuantization::as_source).
#pragma once

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "rewrite/types/normalised.h"

namespace kvlift {

// Follows the presents of KeyValueCache nodes back to the graph input that the first of them writes
// into. Returns kNoValue if other nodes are on the way.
ValueId PackedPast(const Graph& graph, ValueId present);

// Lowers all KeyValueCache nodes, or none; adds the refusals KV237, KV239 and KV249 for forms that
// do not fit. Nodes without presents stay, without a refusal.
absl::Status UnpackCaches(Normalised* result);

// Makes the source of quantised values and scales in the manifest the parts of the source's
// tensors, with which they are equal bit for bit.
void NamePackedScales(const Unpacked& unpacked, Manifest* manifest);

}  // namespace kvlift
