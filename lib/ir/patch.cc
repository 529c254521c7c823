#include "ir/patch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;

template <typename... Args>
absl::Status Bad(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError("edit: " + fmt::format(format, std::forward<Args>(args)...));
}

// Sorts the entries, so that error messages do not depend on the order of a hash table.
template <typename K, typename V>
std::map<K, V> Sorted(const absl::flat_hash_map<K, V>& map) {
  return {map.begin(), map.end()};
}

template <typename K>
std::set<K> Sorted(const absl::flat_hash_set<K>& set) {
  return {set.begin(), set.end()};
}

class Editor {
 public:
  Editor(const Graph& graph, const Patch& patch) : graph_(graph), patch_(patch) {}
  absl::StatusOr<ModelProto> Apply();

 private:
  struct Item {
    NodeProto proto;
    std::vector<int> needs;               // items that define its operands, in their order
    std::vector<std::string> free_names;  // operands that no item defines: inputs, initialisers
    bool live = false;
  };
  struct Frame {  // an item on the stack of the depth-first walk
    int item;
    size_t next;
  };

  absl::Status CheckPatch() const;
  absl::Status CollectNodes();
  void RenameOperands(NodeId n, NodeProto& node) const;
  absl::Status RenameCaptures(NodeProto& node) const;
  absl::Status Connect();
  void MarkLive();
  absl::Status Order();
  absl::Status Visit(int root, std::vector<int>& state);
  void EditInitializers(onnx::GraphProto& out) const;
  absl::Status EditInterface(onnx::GraphProto& out) const;
  static void DropStale(onnx::GraphProto& out);

  const Graph& graph_;
  const Patch& patch_;
  std::vector<Item> items_;
  std::vector<int> order_;
  absl::flat_hash_map<std::string, int> producer_;
  absl::flat_hash_set<std::string> needed_;  // names that a live node or a graph output reads
};

absl::StatusOr<ModelProto> Editor::Apply() {
  KV_RETURN_IF_ERROR(CheckPatch());
  KV_RETURN_IF_ERROR(CollectNodes());
  KV_RETURN_IF_ERROR(Connect());
  MarkLive();
  KV_RETURN_IF_ERROR(Order());
  auto model = std::make_shared<ModelProto>(graph_.model());
  onnx::GraphProto& out = *model->mutable_graph();
  out.clear_node();
  for (int i : order_) *out.add_node() = std::move(items_[i].proto);
  KV_RETURN_IF_ERROR(EditInterface(out));
  EditInitializers(out);
  if (patch_.drop_value_info) out.clear_value_info();
  DropStale(out);
  const auto edited = Graph::Build(model);
  if (!edited.ok()) return Bad("{}", std::string(edited.status().message()));
  return std::move(*model);
}

absl::Status Editor::CheckPatch() const {
  for (const auto& [from, to] : Sorted(patch_.replace_uses)) {
    if (graph_.Find(from) == kNoValue) {
      return Bad("there is no value \"{}\" to replace", EscapeTerminal(from));
    }
  }
  for (const auto& [operand, to] : Sorted(patch_.replace_inputs)) {
    const auto [n, index] = operand;
    if (n < 0 || n >= graph_.num_nodes() || index < 0 ||
        index >= static_cast<int>(graph_.inputs(n).size())) {
      return Bad("there is no operand {} of node {} to replace", index, n);
    }
  }
  for (NodeId n : Sorted(patch_.remove_nodes)) {
    if (n < 0 || n >= graph_.num_nodes()) return Bad("there is no node {} to remove", n);
  }
  return absl::OkStatus();
}

absl::Status Editor::CollectNodes() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (patch_.remove_nodes.contains(n)) continue;
    Item& item = items_.emplace_back();
    item.proto = graph_.node(n);
    RenameOperands(n, item.proto);
    if (!graph_.captures(n).empty()) KV_RETURN_IF_ERROR(RenameCaptures(item.proto));
  }
  for (const NodeProto& node : patch_.new_nodes) items_.emplace_back().proto = node;
  return absl::OkStatus();
}

void Editor::RenameOperands(NodeId n, NodeProto& node) const {
  for (int i = 0; i < node.input_size(); ++i) {
    if (const auto it = patch_.replace_inputs.find({n, i}); it != patch_.replace_inputs.end()) {
      node.set_input(i, it->second);
    } else if (const auto use = patch_.replace_uses.find(node.input(i));
               use != patch_.replace_uses.end()) {
      node.set_input(i, use->second);
    }
  }
}

absl::Status Editor::RenameCaptures(NodeProto& node) const {
  KV_ASSIGN_OR_RETURN(const std::vector<Scope> scopes, CollectScopes(node));
  for (int s = 0; s < static_cast<int>(scopes.size()); ++s) {
    const auto rename = [&](std::string* name) {
      const auto it = patch_.replace_uses.find(*name);
      if (it == patch_.replace_uses.end() || Defines(scopes, s, *name)) return absl::OkStatus();
      if (Defines(scopes, s, it->second)) {
        return Bad("a body of node \"{}\" has a value of its own named \"{}\"",
                   EscapeTerminal(node.name()), EscapeTerminal(it->second));
      }
      *name = it->second;
      return absl::OkStatus();
    };
    // `node` is not const, so its bodies are not const either.
    auto& body = const_cast<onnx::GraphProto&>(*scopes[s].graph);
    for (auto& inner : *body.mutable_node()) {
      for (auto& input : *inner.mutable_input()) KV_RETURN_IF_ERROR(rename(&input));
    }
    for (auto& output : *body.mutable_output()) {
      KV_RETURN_IF_ERROR(rename(output.mutable_name()));
    }
  }
  return absl::OkStatus();
}

absl::Status Editor::Connect() {
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    for (const std::string& output : items_[i].proto.output()) {
      if (!output.empty() && !producer_.try_emplace(output, i).second) {
        return Bad("\"{}\" is defined twice", EscapeTerminal(output));
      }
    }
  }
  for (const auto& tensor : patch_.new_initializers) {
    if (producer_.contains(tensor.name())) {
      return Bad("\"{}\" is defined twice", EscapeTerminal(tensor.name()));
    }
  }
  for (Item& item : items_) {
    const auto need = [&](std::string_view name) {
      if (name.empty()) return;
      const auto it = producer_.find(absl::string_view(name.data(), name.size()));
      if (it != producer_.end()) {
        item.needs.push_back(it->second);
      } else {
        item.free_names.emplace_back(name);
      }
    };
    for (const std::string& input : item.proto.input()) need(input);
    const auto scopes = CollectScopes(item.proto);
    if (!scopes.ok()) return Bad("{}", std::string(scopes.status().message()));
    for (std::string_view name : CapturedNames(*scopes)) need(name);
  }
  return absl::OkStatus();
}

void Editor::MarkLive() {
  std::vector<int> open;
  const auto mark = [&](int i) {
    if (items_[i].live) return;
    items_[i].live = true;
    open.push_back(i);
  };
  for (const auto& output : graph_.proto().output()) {
    const auto it = producer_.find(output.name());
    if (it != producer_.end()) mark(it->second);
    needed_.insert(output.name());
  }
  if (!patch_.remove_dead) {
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) mark(i);
  }
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    for (int j : items_[i].needs) mark(j);
    needed_.insert(items_[i].free_names.begin(), items_[i].free_names.end());
  }
}

// Keeps the order of the source. The items that a node needs and that are not placed yet come right
// before it, so a new node stands before its first reader.
absl::Status Editor::Order() {
  std::vector<int> state(items_.size(), 0);
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    if (items_[i].live) KV_RETURN_IF_ERROR(Visit(i, state));
  }
  return absl::OkStatus();
}

absl::Status Editor::Visit(int root, std::vector<int>& state) {
  enum { kNew, kOpen, kDone };
  if (state[root] == kDone) return absl::OkStatus();
  std::vector<Frame> stack = {{root, 0}};
  state[root] = kOpen;
  while (!stack.empty()) {
    Frame& top = stack.back();
    const Item& item = items_[top.item];
    if (top.next == item.needs.size()) {
      state[top.item] = kDone;
      order_.push_back(top.item);
      stack.pop_back();
      continue;
    }
    const int next = item.needs[top.next++];
    if (state[next] == kOpen) {
      return Bad("node \"{}\" depends on its own output",
                 EscapeTerminal(items_[next].proto.name()));
    }
    if (state[next] == kNew) {
      state[next] = kOpen;
      stack.push_back({next, 0});
    }
  }
  return absl::OkStatus();
}

absl::Status Editor::EditInterface(onnx::GraphProto& out) const {
  absl::flat_hash_set<std::string> removed;
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs;
  for (auto& input : *out.mutable_input()) {
    if (patch_.remove_inputs.contains(input.name())) {
      removed.insert(input.name());
    } else {
      *inputs.Add() = std::move(input);
    }
  }
  for (const auto& input : patch_.new_inputs) *inputs.Add() = input;
  *out.mutable_input() = std::move(inputs);
  for (const std::string& name : Sorted(patch_.remove_inputs)) {
    if (!removed.contains(name)) {
      return Bad("there is no graph input \"{}\" to remove", EscapeTerminal(name));
    }
  }
  absl::flat_hash_set<std::string> retyped;
  const auto retype = [&](onnx::ValueInfoProto& info) {
    const auto it = patch_.retype.find(info.name());
    if (it == patch_.retype.end()) return;
    *info.mutable_type() = it->second;
    retyped.insert(info.name());
  };
  for (auto& info : *out.mutable_input()) retype(info);
  for (auto& info : *out.mutable_output()) retype(info);
  if (retyped.size() == patch_.retype.size()) return absl::OkStatus();
  std::set<std::string> missing;
  for (const auto& [name, type] : patch_.retype) {
    if (!retyped.contains(name)) missing.insert(name);
  }
  return Bad("there is no graph input or output \"{}\" to retype",
             EscapeTerminal(*missing.begin()));
}

void Editor::EditInitializers(onnx::GraphProto& out) const {
  for (const auto& tensor : patch_.new_initializers) *out.add_initializer() = tensor;
  if (!patch_.remove_dead) return;
  // An initialiser that is the default of a graph input stays as long as the input does.
  absl::flat_hash_set<std::string> inputs;
  for (const auto& input : out.input()) inputs.insert(input.name());
  const auto dead = [&](const std::string& name) {
    return !needed_.contains(name) && !inputs.contains(name);
  };
  auto& dense = *out.mutable_initializer();
  dense.erase(std::remove_if(dense.begin(), dense.end(),
                             [&](const auto& tensor) { return dead(tensor.name()); }),
              dense.end());
  auto& sparse = *out.mutable_sparse_initializer();
  sparse.erase(std::remove_if(sparse.begin(), sparse.end(),
                              [&](const auto& tensor) { return dead(tensor.values().name()); }),
               sparse.end());
}

// Drops value_info and quantisation annotations of values that the result does not have.
void Editor::DropStale(onnx::GraphProto& out) {
  absl::flat_hash_set<std::string> names;
  for (const auto& input : out.input()) names.insert(input.name());
  for (const auto& tensor : out.initializer()) names.insert(tensor.name());
  for (const auto& tensor : out.sparse_initializer()) names.insert(tensor.values().name());
  for (const auto& node : out.node()) names.insert(node.output().begin(), node.output().end());
  auto& infos = *out.mutable_value_info();
  infos.erase(std::remove_if(infos.begin(), infos.end(),
                             [&](const auto& info) { return !names.contains(info.name()); }),
              infos.end());
  auto& notes = *out.mutable_quantization_annotation();
  notes.erase(std::remove_if(notes.begin(), notes.end(),
                             [&](const auto& note) { return !names.contains(note.tensor_name()); }),
              notes.end());
}

}  // namespace

absl::StatusOr<ModelProto> Apply(const Graph& graph, const Patch& patch) {
  return Editor(graph, patch).Apply();
}

}  // namespace kvlift
