#include "rewrite/emit/emission.h"

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "ir/graph.h"

namespace kvlift {

const RowsView* EmittedCache::View(const std::string& rows) const {
  const auto found = std::find_if(views.begin(), views.end(),
                                  [&](const RowsView& view) { return view.rows == rows; });
  return found == views.end() ? nullptr : &*found;
}

absl::Status ListReaders(Emission* emission) {
  // The emission outlives the graph.
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(std::shared_ptr<const onnx::ModelProto>(
                                             std::shared_ptr<const void>(), &emission->model)));
  absl::flat_hash_set<NodeId> writers;
  for (const EmittedCache& cache : emission->caches) {
    writers.insert(graph.producer(graph.Find(cache.writer)));
  }
  for (ManifestCache& cache : emission->manifest.caches) {
    NodeId last = kNoNode;
    for (const Use& use : graph.uses(graph.Find(cache.input))) {
      if (use.kind == Use::Kind::kGraphOutput || use.node == last) continue;
      if (writers.contains(use.node) || graph.Is(use.node, "Shape")) continue;
      last = use.node;
      cache.alias = CacheAlias::kCopy;
      cache.readers.push_back(graph.NodeName(use.node));
    }
  }
  return absl::OkStatus();
}

}  // namespace kvlift
