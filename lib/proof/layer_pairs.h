// Layers of a source and of its conversion that are the same in both.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "proof/layers.h"

namespace kvlift {

// One of the two models.
struct LayeredModel {
  LayeredModel(const Graph& model, const Manifest& relation, bool source);

  std::optional<Layers> Read(int begin, int length, int count) const {
    return ReadLayers(sequence, begin, length, count, caches);
  }

  const Graph& graph;
  absl::flat_hash_set<ValueId> caches;  // pasts
  Sequence sequence;
};

struct LayerPair {
  Layers after, before;  // as many; what layers carry on has the same names
};

// The last layers that there are several of.
std::optional<LayerPair> FindLayers(const LayeredModel& before, const LayeredModel& after,
                                    const Manifest& relation);

}  // namespace kvlift
