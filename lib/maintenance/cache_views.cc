#include "maintenance/cache_views.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "ir/tensor_data.h"

namespace kvlift::internal {
namespace {

constexpr std::array<std::string_view, 9> kMoving = {"Slice",     "Transpose", "Reshape",
                                                     "Unsqueeze", "Squeeze",   "Identity",
                                                     "Expand",    "Cast",      "DequantizeLinear"};

class Walk {
 public:
  Walk(const Graph& graph, const Manifest& manifest, CacheViews* out)
      : graph_(graph), manifest_(manifest), out_(*out) {}

  std::optional<Finding> Run() {
    for (const ManifestCache& entry : manifest_.caches) {
      if (auto refusal = AddCache(entry)) return refusal;
    }
    for (size_t k = 0; k < out_.caches.size(); ++k) {
      const WrittenCache& cache = out_.caches[k];
      for (const ValueId root : {cache.past, cache.present}) {
        if (auto refusal = Follow(root, static_cast<int>(k))) return refusal;
      }
    }
    out_.attentions.assign(attentions_.begin(), attentions_.end());
    if (!out_.attentions.empty()) return std::nullopt;
    return MakeRefusal("KV234", "needs an Attention that reads the caches, found none", graph_,
                       kNoNode);
  }

 private:
  std::optional<Finding> AddCache(const ManifestCache& entry) {
    WrittenCache cache{&entry, graph_.Find(entry.input), graph_.Find(entry.output), kNoNode};
    if (cache.past == kNoValue || cache.present == kNoValue || entry.grows) {
      return MakeRefusal("KV234",
                         fmt::format("needs a cache of fixed capacity, found {}", entry.input),
                         graph_, kNoNode);
    }
    cache.writer = graph_.producer(cache.present);
    if (cache.writer == kNoNode || !graph_.Is(cache.writer, "TensorScatter") ||
        graph_.inputs(cache.writer)[0] != cache.past) {
      return MakeRefusal(
          "KV234",
          fmt::format("needs {} written into {} by a TensorScatter", entry.output, entry.input),
          graph_, cache.writer);
    }
    if (StringAttribute(graph_.node(cache.writer), "mode", "linear") != "linear") {
      return MakeRefusal(
          "KV233", fmt::format("needs rows behind one another, found the ring {}", entry.input),
          graph_, cache.writer);
    }
    out_.caches.push_back(cache);
    return std::nullopt;
  }

  std::optional<Finding> Follow(ValueId root, int cache) {
    std::vector<ValueId> stack = {root};
    out_.views[root] = cache;
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      for (const Use& use : graph_.uses(v)) {
        if (use.kind == Use::Kind::kGraphOutput && v == out_.caches[cache].present) continue;
        if (use.kind == Use::Kind::kNodeInput && Allowed(use, cache)) continue;
        const bool moves = use.kind == Use::Kind::kNodeInput && Moves(use);
        if (!moves) {
          return MakeRefusal(
              "KV234",
              fmt::format("needs caches that attention alone reads, found a reader of {}",
                          out_.caches[cache].entry->input),
              graph_, use.node);
        }
        const ValueId moved = graph_.outputs(use.node)[0];
        if (out_.views.try_emplace(moved, cache).second) stack.push_back(moved);
      }
    }
    return std::nullopt;
  }

  // Returns true for a reader behind which nothing must be followed: the writer of the cache, a
  // node that reads its shape, or an Attention.
  bool Allowed(const Use& use, int cache) {
    if (use.node == out_.caches[cache].writer && use.index == 0) return true;
    if (graph_.Is(use.node, "Shape") || graph_.Is(use.node, "Size")) return true;
    if (!graph_.Is(use.node, "Attention") || (use.index != 1 && use.index != 2)) return false;
    attentions_.insert(use.node);
    return true;
  }

  bool Moves(const Use& use) const {
    const std::string& op = graph_.node(use.node).op_type();
    if (!graph_.Is(use.node, op)) return false;
    if (std::find(kMoving.begin(), kMoving.end(), op) == kMoving.end()) return false;
    if (op == "DequantizeLinear") return use.index <= 1;
    return use.index == 0 && (op != "Slice" || FromTheFirst(use.node));
  }

  // Returns true for a Slice that starts at 0 with step 1, which leaves element k at place k.
  bool FromTheFirst(NodeId slice) const {
    const auto inputs = graph_.inputs(slice);
    return inputs.size() > 1 && AllAre(inputs[1], 0) &&
           (inputs.size() < 5 || inputs[4] == kNoValue || AllAre(inputs[4], 1));
  }

  bool AllAre(ValueId v, int64_t wanted) const {
    if (graph_.constant(v) == nullptr) return false;
    const auto values = ReadInts(*graph_.constant(v));
    return values.ok() &&
           std::all_of(values->begin(), values->end(), [wanted](int64_t x) { return x == wanted; });
  }

  const Graph& graph_;
  const Manifest& manifest_;
  CacheViews& out_;
  std::set<NodeId> attentions_;
};

}  // namespace

std::optional<Finding> ReadCacheViews(const Graph& graph, const Manifest& manifest,
                                      CacheViews* views) {
  return Walk(graph, manifest, views).Run();
}

Finding MakeRefusal(std::string code, std::string text, const Graph& graph, NodeId node) {
  Finding finding{std::move(code), std::move(text), {}, {}};
  if (node != kNoNode) finding.nodes.push_back(graph.NodeName(node));
  return finding;
}

}  // namespace kvlift::internal
