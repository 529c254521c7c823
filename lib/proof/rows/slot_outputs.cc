#include "proof/rows/slot_outputs.h"

#include <algorithm>
#include <optional>

namespace kvlift {
namespace {

using sym::Expr;

// Returns the axis of a value on which each index is the slot of the same number in a past that has
// its slots on axis `slots`: a TensorScatter writes into the past, or the form loads that slot.
std::optional<int> SlotAxisOf(const GraphPair& pair, ValueId value, ValueId past, size_t slots) {
  const Graph& graph = pair.graph();
  const NodeId maker = graph.producer(value);
  if (maker != kNoNode && graph.Is(maker, "TensorScatter") && graph.inputs(maker)[0] == past) {
    return static_cast<int>(slots);
  }
  const sym::Form form = pair.forms().Of(value), of_past = pair.forms().Of(past);
  if (!form.known_rank || form.opaque || !of_past.known_rank || slots >= of_past.shape.size()) {
    return std::nullopt;
  }
  for (Expr load : sym::OuterLoadsOf(form.element)) {
    if (load->source() != past || load->args()[slots]->kind() != sym::Kind::kIndex) continue;
    const int k = load->args()[slots]->index();
    if (form.shape[static_cast<size_t>(k)] == of_past.shape[slots]) return k;
  }
  return std::nullopt;
}

}  // namespace

std::vector<SlotOutput> SlotOutputsOf(const GraphPair& pair, const Manifest& relation) {
  std::vector<SlotOutput> outputs;
  for (const ManifestOutput& output : relation.outputs) {
    const ValueId value = IsCache(output) ? kNoValue : pair.Before(NameInSource(output));
    if (value == kNoValue) continue;
    for (const ManifestCache& cache : relation.caches) {
      const ValueId past = pair.Before(cache.source.input);
      if (cache.source.growing || past == kNoValue || cache.source.axis < 0) continue;
      const auto slots = static_cast<size_t>(cache.source.axis);
      const auto axis = SlotAxisOf(pair, value, past, slots);
      if (!axis) continue;
      outputs.push_back({NameInSource(output), *axis});
      break;
    }
  }
  return outputs;
}

}  // namespace kvlift
