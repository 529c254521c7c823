#include "ports/static_cache.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ports/cache_writers.h"
#include "ports/views.h"

namespace kvlift::ports {
namespace {

// Operands.
constexpr size_t kIndices = 2;                                     // of TensorScatter
constexpr size_t kKey = 1, kValue = 2, kPastKey = 4, kNonpad = 6;  // of Attention

class StaticCacheReader {
 public:
  StaticCacheReader(const Graph& graph, StaticCache* cache) : graph_(graph), cache_(*cache) {}

  std::optional<Finding> Run() {
    if (auto refusal = ReadCacheWriters(graph_, &writers_)) return refusal;
    for (size_t k = 0; k < writers_.size(); ++k) {
      by_written_[writers_[k].written] = k;
      by_past_[writers_[k].past] = k;
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.Is(n, "Attention")) continue;
      if (auto refusal = AddAttention(n)) return refusal;
    }
    for (const CacheWriter& writer : writers_) {
      if (paired_.contains(writer.written)) continue;
      return Refusal(graph_, writer.node,
                     fmt::format("no Attention reads {} as keys or values, behind views, casts "
                                 "and scales",
                                 graph_.name(writer.present)));
    }
    for (const CacheWriter& writer : writers_) {
      if (auto refusal =
              AddControl(writer.node, kIndices, "write_indices", &cache_.write_indices)) {
        return refusal;
      }
    }
    for (const NodeId n : attentions_) {
      if (auto refusal = AddControl(n, kNonpad, "nonpad_kv_seqlen", &cache_.kv_length)) {
        return refusal;
      }
    }
    if (cache_.write_indices != cache_.kv_length) return std::nullopt;
    return Refusal(graph_, attentions_.front(),
                   fmt::format("{} is both the write index and the length of the valid rows",
                               graph_.name(cache_.kv_length)));
  }

 private:
  ValueId Operand(NodeId n, size_t k) const {
    return k < graph_.inputs(n).size() ? graph_.inputs(n)[k] : kNoValue;
  }

  std::optional<Finding> AddAttention(NodeId n) {
    for (const size_t k : {kPastKey, kPastKey + 1}) {
      const ValueId past = Operand(n, k);
      if (past == kNoValue) continue;
      return Refusal(
          graph_, n,
          fmt::format("{} appends to a past of its own, {}", Named(graph_, n), graph_.name(past)));
    }
    const CacheWriter *key = nullptr, *value = nullptr;
    if (auto refusal = FindCache(n, kKey, &key)) return refusal;
    if (auto refusal = FindCache(n, kValue, &value)) return refusal;
    if (key == nullptr && value == nullptr) return std::nullopt;
    if (key == nullptr || value == nullptr) {
      return Refusal(graph_, n,
                     fmt::format("{} reads {} from {} and {} from no cache", Named(graph_, n),
                                 key != nullptr ? "keys" : "values",
                                 graph_.name((key != nullptr ? key : value)->present),
                                 key != nullptr ? "values" : "keys"));
    }
    if (key == value) {
      return Refusal(
          graph_, n,
          fmt::format(
              "{} holds keys and values in one tensor (read by {}), and static_cache names one "
              "for each",
              graph_.name(key->past), Named(graph_, n)));
    }
    return Pair(n, *key, *value);
  }

  // Finds the cache that an operand of an Attention reads; leaves null if it reads none.
  std::optional<Finding> FindCache(NodeId n, size_t k, const CacheWriter** found) const {
    const Read read = BehindReads(graph_, Operand(n, k));
    if (const auto past = by_past_.find(read.root); past != by_past_.end()) {
      return Refusal(graph_, n,
                     fmt::format("{} reads {} without the rows of the step", Named(graph_, n),
                                 graph_.name(read.root)));
    }
    const auto written = by_written_.find(read.root);
    if (written == by_written_.end()) return std::nullopt;
    *found = &writers_[written->second];
    if (read.part == kNoNode) return std::nullopt;
    return Refusal(
        graph_, n,
        fmt::format("{} reads a part of {} ({}), and static_cache names whole tensors",
                    Named(graph_, n), graph_.name((*found)->past), Named(graph_, read.part)));
  }

  // Adds a pair of caches, which later Attention nodes may read as well.
  std::optional<Finding> Pair(NodeId n, const CacheWriter& key, const CacheWriter& value) {
    attentions_.push_back(n);
    const auto of_key = paired_.find(key.written), of_value = paired_.find(value.written);
    const std::pair<ValueId, ValueId> pair = {key.written, value.written};
    if (of_key == paired_.end() && of_value == paired_.end()) {
      paired_[key.written] = paired_[value.written] = {pair, n};
      cache_.layers.push_back(
          {{key.past, key.present, key.node}, {value.past, value.present, value.node}, n});
      return std::nullopt;
    }
    const auto known = of_key != paired_.end() ? of_key : of_value;
    if (known->second.pair == pair) return std::nullopt;
    return Refusal(graph_, n,
                   fmt::format("{} reads {} and {} as keys and values, and {} reads one of them "
                               "otherwise",
                               Named(graph_, n), graph_.name(key.past), graph_.name(value.past),
                               Named(graph_, known->second.attention)));
  }

  // Reads the input that an operand comes from, the same for all nodes.
  std::optional<Finding> AddControl(NodeId n, size_t k, std::string_view operand,
                                    ValueId* input) const {
    constexpr std::string_view kConvert =
        "; `convert --target genai-static` makes it an input where the source's caches grow";
    const ValueId given = Operand(n, k);
    if (given == kNoValue) {
      return Refusal(graph_, n, fmt::format("{} has no {}{}", Named(graph_, n), operand, kConvert));
    }
    const ValueId root = BehindVectorViews(graph_, given);
    if (!graph_.is_graph_input(root)) {
      const NodeId maker = graph_.producer(root);
      return Refusal(
          graph_, n,
          fmt::format(
              "{} of {} is {}, which {}{}", operand, Named(graph_, n), graph_.name(root),
              maker == kNoNode ? "is a constant" : fmt::format("{} computes", Named(graph_, maker)),
              kConvert));
    }
    if (*input == kNoValue) *input = root;
    if (*input == root) return std::nullopt;
    return Refusal(graph_, n,
                   fmt::format("{} of {} is {}, and of others {}: static_cache names one input",
                               operand, Named(graph_, n), graph_.name(root), graph_.name(*input)));
  }

  struct Paired {
    std::pair<ValueId, ValueId> pair;
    NodeId attention = kNoNode;
  };

  const Graph& graph_;
  StaticCache& cache_;
  std::vector<CacheWriter> writers_;
  absl::flat_hash_map<ValueId, size_t> by_written_, by_past_;  // indices into writers_
  absl::flat_hash_map<ValueId, Paired> paired_;                // by what TensorScatter gives
  std::vector<NodeId> attentions_;                             // the readers of caches
};

}  // namespace

std::optional<Finding> ReadStaticCache(const Graph& graph, StaticCache* cache) {
  return StaticCacheReader(graph, cache).Run();
}

}  // namespace kvlift::ports
