#include "rewrite/judge/fifo_readers.h"

#include <deque>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

namespace kvlift::internal {
std::optional<Finding> MovedRowsReadElsewhere(const PlanBasis& s, absl::Span<const ValueId> roots) {
  const Graph& graph = s.graph;
  absl::flat_hash_set<ValueId> moved, seen;
  for (const PlannedCache& cache : s.caches) {
    if (!cache.moves_rows()) continue;
    moved.insert({cache.pair.past, cache.pair.present, cache.read_by_attention()});
  }
  absl::flat_hash_set<NodeId> taken;
  for (const AnalysedAttention& attention : s.a.attention) taken.insert(attention.node);
  std::deque<ValueId> queue(roots.begin(), roots.end());
  for (ValueId output : graph.graph_outputs()) {
    if (!moved.contains(output)) queue.push_back(output);
  }
  for (; !queue.empty(); queue.pop_front()) {
    const NodeId n = graph.producer(queue.front());
    if (n == kNoNode || taken.contains(n) || !seen.insert(queue.front()).second) continue;
    std::vector<ValueId> read(graph.inputs(n).begin(), graph.inputs(n).end());
    read.insert(read.end(), graph.captures(n).begin(), graph.captures(n).end());
    for (ValueId v : read) {
      if (v == kNoValue || graph.Is(n, "Shape") || graph.Is(n, "Size")) continue;
      if (!moved.contains(v)) {
        queue.push_back(v);
        continue;
      }
      return MakeFinding("KV214",
                         fmt::format("needs caches that attention alone reads, found another "
                                     "reader of the moving rows of {}",
                                     graph.name(v)),
                         graph, {n}, {v});
    }
  }
  return std::nullopt;
}

}  // namespace kvlift::internal
