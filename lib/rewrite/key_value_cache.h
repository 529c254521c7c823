// KeyValueCache of pmx and opmx (onnxio/in_out.h): one tensor packs keys and values of all layers,
// and a layer's node writes into its part of it.
//
// The parts become caches of their own, two for each layer: CACHE.LAYER.key and CACHE.LAYER.value,
// [B, M, Nk, D] or, of layout 1, [B, Nk, M, D]. The node becomes the splice that a cache rule
// reads, the rows so far, and their heads repeated. No node is left that sees the packed tensor.
//
// Quantised rows are lowered as if they were kept as they are: QuantizeCaches then stores them as
// the operator does, with its smallest scale.
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

// A cache that was a part of a packed tensor.
struct UnpackedCache {
  std::string input;   // of the model that has it
  SourceCache source;  // where the source has it; without a kind
  SourceCache scales;  // and its scales; without an input where there are none
};

struct Unpacked {
  std::vector<UnpackedCache> caches;
  int64_t group = 0;  // elements that share a scale; 0: rows are kept as they are

  // By its input; nullptr if it is none of them.
  const UnpackedCache* Find(const std::string& input) const;
};

// The graph input that the present of such nodes began as; kNoValue if that is none.
ValueId PackedPast(const Graph& graph, ValueId present);

// All such nodes or, with refusals KV237 and KV239, none.
absl::Status UnpackCaches(Normalised* result);

// The rules of the operator's scales.
ScaleRules PackedScaleRules();
// Names the source's tensors in a manifest of quantised caches: they are equal bit for bit.
void NamePackedScales(const Unpacked& unpacked, Manifest* manifest);

}  // namespace kvlift
