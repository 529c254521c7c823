#include "verify/inputs/relation_check.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/live_nodes.h"
#include "ir/types.h"

namespace kvlift {
namespace {

bool IsInput(const Graph& graph, const std::string& name) {
  const ValueId v = graph.Find(name);
  return v != kNoValue && graph.is_graph_input(v);
}

bool IsOutput(const Graph& graph, const std::string& name) {
  const ValueId v = graph.Find(name);
  return v != kNoValue && graph.is_graph_output(v);
}

std::string Lacks(const std::string& model, const std::string& what, const std::string& name) {
  return fmt::format("the relation names {}, which is no {} of {}", name, what, model);
}

std::string Sorted(std::string letters) {
  std::sort(letters.begin(), letters.end());
  return letters;
}

// Whether the layout has distinct letters, B and S among them, and as many as the tensor has axes
// apart from the `removed` ones on which an index is selected.
bool LayoutFits(const Graph& graph, const std::string& tensor, const std::string& layout,
                size_t removed) {
  const std::set<char> letters(layout.begin(), layout.end());
  if (letters.size() != layout.size() || letters.count('B') == 0 || letters.count('S') == 0) {
    return false;
  }
  const auto& shape = graph.type(graph.Find(tensor)).shape;
  return shape && shape->size() == layout.size() + removed;
}

// Returns true if `dtype`, which may be empty, is not the element type that the model declares.
bool IsOtherType(const Graph& graph, const std::string& input, const std::string& dtype) {
  const int32_t type = graph.type(graph.Find(input)).elem_type;
  return !dtype.empty() && type != onnx::TensorProto::UNDEFINED && dtype != ElementTypeName(type);
}

// Returns the sliding buffer that a graph input is: the past of a GroupQueryAttention with
// sliding_window_cache. Returns nullopt for other graph inputs. `axis` is the axis of the rows.
std::optional<SlidingBuffer> SlidingBufferOf(const Graph& graph, ValueId past, int64_t axis) {
  constexpr int kPastKey = 3, kPastValue = 4;
  for (const Use& use : LiveUses(graph, LiveNodes(graph), past)) {
    if (use.kind != Use::Kind::kNodeInput) continue;
    const onnx::NodeProto& node = graph.node(use.node);
    if (node.domain() != "com.microsoft" || node.op_type() != "GroupQueryAttention" ||
        (use.index != kPastKey && use.index != kPastValue) ||
        IntAttribute(node, "sliding_window_cache", 0) != 1) {
      continue;
    }
    SlidingBuffer buffer{IntAttribute(node, "local_window_size", -1), std::nullopt};
    const auto& shape = graph.type(past).shape;
    if (shape && std::ssize(*shape) > axis) buffer.capacity = (*shape)[axis].value;
    return buffer;
  }
  return std::nullopt;
}

std::string SlidingMisfit(const Graph& source, const ManifestCache& cache) {
  const auto buffer = SlidingBufferOf(source, source.Find(cache.source.input), cache.source.axis);
  if (cache.source.sliding == buffer || (!cache.source.sliding && !BecomesBuffer(cache))) return {};
  if (!buffer) {
    return fmt::format("{} is no past of a GroupQueryAttention with sliding_window_cache",
                       cache.source.input);
  }
  return fmt::format(
      "{} is a sliding buffer for a window of {} tokens, which the relation does not say",
      cache.source.input, buffer->window);
}

std::string CacheMisfit(const Graph& source, const Graph& after, const ManifestCache& cache) {
  if (!IsInput(source, cache.source.input)) return Lacks("the source", "input", cache.source.input);
  if (!IsOutput(source, cache.source.output)) {
    return Lacks("the source", "output", cache.source.output);
  }
  if (!IsInput(after, cache.input)) return Lacks("the converted model", "input", cache.input);
  if (!IsOutput(after, cache.output)) return Lacks("the converted model", "output", cache.output);
  std::set<int64_t> fixed;
  const auto rank = static_cast<int64_t>(cache.source.layout.size() + cache.source.select.size());
  for (const Select& s : cache.source.select) {
    if (s.axis < 0 || s.axis >= rank || s.index < 0 || !fixed.insert(s.axis).second) {
      return fmt::format("{} has no axis {} to select from", cache.source.input, s.axis);
    }
  }
  if (!LayoutFits(source, cache.source.input, cache.source.layout, cache.source.select.size())) {
    return fmt::format("{} does not have the layout {}", cache.source.input, cache.source.layout);
  }
  for (const Select& s : cache.source.select) {
    const Dim& dim = (*source.type(source.Find(cache.source.input)).shape)[s.axis];
    if (s.index >= dim.value.value_or(s.index + 1)) {
      return fmt::format("{} has no index {} on axis {}", cache.source.input, s.index, s.axis);
    }
  }
  if (!LayoutFits(after, cache.input, cache.layout, 0) ||
      Sorted(cache.layout) != Sorted(cache.source.layout)) {
    return fmt::format("{} does not have the layout {}", cache.input, cache.layout);
  }
  if (static_cast<int64_t>(cache.layout.find('S')) != cache.axis) {
    return fmt::format("axis {} of {} is not its sequence axis", cache.axis, cache.input);
  }
  if (IsOtherType(after, cache.input, cache.dtype)) {
    return fmt::format("{} does not hold {}", cache.input, cache.dtype);
  }
  return SlidingMisfit(source, cache);
}

// Returns true if an output of the model is computed from the input.
bool IsRead(const Graph& graph, const std::string& input) {
  const ValueId value = graph.Find(input);
  if (value == kNoValue) return false;
  const absl::flat_hash_set<NodeId> live = LiveNodes(graph);
  const auto uses = graph.uses(value);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return use.kind == Use::Kind::kGraphOutput || live.contains(use.node);
  });
}

// Returns a sentence about the first input or output of the converted model that has two places in
// the relation, or the first cache that has none among them, or empty.
std::string Misplaced(const Manifest& relation) {
  std::set<std::string> inputs, outputs, fed, fetched;
  for (const ManifestInput& input : relation.inputs) {
    if (!inputs.insert(input.name).second) {
      return fmt::format("the input {} has two places in the relation", input.name);
    }
    if (const CacheInput* cache = AsCache(input)) fed.insert(cache->id);
  }
  for (const ManifestOutput& output : relation.outputs) {
    if (!outputs.insert(output.name).second) {
      return fmt::format("the output {} has two places in the relation", output.name);
    }
    if (const CacheOutput* cache = AsCache(output)) fetched.insert(cache->id);
  }
  for (const ManifestCache& cache : relation.caches) {
    if (fed.contains(cache.id) && fetched.contains(cache.id)) continue;
    return fmt::format("no {} of the relation is that of the cache {}",
                       fed.contains(cache.id) ? "output" : "input", cache.id);
  }
  return {};
}

// Returns a sentence about the first input or output of either model that the relation leaves out,
// or both drops and feeds, or empty.
std::string Unaccounted(const Graph& source, const Graph& after, const Manifest& relation) {
  std::set<std::string> inputs, outputs, source_inputs, source_outputs;
  for (const ManifestInput& i : relation.inputs) {
    inputs.insert(i.name);
    if (HasSourceInput(i)) source_inputs.insert(NameInSource(i));
  }
  for (const DroppedInput& d : relation.dropped) {
    if (source_inputs.count(d.name) == 0) continue;
    return fmt::format("the relation both drops and feeds {}", d.name);
  }
  for (const ManifestOutput& o : relation.outputs) {
    outputs.insert(o.name);
    if (!IsCache(o)) source_outputs.insert(NameInSource(o));
  }
  for (const ManifestCache& c : relation.caches) {
    source_inputs.insert(c.source.input);
    source_outputs.insert(c.source.output);
  }
  for (const DroppedInput& d : relation.dropped) {
    source_inputs.insert(d.name);
    if (!IsGiven(d, DroppedValue::kNotRead) || !IsRead(source, d.name)) continue;
    return fmt::format("the relation says that {} is not read, and the source reads it", d.name);
  }
  const auto find = [](const Graph& graph, absl::Span<const ValueId> values,
                       const std::set<std::string>& known, const char* what) {
    for (ValueId v : values) {
      if (known.count(graph.name(v)) == 0) {
        return fmt::format("{} {} has no place in the relation", what, graph.name(v));
      }
    }
    return std::string();
  };
  for (const std::string& text :
       {find(source, source.graph_inputs(), source_inputs, "the source's input"),
        find(source, source.graph_outputs(), source_outputs, "the source's output"),
        find(after, after.graph_inputs(), inputs, "the converted model's input"),
        find(after, after.graph_outputs(), outputs, "the converted model's output")}) {
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace

std::string Misfit(const Graph& source, const Graph& after, const Manifest& relation) {
  if (std::string text = Unaccounted(source, after, relation); !text.empty()) return text;
  std::map<std::string, const ManifestCache*> caches;
  for (const ManifestCache& cache : relation.caches) {
    if (!caches.emplace(cache.id, &cache).second) {
      return fmt::format("two caches have the id {}", cache.id);
    }
    if (std::string text = CacheMisfit(source, after, cache); !text.empty()) return text;
  }
  for (const ManifestInput& input : relation.inputs) {
    if (!IsInput(after, input.name)) return Lacks("the converted model", "input", input.name);
    if (const ControlInput* control = AsControl(input)) {
      if (control->value == ControlValue::kSlots || control->value == ControlValue::kSequences) {
        return fmt::format("the relation feeds {} to {}, which only companion models take",
                           WordOf(control->value), input.name);
      }
      const bool one_each =
          absl::c_all_of(control->shape, [](const std::string& dim) { return dim == "B"; });
      if (control->value == ControlValue::kPositions && one_each) {
        return fmt::format("the relation feeds {} to {}, which has no axis for the new tokens",
                           WordOf(control->value), input.name);
      }
      if (!IsOtherType(after, input.name, control->dtype)) continue;
      return fmt::format("{} does not hold {}", input.name, control->dtype);
    }
    if (const PaddedInput* padded = AsPadded(input)) {
      const auto& shape = after.type(after.Find(input.name)).shape;
      if (padded->axis < 0 || (shape && padded->axis >= std::ssize(*shape))) {
        return fmt::format("{} has no axis {} to pad", input.name, padded->axis);
      }
    }
    if (const CacheInput* cache = AsCache(input)) {
      const auto it = caches.find(cache->id);
      if (it == caches.end() || it->second->input != input.name) {
        return fmt::format("{} is not the input of a cache {}", input.name, cache->id);
      }
      continue;
    }
    const std::string& theirs = NameInSource(input);
    if (!IsInput(source, theirs)) return Lacks("the source", "input", theirs);
  }
  for (const ManifestOutput& output : relation.outputs) {
    if (!IsOutput(after, output.name)) return Lacks("the converted model", "output", output.name);
    if (const CacheOutput* cache = AsCache(output)) {
      const auto it = caches.find(cache->id);
      if (it == caches.end() || it->second->output != output.name) {
        return fmt::format("{} is not the output of a cache {}", output.name, cache->id);
      }
      continue;
    }
    const std::string& theirs = NameInSource(output);
    if (!IsOutput(source, theirs)) return Lacks("the source", "output", theirs);
  }
  return Misplaced(relation);
}

}  // namespace kvlift
