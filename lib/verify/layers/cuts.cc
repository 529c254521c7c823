#include "verify/layers/cuts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "proof/graphs/pair.h"
#include "proof/layers/layer_pairs.h"

namespace kvlift {
namespace {

// A cut has at most so many values: hidden states, and perhaps their normalised form.
constexpr int kMostValues = 3;

class CutFinder {
 public:
  CutFinder(const Graph& before, const Graph& after, const Manifest& relation)
      : before_(before),
        relation_(relation),
        after_(after, relation, /*source=*/false),
        graph_(after),
        sequence_(after_.sequence) {}

  std::vector<Cut> Run() {
    FindLate();
    FindWriters();
    if (writers_.size() < 2) return {};
    CountOpen();
    FindPlaces();
    std::vector<std::vector<ValueId>> cuts;
    for (int place : places_) cuts.push_back(OpenAt(place));
    if (cuts.empty()) return {};
    if (auto first = InFrontOfFirst(cuts)) cuts.insert(cuts.begin(), *std::move(first));
    if (auto last = BehindLast(cuts)) cuts.push_back(*std::move(last));
    std::vector<Cut> named;
    for (const std::vector<ValueId>& values : cuts) {
      if (IsOfBoth(values)) named.push_back(NamesOf(values));
    }
    return named;
  }

 private:
  // Marks the late values: those that depend on the contents of a cache, not on its shape only.
  void FindLate() {
    late_.assign(static_cast<size_t>(graph_.num_values()), false);
    for (ValueId v : after_.caches) late_[v] = true;
    for (int place = 0; place < sequence_.size(); ++place) {
      const NodeId n = sequence_.node(place);
      if (graph_.Is(n, "Shape") || graph_.Is(n, "Size")) continue;
      const auto inputs = graph_.inputs(n);
      const bool late = std::any_of(inputs.begin(), inputs.end(),
                                    [&](ValueId v) { return v != kNoValue && late_[v]; });
      for (ValueId v : graph_.outputs(n)) {
        if (v != kNoValue) late_[v] = late;
      }
    }
  }

  void FindWriters() {
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = graph_.Find(cache.output);
      if (present == kNoValue) continue;
      presents_.insert(present);
      if (sequence_.place_of(present) >= 0) writers_.push_back(sequence_.place_of(present));
    }
    std::sort(writers_.begin(), writers_.end());
    writers_.erase(std::unique(writers_.begin(), writers_.end()), writers_.end());
  }

  // Returns the place of the last node that reads the value; the value's own if no node reads it.
  int LastReader(ValueId v) const {
    int last = sequence_.place_of(v);
    for (const Use& use : graph_.uses(v)) {
      if (use.kind == Use::Kind::kNodeInput) last = std::max(last, sequence_.place(use.node));
    }
    return last;
  }

  template <typename Take>
  void ForEachLate(const Take& take) const {
    for (int place = 0; place < sequence_.size(); ++place) {
      for (ValueId v : graph_.outputs(sequence_.node(place))) {
        if (v != kNoValue && late_[v]) take(v, place, LastReader(v));
      }
    }
  }

  // Counts, for each place, the open values: late values that are computed in front of the place
  // and read at it or behind. A place where a present is open is within a layer.
  void CountOpen() {
    const size_t size = static_cast<size_t>(sequence_.size()) + 2;
    open_.assign(size, 0);
    std::vector<int> presents(size, 0);
    ForEachLate([&](ValueId v, int made, int last) {
      std::vector<int>& counts = presents_.contains(v) ? presents : open_;
      ++counts[static_cast<size_t>(made) + 1];
      --counts[static_cast<size_t>(last) + 1];
    });
    std::partial_sum(open_.begin(), open_.end(), open_.begin());
    std::partial_sum(presents.begin(), presents.end(), presents.begin());
    for (size_t place = 0; place < size; ++place) {
      if (presents[place] > 0) open_[place] = kMostValues + 1;
    }
  }

  // Chooses, between each two nodes that write caches, the last place with the smallest number of
  // open values.
  void FindPlaces() {
    int fewest = kMostValues + 1;
    for (int place = writers_.front() + 1; place <= writers_.back(); ++place) {
      if (open_[place] > 0) fewest = std::min(fewest, open_[place]);
    }
    if (fewest > kMostValues) return;
    for (size_t k = 0; k + 1 < writers_.size(); ++k) {
      for (int place = writers_[k + 1]; place > writers_[k]; --place) {
        if (open_[place] != fewest) continue;
        places_.push_back(place);
        break;
      }
    }
  }

  std::vector<ValueId> OpenAt(int place) const {
    std::vector<ValueId> values;
    ForEachLate([&](ValueId v, int made, int last) {
      if (made < place && place <= last) values.push_back(v);
    });
    return values;
  }

  // Returns the value that corresponds to v at the place `by` nodes farther on; kNoValue if the
  // node there is of another kind.
  ValueId Shifted(ValueId v, int by) const {
    const int made = sequence_.place_of(v), place = made + by;
    if (made < 0 || place < 0 || place >= sequence_.size()) return kNoValue;
    if (sequence_.kind(made) != sequence_.kind(place)) return kNoValue;
    const auto outputs = graph_.outputs(sequence_.node(place));
    const auto k = static_cast<size_t>(graph_.output_index(v));
    return k < outputs.size() ? outputs[k] : kNoValue;
  }

  // Follows the operands of two nodes in parallel, as long as the same operators compute them, back
  // to the keys of `found` on the first side, and stores the corresponding values of the second
  // side. False if two paths give different values for one key.
  bool FollowBack(NodeId first, NodeId second, absl::flat_hash_map<ValueId, ValueId>* found) const {
    std::vector<std::pair<NodeId, NodeId>> open = {{first, second}};
    absl::flat_hash_set<std::pair<NodeId, NodeId>> seen;
    while (!open.empty()) {
      const auto [n, m] = open.back();
      open.pop_back();
      if (n == m || !seen.insert({n, m}).second) continue;
      const auto a = graph_.inputs(n), b = graph_.inputs(m);
      for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
        if (a[k] == kNoValue || b[k] == kNoValue) continue;
        if (const auto it = found->find(a[k]); it != found->end()) {
          if (it->second != kNoValue && it->second != b[k]) return false;
          it->second = b[k];
          continue;
        }
        const NodeId x = graph_.producer(a[k]), y = graph_.producer(b[k]);
        if (x == kNoNode || y == kNoNode) continue;
        if (sequence_.kind(sequence_.place(x)) == sequence_.kind(sequence_.place(y))) {
          open.emplace_back(x, y);
        }
      }
    }
    return true;
  }

  // Returns the places in [from, to) of nodes that write caches.
  std::vector<int> WritersIn(int from, int to) const {
    std::vector<int> some;
    for (int place : writers_) {
      if (place >= from && place < to) some.push_back(place);
    }
    return some;
  }

  template <typename Find>
  std::optional<std::vector<ValueId>> All(const std::vector<ValueId>& values,
                                          const Find& find) const {
    std::vector<ValueId> found;
    for (ValueId v : values) {
      const ValueId other = find(v);
      if (other == kNoValue || graph_.producer(other) == kNoNode) return std::nullopt;
      found.push_back(other);
    }
    return found;
  }

  // Returns the values that enter the first layer: the rows of its caches are computed from them in
  // the way in which those of the second layer are computed from the first cut.
  std::optional<std::vector<ValueId>> InFrontOfFirst(
      const std::vector<std::vector<ValueId>>& cuts) const {
    const int end = places_.size() > 1 ? places_[1] : sequence_.size();
    const std::vector<int> first = WritersIn(0, places_[0]), second = WritersIn(places_[0], end);
    if (first.size() != second.size()) return std::nullopt;
    absl::flat_hash_map<ValueId, ValueId> found;
    for (ValueId v : cuts[0]) found[v] = kNoValue;
    for (size_t k = 0; k < first.size(); ++k) {
      if (!FollowBack(sequence_.node(second[k]), sequence_.node(first[k]), &found)) {
        return std::nullopt;
      }
    }
    auto values = All(cuts[0], [&](ValueId v) { return found.at(v); });
    if (!values) return std::nullopt;
    const bool early =
        std::none_of(values->begin(), values->end(), [&](ValueId v) { return late_[v]; });
    return early ? values : std::nullopt;
  }

  // Returns the values that leave the last layer: they stand as far behind the last cut as that
  // stands behind the cut in front of it.
  std::optional<std::vector<ValueId>> BehindLast(
      const std::vector<std::vector<ValueId>>& cuts) const {
    for (size_t k = places_.size(); k-- > 1;) {
      const int length = places_[k] - places_[k - 1];
      const auto& last = cuts.back();
      if (auto found = All(last, [&](ValueId v) { return Shifted(v, length); })) {
        const bool behind = std::all_of(found->begin(), found->end(), [&](ValueId v) {
          return late_[v] && sequence_.place_of(v) > writers_.back();
        });
        if (behind) return found;
      }
    }
    return std::nullopt;
  }

  // Whether the source computes values of these names and types.
  bool IsOfBoth(const std::vector<ValueId>& values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId v) {
      const ValueId theirs = before_.Find(graph_.name(v));
      if (theirs == kNoValue || before_.producer(theirs) == kNoNode) return false;
      if (before_.constant(theirs) != nullptr || graph_.constant(v) != nullptr) return false;
      const int32_t a = before_.type(theirs).elem_type, b = graph_.type(v).elem_type;
      return a == 0 || b == 0 || a == b;
    });
  }

  Cut NamesOf(const std::vector<ValueId>& values) const {
    Cut cut;
    for (ValueId v : values) cut.push_back(graph_.name(v));
    return cut;
  }

  const Graph& before_;
  const Manifest& relation_;
  const LayeredModel after_;
  const Graph& graph_;
  const Sequence& sequence_;
  std::vector<bool> late_;
  absl::flat_hash_set<ValueId> presents_;
  std::vector<int> writers_, places_;  // places of cache writes, and of cuts, ascending
  std::vector<int> open_;              // the number of open values, by place
};

}  // namespace

std::vector<Cut> FindCuts(const Graph& before, const Graph& after, const Manifest& relation) {
  if (HasBodies(before.model()) || HasBodies(after.model())) return {};
  return CutFinder(before, after, relation).Run();
}

}  // namespace kvlift
