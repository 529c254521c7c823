// Finds the readers of the caches of a converted model. Internal to lib/maintenance.
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
  const ManifestCache* entry = nullptr;  // in the manifest
  ValueId past = kNoValue, present = kNoValue;
  NodeId writer = kNoNode;  // the TensorScatter from past to present
};

struct CacheViews {
  std::vector<WrittenCache> caches;
  // Pasts, presents, and values made of them by moving, casting or dequantising elements, with slot
  // 0 first; each with its index into `caches`. Only Attention nodes read them.
  absl::flat_hash_map<ValueId, int> views;
  std::vector<NodeId> attentions;  // the readers of `views`, each once, in topological order
};

// Fills *views. Returns KV233 if a cache is a ring, and KV234 if a cache is not one TensorScatter,
// if something besides attention reads it, or if no attention does.
std::optional<Finding> ReadCacheViews(const Graph& graph, const Manifest& manifest,
                                      CacheViews* views);

// Returns a finding that names the node, unless that is kNoNode.
Finding MakeRefusal(std::string code, std::string text, const Graph& graph, NodeId node);

}  // namespace kvlift::internal
