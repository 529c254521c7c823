#include "rewrite/plan/attended_slices.h"

#include <deque>

#include "absl/container/flat_hash_set.h"
#include "rewrite/recognise/axis_letters.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMaxSearched = 64;

// Returns all nodes that the new rows are computed from, without those that only move the cache.
absl::flat_hash_set<NodeId> NodesBehindUpdate(const Graph& graph, const CacheUpdate& update) {
  absl::flat_hash_set<NodeId> nodes;
  std::vector<ValueId> stack = sym::SourcesOf(update.update_element);
  while (!stack.empty()) {
    const NodeId n = graph.producer(stack.back());
    stack.pop_back();
    if (n == kNoNode || !nodes.insert(n).second) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input != kNoValue) stack.push_back(input);
    }
    for (ValueId input : graph.captures(n)) stack.push_back(input);
  }
  return nodes;
}

// Returns true if v is what attention reads, or a slice of it at *fixed_axes.
bool ReadFixedAxes(sym::Forms& forms, const CacheUpdate& update, ValueId v,
                   std::vector<FixedAxis>* fixed_axes) {
  const sym::Form part = forms.Of(v), whole = forms.Of(update.read_by_attention());
  if (!part.known_rank || part.shape.size() > whole.shape.size()) return false;
  if (part.shape.size() == whole.shape.size()) {
    return part.shape == whole.shape && part.element == whole.element;
  }
  sym::Pool& pool = forms.pool();
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(update.layout.size()); ++axis) {
    if (std::string_view("BNSD").find(update.layout[axis]) == std::string_view::npos) {
      axes.push_back(axis);
    }
  }
  // Axes are fixed from the front: a layer, then keys or values.
  const size_t count = whole.shape.size() - part.shape.size();
  if (count > axes.size() || count > 2) return false;
  std::vector<FixedAxis> at;
  for (size_t k = 0; k < count; ++k) {
    if (whole.shape[axes[k]]->kind() != Kind::kInteger) return false;
    at.push_back({axes[k], 0});
  }
  const auto next = [&] {
    for (FixedAxis& fixed : at) {
      if (++fixed.index < whole.shape[fixed.axis]->value()) return true;
      fixed.index = 0;
    }
    return false;
  };
  do {
    std::vector<Expr> index, shape;
    int plain = 0;
    for (int axis = 0; axis < static_cast<int>(whole.shape.size()); ++axis) {
      bool is_fixed = false;
      for (const FixedAxis& fixed : at) {
        if (fixed.axis != axis) continue;
        index.push_back(pool.Integer(fixed.index));
        is_fixed = true;
      }
      if (is_fixed) continue;
      index.push_back(pool.Index(plain++));
      shape.push_back(whole.shape[axis]);
    }
    if (shape != part.shape) return false;
    if (forms.At(update.read_by_attention(), index, sym::Facts{shape}) == part.element) {
      *fixed_axes = at;
      return true;
    }
  } while (next());
  return false;
}

}  // namespace

std::vector<AttendedSlice> FindAttendedSlices(sym::Forms& forms, const CacheUpdate& update) {
  std::vector<AttendedSlice> found;
  const bool packed = HasPackedAxes(update.layout);
  const bool narrower = sym::HoldsNarrowerNumbers(forms, update.pair.past);
  if (!packed && !narrower && !update.window()) return found;
  const Graph& graph = forms.graph();
  absl::flat_hash_set<NodeId> behind;
  if (packed || narrower) behind = NodesBehindUpdate(graph, update);
  std::deque<ValueId> queue = {update.pair.present};
  absl::flat_hash_set<ValueId> seen = {update.pair.present};
  for (int k = 0; k < kMaxSearched && !queue.empty(); ++k) {
    const ValueId v = queue.front();
    queue.pop_front();
    const NodeId n = graph.producer(v);
    if (n == kNoNode || forms.Of(v).opaque || behind.contains(n)) continue;
    AttendedSlice same{v, {}};
    if (v != update.pair.present && ReadFixedAxes(forms, update, v, &same.fixed_axes)) {
      found.push_back(std::move(same));
    }
    for (ValueId input : graph.inputs(n)) {
      if (input == kNoValue || graph.constant(input) != nullptr) continue;
      if (seen.insert(input).second) queue.push_back(input);
    }
  }
  // A reader that new rows are computed from would have to run before the cache is written.
  std::vector<AttendedSlice> usable;
  for (AttendedSlice& same : found) {
    bool early = false;
    for (const Use& use : graph.uses(same.value)) early = early || behind.contains(use.node);
    if (!early) usable.push_back(std::move(same));
  }
  return usable;
}

bool UpdateDependsOn(const Graph& graph, const CacheUpdate& update, NodeId node) {
  // Nodes are in topological order.
  if (graph.producer(update.pair.present) < node) return false;
  return NodesBehindUpdate(graph, update).contains(node);
}

}  // namespace kvlift
