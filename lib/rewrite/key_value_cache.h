// Lowers KeyValueCache of the domains pmx and opmx (onnxio/in_out.h): one tensor packs keys and
// values of all layers, and each layer's node writes into its part of the tensor.
//
// Each part becomes a cache: CACHE.LAYER.key and CACHE.LAYER.value, [B, M, Nk, D], or [B, Nk, M, D]
// for layouts with heads in front of the slots. The node becomes Slices and a Concat that write its
// rows, a Slice of all rows so far, and nodes that repeat their heads. Nothing reads the packed
// tensor afterwards.
//
// Quantised rows are lowered as if they were not quantised; QuantizeCaches then quantises them with
// the operator's own rules for scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "rewrite/quantize_caches.h"

namespace kvlift {

struct Normalised;

// A cache that is a part of a packed tensor in the source.
struct UnpackedCache {
  std::string input;   // the input that the part became
  SourceCache source;  // the part in the source's tensor; its kind is not read
  SourceCache scales;  // its scales in the source's tensor; input is empty if there are none
};

struct Unpacked {
  std::vector<UnpackedCache> caches;
  int64_t group = 0;  // elements that share a scale; 0: rows are not quantised

  // Returns the cache with this input; nullptr if there is none.
  const UnpackedCache* Find(const std::string& input) const;
};

// Follows the presents of KeyValueCache nodes back to the graph input that the first of them writes
// into. Returns kNoValue if other nodes are on the way.
ValueId PackedPast(const Graph& graph, ValueId present);

// Lowers all KeyValueCache nodes, or none; adds the refusals KV237, KV239 and KV249 for forms that
// do not fit. Nodes without presents stay, without a refusal.
absl::Status UnpackCaches(Normalised* result);

// Returns the operator's rules for scales: of the type of the rows, 1e-5 at least.
ScaleRules PackedScaleRules();
// Makes the source of quantised values and scales in the manifest the parts of the source's
// tensors, with which they are equal bit for bit.
void NamePackedScales(const Unpacked& unpacked, Manifest* manifest);

}  // namespace kvlift
