// Who reads the caches of a converted model. Internal to lib/maintenance.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift::internal {

struct WrittenCache {
  const ManifestCache* entry = nullptr;
  ValueId past = kNoValue, present = kNoValue;
  NodeId writer = kNoNode;  // the TensorScatter that makes present of past
};

struct CacheViews {
  std::vector<WrittenCache> caches;
  // Pasts, presents and what is made of them by moving elements or casting, slots from the first
  // on: to the cache. Attention reads them, and nobody else.
  absl::flat_hash_map<ValueId, int> views;
  std::vector<NodeId> attentions;  // that read them, each once, in topological order
};

// Fills *views; what stands in the way otherwise (KV233, KV234).
std::optional<Finding> ReadCacheViews(const Graph& graph, const Manifest& manifest,
                                      CacheViews* views);

Finding MakeRefusal(std::string code, std::string text, const Graph& graph, NodeId node);

}  // namespace kvlift::internal
