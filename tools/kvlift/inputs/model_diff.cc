#include "kvlift/inputs/model_diff.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"

namespace kvlift::cli {
namespace {

// Returns a key of type, dims and elements: equal tensors have equal keys.
std::string ContentKey(const onnx::TensorProto& tensor) {
  std::string key = fmt::format("{}[{}]", tensor.data_type(), fmt::join(tensor.dims(), ","));
  if (IsElsewhere(tensor)) {
    for (const auto& entry : tensor.external_data()) key += '|' + entry.SerializeAsString();
    return key;
  }
  RawData raw = RawDataOf(tensor);
  std::optional<std::string> copy;
  if (raw.bytes.empty()) {
    if (auto bytes = InlineBytes(tensor); bytes.ok()) copy = *std::move(bytes);
    raw.bytes = copy ? std::string_view(*copy) : std::string_view();
  }
  // Strings have no raw bytes.
  if (raw.bytes.empty() && tensor.string_data_size() > 0) copy = tensor.SerializeAsString();
  if (copy) raw.bytes = *copy;
  return key + fmt::format("{:016x}.{}", absl::HashOf(raw.bytes), raw.bytes.size());
}

int64_t BytesOf(const onnx::TensorProto& tensor) {
  const auto count = NumElements(tensor);
  const auto bytes = count.ok() ? ByteSize(tensor.data_type(), *count) : count;
  return bytes.ok() ? *bytes : 0;
}

std::string OpName(const onnx::NodeProto& node) {
  const bool plain = node.domain().empty() || node.domain() == "ai.onnx";
  return plain ? node.op_type() : node.domain() + "::" + node.op_type();
}

// Returns the attributes by name. Tensors are compared by content, since their location differs
// from file to file.
std::map<std::string, std::string> Attributes(const onnx::NodeProto& node) {
  std::map<std::string, std::string> texts;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_t()) {
      texts[attribute.name()] = ContentKey(attribute.t());
      continue;
    }
    onnx::AttributeProto bare = attribute;
    bare.clear_doc_string();
    texts[attribute.name()] = bare.SerializeAsString();
  }
  return texts;
}

std::map<std::string, int64_t> Opsets(const onnx::ModelProto& model) {
  std::map<std::string, int64_t> versions;
  for (const auto& import : model.opset_import()) {
    versions[import.domain().empty() ? "ai.onnx" : import.domain()] = import.version();
  }
  versions["IR"] = model.ir_version();
  return versions;
}

std::map<std::string, int64_t> Operators(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) ++counts[OpName(graph.node(n))];
  return counts;
}

std::vector<CountChange> Changes(const std::map<std::string, int64_t>& before,
                                 const std::map<std::string, int64_t>& after) {
  std::map<std::string, CountChange> all;
  for (const auto& [what, count] : before) all[what].before = count;
  for (const auto& [what, count] : after) all[what].after = count;
  std::vector<CountChange> changes;
  for (auto& [what, change] : all) {
    if (change.before == change.after) continue;
    change.what = what;
    changes.push_back(change);
  }
  return changes;
}

// Compares the types of values by name, in the order of BEFORE, then of AFTER.
std::vector<ValueChange> InterfaceChanges(const Graph& before, const Graph& after,
                                          absl::Span<const ValueId> old_values,
                                          absl::Span<const ValueId> new_values) {
  std::vector<ValueChange> changes;
  const auto find = [](const Graph& graph, absl::Span<const ValueId> values, const auto& name) {
    const auto it = std::find_if(values.begin(), values.end(),
                                 [&](ValueId v) { return graph.name(v) == name; });
    return it == values.end() ? std::string() : TypeText(graph.type(*it));
  };
  for (const ValueId v : old_values) {
    const std::string was = TypeText(before.type(v));
    const std::string is = find(after, new_values, before.name(v));
    if (was != is) changes.push_back({before.name(v), was, is});
  }
  for (const ValueId v : new_values) {
    if (!find(before, old_values, after.name(v)).empty()) continue;
    changes.push_back({after.name(v), "", TypeText(after.type(v))});
  }
  return changes;
}

// Pairs the nodes of AFTER, in topological order, with those of BEFORE.
class Matcher {
 public:
  Matcher(const Graph& before, const Graph& after)
      : before_(before), after_(after), twins_(after.num_values(), kNoValue) {
    diff_.before.assign(before.num_nodes(), Fate::kGone);
    diff_.after.assign(after.num_nodes(), Fate::kGone);
  }

  ModelDiff Run() {
    PairInputs();
    PairConstants();
    for (NodeId n = 0; n < before_.num_nodes(); ++n) {
      keys_[Key(before_, n, [](ValueId v) { return v; })].push_back(n);
    }
    for (NodeId n = 0; n < after_.num_nodes(); ++n) PairNode(n);
    for (NodeId n = 0; n < before_.num_nodes(); ++n) {
      if (diff_.before[n] == Fate::kGone) diff_.removed.push_back(Ref(before_, n));
    }
    diff_.inputs = InterfaceChanges(before_, after_, before_.graph_inputs(), after_.graph_inputs());
    diff_.outputs =
        InterfaceChanges(before_, after_, before_.graph_outputs(), after_.graph_outputs());
    diff_.opsets = Changes(Opsets(before_.model()), Opsets(after_.model()));
    diff_.operators = Changes(Operators(before_), Operators(after_));
    return std::move(diff_);
  }

 private:
  // Returns a key that is equal for nodes that are the same if their values are.
  template <typename Twin>
  std::string Key(const Graph& graph, NodeId n, Twin twin) const {
    std::string key = OpName(graph.node(n));
    for (const auto& [name, text] : Attributes(graph.node(n))) {
      key += fmt::format("\n{} {} ", name, text.size()) + text;
    }
    for (const ValueId v : graph.inputs(n)) key += fmt::format(" {}", v == kNoValue ? v : twin(v));
    for (const ValueId v : graph.captures(n)) key += fmt::format(" c{}", twin(v));
    return key + fmt::format(" -> {}", graph.outputs(n).size());
  }

  static NodeRef Ref(const Graph& graph, NodeId n) {
    return {graph.NodeName(n), OpName(graph.node(n))};
  }

  void PairInputs() {
    for (const ValueId v : after_.graph_inputs()) {
      const ValueId twin = before_.Find(after_.name(v));
      if (twin != kNoValue && before_.is_graph_input(twin)) twins_[v] = twin;
    }
  }

  static bool IsInitializer(const Graph& graph, ValueId v) {
    return graph.constant(v) != nullptr && graph.producer(v) == kNoNode;
  }

  void PairConstants() {
    absl::flat_hash_map<std::string, ValueId> by_content;
    std::vector<std::string> contents(before_.num_values());
    std::vector<bool> taken(before_.num_values());
    for (ValueId v = 0; v < before_.num_values(); ++v) {
      if (!IsInitializer(before_, v)) continue;
      contents[v] = ContentKey(*before_.constant(v));
      by_content.try_emplace(contents[v], v);
      diff_.constants.bytes_before += BytesOf(*before_.constant(v));
    }
    for (ValueId v = 0; v < after_.num_values(); ++v) {
      if (!IsInitializer(after_, v)) continue;
      diff_.constants.bytes_after += BytesOf(*after_.constant(v));
      const std::string content = ContentKey(*after_.constant(v));
      const ValueId named = before_.Find(after_.name(v));
      const bool same_name = named != kNoValue && IsInitializer(before_, named);
      if (same_name && contents[named] == content) {
        twins_[v] = named;
      } else if (const auto it = by_content.find(content); it != by_content.end()) {
        twins_[v] = it->second;
      } else {
        ++(same_name ? diff_.constants.changed : diff_.constants.added);
        if (same_name) taken[named] = true;
        continue;
      }
      ++diff_.constants.kept;
      taken[twins_[v]] = true;
    }
    for (ValueId v = 0; v < before_.num_values(); ++v) {
      if (IsInitializer(before_, v) && !taken[v]) ++diff_.constants.removed;
    }
  }

  // Returns the node of BEFORE that makes the value of the same name with the same operator.
  NodeId Namesake(NodeId n) const {
    for (const ValueId v : after_.outputs(n)) {
      if (v == kNoValue) continue;
      const ValueId other = before_.Find(after_.name(v));
      const NodeId maker = other == kNoValue ? kNoNode : before_.producer(other);
      if (maker == kNoNode || diff_.before[maker] != Fate::kGone) return kNoNode;
      return OpName(before_.node(maker)) == OpName(after_.node(n)) ? maker : kNoNode;
    }
    return kNoNode;
  }

  void PairNode(NodeId n) {
    const NodeId namesake = Namesake(n);
    const std::string key = Key(after_, n, [this](ValueId v) {
      return twins_[v] == kNoValue ? kNoValue - 1 - v : twins_[v];
    });
    if (const auto it = keys_.find(key); it != keys_.end()) {
      auto& free = it->second;
      std::erase_if(free, [this](NodeId m) { return diff_.before[m] != Fate::kGone; });
      const auto same = std::find(free.begin(), free.end(), namesake);
      if (!free.empty()) return Pair(n, same != free.end() ? *same : free.front(), Fate::kKept);
    }
    if (namesake == kNoNode) {
      diff_.added.push_back(Ref(after_, n));
      return;
    }
    diff_.changed.push_back({after_.NodeName(n), OpName(after_.node(n)), WhatDiffers(namesake, n)});
    Pair(n, namesake, Fate::kChanged);
  }

  void Pair(NodeId n, NodeId twin, Fate fate) {
    diff_.before[twin] = diff_.after[n] = fate;
    if (fate == Fate::kKept) ++diff_.kept;
    const auto outputs = after_.outputs(n), others = before_.outputs(twin);
    for (size_t k = 0; k < std::min(outputs.size(), others.size()); ++k) {
      if (outputs[k] != kNoValue) twins_[outputs[k]] = others[k];
    }
  }

  std::vector<std::string> WhatDiffers(NodeId old_node, NodeId new_node) const {
    std::vector<std::string> what;
    auto old_attributes = Attributes(before_.node(old_node));
    for (const auto& [name, text] : Attributes(after_.node(new_node))) {
      const auto it = old_attributes.find(name);
      if (it == old_attributes.end()) {
        what.push_back("attribute " + name + " is new");
      } else if (it->second != text) {
        what.push_back("attribute " + name + " differs");
      }
      old_attributes.erase(name);
    }
    for (const auto& [name, text] : old_attributes)
      what.push_back("attribute " + name + " is gone");
    const auto old_inputs = before_.inputs(old_node), new_inputs = after_.inputs(new_node);
    for (size_t k = 0; k < std::max(old_inputs.size(), new_inputs.size()); ++k) {
      const ValueId was = k < old_inputs.size() ? old_inputs[k] : kNoValue;
      const ValueId is = k < new_inputs.size() ? new_inputs[k] : kNoValue;
      if (is == kNoValue ? was == kNoValue : was != kNoValue && twins_[is] == was) continue;
      what.push_back(fmt::format("input {}: {} -> {}", k,
                                 was == kNoValue ? "none" : before_.name(was),
                                 is == kNoValue ? "none" : after_.name(is)));
    }
    if (what.empty()) what.emplace_back("the body reads other values");
    return what;
  }

  const Graph &before_, &after_;
  std::vector<ValueId> twins_;  // by value of AFTER: its counterpart in BEFORE
  absl::flat_hash_map<std::string, std::vector<NodeId>> keys_;
  ModelDiff diff_;
};

}  // namespace

bool ModelDiff::Same() const {
  return changed.empty() && removed.empty() && added.empty() && inputs.empty() && outputs.empty() &&
         opsets.empty() && constants.changed == 0 && constants.removed == 0 && constants.added == 0;
}

ModelDiff Diff(const Graph& before, const Graph& after) { return Matcher(before, after).Run(); }

std::string TypeText(const TensorType& type) {
  std::string text = ElementTypeName(type.elem_type);
  if (!type.shape) return text;
  std::vector<std::string> dims;
  for (const Dim& dim : *type.shape) {
    dims.push_back(dim.value ? fmt::format("{}", *dim.value) : dim.param.empty() ? "?" : dim.param);
  }
  return fmt::format("{} [{}]", text, fmt::join(dims, ", "));
}

}  // namespace kvlift::cli
