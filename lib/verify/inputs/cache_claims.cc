#include "verify/inputs/cache_claims.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/operators/operator_traits.h"

namespace kvlift {
namespace {

// How the Attention nodes of a model read one cache.
struct Reads {
  bool as_keys = false, as_values = false;
  std::set<int64_t> with_layers;  // the layers of the caches that are read beside it
};

// The reads of a cache, by its id.
using ReadsOfCaches = absl::flat_hash_map<std::string, Reads>;

using CachesByValue = absl::flat_hash_map<ValueId, const ManifestCache*>;

// Returns true if the result holds the rows of the first operand: arranged in another way, or each
// element with another value. A product of matrices, such as a projection of latent rows, makes
// others.
bool HandsOnRows(const Graph& graph, NodeId n) {
  return KeepsElementsApart(graph.node(n)) || graph.Is(n, "DequantizeLinear") ||
         graph.Is(n, "RotaryEmbedding");
}

// Returns the cache whose rows `v` holds, found through nodes that pass on the rows of their first
// operand; null if there is no such cache.
const ManifestCache* CacheBehind(const Graph& graph, ValueId v, const CachesByValue& caches) {
  while (v != kNoValue) {
    if (const auto found = caches.find(v); found != caches.end()) return found->second;
    const NodeId n = graph.producer(v);
    const bool hands_on = n != kNoNode && !graph.inputs(n).empty() && HandsOnRows(graph, n);
    v = hands_on ? graph.inputs(n)[0] : kNoValue;
  }
  return nullptr;
}

ReadsOfCaches ReadsIn(const Graph& graph, const Manifest& relation) {
  CachesByValue caches;
  for (const ManifestCache& cache : relation.caches) {
    caches[graph.Find(cache.input)] = &cache;
    caches[graph.Find(cache.output)] = &cache;
  }
  ReadsOfCaches reads;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!graph.Is(n, "Attention") || graph.inputs(n).size() < 3) continue;
    const ManifestCache* key = CacheBehind(graph, graph.inputs(n)[1], caches);
    const ManifestCache* value = CacheBehind(graph, graph.inputs(n)[2], caches);
    if (key != nullptr) reads[key->id].as_keys = true;
    if (value != nullptr) reads[value->id].as_values = true;
    if (key == nullptr || value == nullptr) continue;
    reads[key->id].with_layers.insert(value->layer);
    reads[value->id].with_layers.insert(key->layer);
  }
  return reads;
}

// Returns true if a node can be the operator of this kind of update. Operators of other domains may
// do anything.
bool MayBe(const onnx::NodeProto& node, UpdateKind kind) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return true;
  const std::string& op = node.op_type();
  switch (kind) {
    case UpdateKind::kScatter:
      return absl::StartsWith(op, "Scatter");
    case UpdateKind::kSelect:
      return op == "Where";
    case UpdateKind::kBlend:
      return op == "Add" || op == "Sub" || op == "Sum";
    case UpdateKind::kFused:
      return op == "Attention";
    case UpdateKind::kSliding:
      return false;  // only operators of other domains do
    case UpdateKind::kTensorScatter:
      return op == "TensorScatter";
    case UpdateKind::kWindow:
    case UpdateKind::kShift:
      return op == "Slice" || op == "Split" || absl::StartsWith(op, "Gather");
    default:
      return true;  // the proof shows which rows are kept
  }
}

// Returns true if a node that the past leads to, and that leads to the present, may be of the kind
// that the relation names. Nodes are in topological order, so that none of them stands behind the
// one that makes the present.
bool IsWrittenBySuch(const Graph& source, const ManifestCache& cache) {
  const NodeId last = source.producer(source.Find(cache.source.output));
  absl::flat_hash_set<NodeId> behind_past;
  std::vector<ValueId> open = {source.Find(cache.source.input)};
  const auto take = [&](NodeId n) {
    if (n == kNoNode || n > last || !behind_past.insert(n).second) return;
    for (ValueId v : source.outputs(n)) {
      if (v != kNoValue) open.push_back(v);
    }
  };
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue) continue;
    for (const Use& use : source.uses(v)) take(use.node);
  }
  absl::flat_hash_set<NodeId> seen;
  std::vector<NodeId> back = {last};
  while (!back.empty()) {
    const NodeId n = back.back();
    back.pop_back();
    if (n == kNoNode || !behind_past.contains(n) || !seen.insert(n).second) continue;
    if (MayBe(source.node(n), cache.source.kind) || !source.captures(n).empty()) return true;
    for (ValueId v : source.inputs(n)) {
      if (v != kNoValue) back.push_back(source.producer(v));
    }
  }
  return false;
}

bool HasRoleOfAttention(const ManifestCache& cache) {
  return cache.role == CacheRole::kKey || cache.role == CacheRole::kValue;
}

Assumption Claim(const std::string& input, std::string condition) {
  return {AssumptionKind::kOther, input, std::move(condition), AssumptionSource::kManifest, false};
}

}  // namespace

std::string RoleContradiction(const Manifest& relation, const Graph& after) {
  const ReadsOfCaches reads = ReadsIn(after, relation);
  for (const ManifestCache& cache : relation.caches) {
    const auto found = reads.find(cache.id);
    if (found == reads.end() || !HasRoleOfAttention(cache)) continue;
    const bool says_keys = cache.role == CacheRole::kKey;
    const bool is_so = says_keys ? found->second.as_keys : found->second.as_values;
    if (is_so) continue;
    return fmt::format("the relation says that {} holds {}, and attention reads it as {}",
                       cache.input, says_keys ? "keys" : "values", says_keys ? "values" : "keys");
  }
  return {};
}

Assumptions UnconfirmedClaims(const Manifest& relation, const Graph& source, const Graph& after) {
  const ReadsOfCaches reads = ReadsIn(after, relation);
  Assumptions all;
  for (const ManifestCache& cache : relation.caches) {
    const auto found = reads.find(cache.id);
    const bool is_read = found != reads.end();
    const bool beside = is_read && !found->second.with_layers.empty();
    if (!is_read && !HoldsScales(cache.role)) {
      all.Add(Claim(cache.input, fmt::format("{} is the {} of layer {}", cache.input,
                                             WordOf(cache.role), cache.layer)));
    } else if (beside && !found->second.with_layers.contains(cache.layer)) {
      all.Add(Claim(cache.input, fmt::format("{} is of layer {}", cache.input, cache.layer)));
    }
    if (!IsWrittenBySuch(source, cache)) {
      all.Add(Claim(cache.input, fmt::format("the source writes {} by {}", cache.source.input,
                                             WordOf(cache.source.kind))));
    }
    const auto& type = after.type(after.Find(cache.input));
    const bool says_slots = relation.capacity_value && !cache.ring && type.shape;
    if (says_slots && !(*type.shape)[cache.axis].value.has_value()) {
      all.Add(Claim(cache.input,
                    fmt::format("{} has {} slots", cache.input, *relation.capacity_value)));
    }
  }
  return all;
}

}  // namespace kvlift
