// Proves equal layers once. Both models are shortened to one layer of each run of equal layers:
//
//   front -> any values -> layer 0 -> any values -> rest
//
// A fact that is proved for layer 0 with any values entering it holds for every layer that is equal
// but for names (proof/layers/layers.h). This is an induction: equal values enter a layer, so equal
// values of the same shape leave it (proof/layers/layer_boundaries.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/graphs/proof.h"
#include "proof/layers/layer_boundaries.h"
#include "proof/layers/layer_names.h"

namespace kvlift {

// Both models with one layer left of a run, and the relation between them.
struct FoldedPair {
  onnx::ModelProto before, after;
  Manifest relation;
  std::vector<LayerBoundary> boundaries;  // facts about these have to be proved as well
  // The subjects of facts about layer 0 (cache ids, values) -> what they are called in layer 1, 2,
  // ...
  absl::flat_hash_map<std::string, std::vector<std::string>> copies;
  // The subjects of facts -> the node of the whole converted model that makes them.
  absl::flat_hash_map<std::string, int> places;
  LayerNames names;  // of values and caches: from layer 0 to the others
};

// Shortens both models by the last run of equal layers; nullopt if there is none, or if a model has
// subgraphs. The models must outlive the call only.
std::optional<FoldedPair> FoldLayers(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                     const Manifest& relation);

// Turns the facts about a shortened pair into facts about the whole models: facts about layer 0 are
// repeated for each layer, in the whole model's order, and assumptions that they rest on are
// renamed. Facts about the boundaries of `folded`, which come last, are left out. `boundaries`: the
// number of facts about other boundaries that stand in front of those. Returns nullopt if a fact
// does not hold or its place is not known; the whole models have to be proved then.
std::optional<Proof> Unfold(const FoldedPair& folded, const Manifest& relation, size_t boundaries,
                            const Proof& proof);

}  // namespace kvlift
