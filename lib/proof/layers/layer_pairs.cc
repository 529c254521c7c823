#include "proof/layers/layer_pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvlift {
namespace {

constexpr int kMostCaches = 12;  // in a layer, or in a few layers that alternate
constexpr size_t kMostCuts = 8;
constexpr int kMostRunsTried = 64;   // candidate runs of layers
constexpr int64_t kMostLooks = 200;  // comparisons of nodes, per node of the graph

std::vector<ValueId> Presents(const Graph& graph, const Manifest& relation, bool source) {
  std::vector<ValueId> presents;
  for (const ManifestCache& cache : relation.caches) {
    presents.push_back(graph.Find(source ? cache.source.output : cache.output));
  }
  return presents;
}

// Searches for layers that are equal in both models.
class LayerPairFinder {
 public:
  LayerPairFinder(const LayeredModel& before, const LayeredModel& after, const Manifest& relation)
      : before_(before), after_(after), relation_(relation) {}

  // Tries the distances between nodes that write caches as the length of a layer, from the last
  // cache to the first.
  std::optional<LayerPair> Run() {
    const Sequence& s = after_.sequence;
    std::vector<int> writers;
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = after_.graph.Find(cache.output);
      if (present != kNoValue && s.place_of(present) >= 0) writers.push_back(s.place_of(present));
    }
    std::sort(writers.begin(), writers.end());
    writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
    absl::flat_hash_set<std::pair<int, int>> seen;
    const int last = static_cast<int>(writers.size()) - 1;
    for (int j = last; j > 0; --j) {
      for (int t = 1; t <= std::min(j, kMostCaches); ++t) {
        const int length = writers[j] - writers[j - t];
        const auto [from, to] = Stretch(writers[j - t], length);
        if (looked_ / kMostLooks > s.size()) return std::nullopt;
        if (to - from < length || !seen.insert({from, length}).second) continue;
        if (auto found = InStretch(from, to, length)) return found;
        if (tried_ >= kMostRunsTried) return std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  // Returns the range of places around `at` whose nodes are of the same kind as those `length`
  // places later.
  std::pair<int, int> Stretch(int at, int length) {
    const Sequence& s = after_.sequence;
    const auto same = [&](int k) { return s.kind(k) == s.kind(k + length); };
    int from = at, to = at;
    while (from > 0 && same(from - 1)) --from;
    while (to + length < s.size() && same(to)) ++to;
    looked_ += to - from;
    return {from, to};
  }

  // Tries the boundaries between layers at which the fewest values are carried.
  std::optional<LayerPair> InStretch(int from, int to, int length) {
    for (int cut : Cuts(to - length + 1, to)) {
      const int first = from + (cut - from) % length;
      for (int begin : {first, first + length}) {
        const int count = (to + length - begin) / length;
        if (count < 2 || ++tried_ > kMostRunsTried) break;
        if (auto found = At(begin, length, count)) return found;
      }
    }
    return std::nullopt;
  }

  // Returns the places in [first, last] before which the fewest values are still needed.
  std::vector<int> Cuts(int first, int last) const {
    const Sequence& s = after_.sequence;
    std::vector<int> open(s.size() + 2, 0);
    for (int k = 0; k < s.size(); ++k) {
      for (ValueId v : after_.graph.outputs(s.node(k))) {
        int end = k;
        if (v == kNoValue) continue;
        for (const Use& use : after_.graph.uses(v)) {
          if (use.kind == Use::Kind::kNodeInput) end = std::max(end, s.place(use.node));
        }
        ++open[k + 1];
        --open[end + 1];
      }
    }
    std::partial_sum(open.begin(), open.end(), open.begin());
    const int fewest = *std::min_element(open.begin() + first, open.begin() + last + 1);
    std::vector<int> cuts;
    for (int place = first; place <= last && cuts.size() < kMostCuts; ++place) {
      if (open[place] == fewest) cuts.push_back(place);
    }
    return cuts;
  }

  std::optional<LayerPair> At(int begin, int length, int count) const {
    while (count >= 2) {
      auto after = after_.Read(begin, length, count);
      if (!after) return std::nullopt;
      auto before = SourceOf(*after);
      if (!before) return std::nullopt;
      if (before->count == after->count) return LayerPair{*std::move(after), *std::move(before)};
      count = before->count;
    }
    return std::nullopt;
  }

  // Reads the source's layers, each of which ends where the last of the carried values is made.
  std::optional<Layers> SourceOf(const Layers& after) const {
    std::vector<int> ends;
    for (int i = 0; i < after.count; ++i) {
      int end = 0;
      for (const Layers::Carried& carried : after.carried) {
        const ValueId own = before_.graph.Find(after_.graph.name(carried.out[i]));
        if (own == kNoValue || before_.sequence.place_of(own) < 0) return std::nullopt;
        end = std::max(end, before_.sequence.place_of(own) + 1);
      }
      ends.push_back(end);
    }
    const int length = ends[1] - ends[0];
    auto layers = before_.Read(ends[0] - length, length, after.count);
    if (!layers || layers->carried.size() != after.carried.size()) return std::nullopt;
    return layers;
  }

  const LayeredModel& before_;
  const LayeredModel& after_;
  const Manifest& relation_;
  int tried_ = 0;
  int64_t looked_ = 0;  // comparisons of nodes
};

}  // namespace

LayeredModel::LayeredModel(const Graph& model, const Manifest& relation, bool source)
    : graph(model), sequence(model, Presents(model, relation, source)) {
  for (const ManifestCache& cache : relation.caches) {
    const ValueId past = graph.Find(source ? cache.source.input : cache.input);
    if (past != kNoValue && graph.is_graph_input(past)) caches.insert(past);
  }
}

std::optional<LayerPair> FindLayers(const LayeredModel& before, const LayeredModel& after,
                                    const Manifest& relation) {
  return LayerPairFinder(before, after, relation).Run();
}

}  // namespace kvlift
