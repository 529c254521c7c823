// Finds equal layers that the source and the converted model have in common.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "proof/layers/layers.h"

namespace kvlift {

// One of the two models, with its nodes in the order in which layers are adjacent.
struct LayeredModel {
  // `source`: the model is the source of `relation`. The graph must outlive this.
  LayeredModel(const Graph& model, const Manifest& relation, bool source);

  // Reads layers as ReadLayers does.
  std::optional<Layers> Read(int begin, int length, int count) const {
    return ReadLayers(sequence, begin, length, count, caches);
  }

  const Graph& graph;
  absl::flat_hash_set<ValueId> caches;  // past caches that are graph inputs
  Sequence sequence;
};

struct LayerPair {
  // Both have the same number of layers. Values that are carried from layer to layer have the same
  // names.
  Layers after, before;
};

// Finds the last run of two or more equal layers in both models; nullopt if there is none, or if
// none is found within a fixed amount of work.
std::optional<LayerPair> FindLayers(const LayeredModel& before, const LayeredModel& after,
                                    const Manifest& relation);

}  // namespace kvlift
