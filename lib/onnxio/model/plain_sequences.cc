#include "onnxio/model/plain_sequences.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "fmt/format.h"
#include "ir/constant_node.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/operators/operator_changes.h"
#include "ir/subgraphs.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using Tensors = std::vector<std::string>;  // the names of the tensors in a sequence

constexpr size_t kMostTensors = 64;          // in one sequence
constexpr int kMostAddedNodes = 10000;       // that bodies of SequenceMap may add
constexpr int64_t kUnsqueezeTakesAxes = 13;  // the opset since which they are an input

bool IsOfSequences(const NodeProto& node) {
  return IsDefaultDomain(node.domain()) &&
         (absl::StartsWith(node.op_type(), "Sequence") || node.op_type() == "ConcatFromSequence");
}

class SequenceRemover {
 public:
  explicit SequenceRemover(onnx::ModelProto* model)
      : graph_(*model->mutable_graph()), opset_(DefaultOpset(*model)), names_(NamesIn(graph_)) {}

  void Run() {
    Scope scope;
    Replace(&graph_, &scope);
    RemoveUnread();
  }

 private:
  struct Scope {
    absl::flat_hash_map<std::string, Tensors> sequences;
    absl::flat_hash_map<std::string, int64_t> numbers;  // constant integer scalars
  };

  // Replaces the nodes of a graph in their order. Bodies see the sequences that are made in front
  // of their node.
  void Replace(GraphProto* graph, Scope* scope) {
    for (const auto& input : graph->input()) Forget(input.name(), scope);
    for (const auto& tensor : graph->initializer()) {
      Forget(tensor.name(), scope);
      NoteNumber(tensor.name(), tensor, scope);
    }
    std::deque<NodeProto> open_nodes(std::make_move_iterator(graph->mutable_node()->begin()),
                                     std::make_move_iterator(graph->mutable_node()->end()));
    graph->clear_node();
    while (!open_nodes.empty()) {
      NodeProto node = std::move(open_nodes.front());
      open_nodes.pop_front();
      // The body of a SequenceMap is read once it is part of the graph.
      if (node.op_type() != "SequenceMap") {
        for (AttributeProto& a : *node.mutable_attribute()) {
          if (a.has_g()) ReplaceInBody(a.mutable_g(), *scope);
          for (GraphProto& body : *a.mutable_graphs()) ReplaceInBody(&body, *scope);
        }
      }
      for (const std::string& output : node.output()) Forget(output, scope);
      std::vector<NodeProto> own;
      if (node.op_type() == "SequenceMap" && IsDefaultDomain(node.domain())) {
        if (const auto spread = Spread(node, *scope, graph)) {
          open_nodes.insert(open_nodes.begin(), spread->begin(), spread->end());
          continue;
        }
      }
      if (!Note(node, scope) && IsOfSequences(node)) own = Plain(node, *scope);
      if (own.empty()) own.push_back(std::move(node));
      for (NodeProto& plain : own) *graph->add_node() = std::move(plain);
    }
  }

  void ReplaceInBody(GraphProto* body, Scope scope) { Replace(body, &scope); }

  static void Forget(const std::string& name, Scope* scope) {
    scope->sequences.erase(name);
    scope->numbers.erase(name);
  }

  static void NoteNumber(const std::string& name, const onnx::TensorProto& tensor, Scope* scope) {
    const auto count = NumElements(tensor);
    if (!count.ok() || *count != 1) return;
    if (const auto ints = ReadInts(tensor); ints.ok()) scope->numbers[name] = ints->front();
  }

  // Notes the sequence or the number that the node gives. Returns true if it gives a sequence.
  bool Note(const NodeProto& node, Scope* scope) {
    if (!IsDefaultDomain(node.domain()) || node.output_size() != 1) return false;
    const std::string& op = node.op_type();
    if (op == "Constant") {
      const auto value = ConstantNodeTensor(node);
      if (value.ok() && value->tensor != nullptr) {
        NoteNumber(node.output(0), *value->tensor, scope);
      }
      return false;
    }
    std::optional<Tensors> made;
    if (op == "SequenceConstruct") {
      made.emplace(node.input().begin(), node.input().end());
    } else if (op == "SequenceEmpty") {
      made.emplace();
    } else if (op == "SequenceInsert" || op == "SequenceErase" || op == "Identity") {
      made = Changed(node, *scope);
    }
    if (!made || made->size() > kMostTensors) return false;
    scope->sequences[node.output(0)] = *std::move(made);
    return true;
  }

  static const Tensors* SequenceAt(const NodeProto& node, int input, const Scope& scope) {
    const auto it =
        input < node.input_size() ? scope.sequences.find(node.input(input)) : scope.sequences.end();
    return it == scope.sequences.end() ? nullptr : &it->second;
  }

  // Returns the place that an operand holds, between 0 and size - 1 or counted from `size`;
  // `otherwise` if the operand is left out, and nullopt if it is not known or lies outside.
  static std::optional<int64_t> Place(const NodeProto& node, int input, int64_t size,
                                      int64_t otherwise, const Scope& scope) {
    if (input >= node.input_size() || node.input(input).empty()) return otherwise;
    const auto it = scope.numbers.find(node.input(input));
    if (it == scope.numbers.end()) return std::nullopt;
    const int64_t place = it->second < 0 ? it->second + size : it->second;
    return place < 0 || place >= size ? std::nullopt : std::make_optional(place);
  }

  // Returns what a SequenceInsert, SequenceErase or Identity gives.
  static std::optional<Tensors> Changed(const NodeProto& node, const Scope& scope) {
    const Tensors* from = SequenceAt(node, 0, scope);
    if (from == nullptr) return std::nullopt;
    Tensors changed = *from;
    const auto size = static_cast<int64_t>(changed.size());
    if (node.op_type() == "SequenceInsert") {
      // A place behind the last tensor is one, too, but -1 is that of the last.
      const bool last = node.input_size() > 2 && scope.numbers.contains(node.input(2)) &&
                        scope.numbers.at(node.input(2)) == size;
      const auto place = last ? size : Place(node, 2, size, size, scope);
      if (!place || node.input_size() < 2) return std::nullopt;
      changed.insert(changed.begin() + *place, node.input(1));
    } else if (node.op_type() == "SequenceErase") {
      const auto place = Place(node, 1, size, size - 1, scope);
      if (!place || *place < 0) return std::nullopt;
      changed.erase(changed.begin() + *place);
    }
    return changed;
  }

  // Returns the nodes that replace one that reads a sequence; none if it stays.
  std::vector<NodeProto> Plain(const NodeProto& node, const Scope& scope) {
    const Tensors* tensors = SequenceAt(node, 0, scope);
    if (tensors == nullptr || node.output_size() != 1) return {};
    NodeProto plain;
    plain.set_name(node.name());
    plain.add_output(node.output(0));
    const auto size = static_cast<int64_t>(tensors->size());
    if (node.op_type() == "SequenceAt") {
      const auto place = Place(node, 1, size, -1, scope);
      if (!place || *place < 0) return {};
      plain.set_op_type("Identity");
      plain.add_input((*tensors)[static_cast<size_t>(*place)]);
      return {std::move(plain)};
    }
    if (node.op_type() == "SequenceLength") {
      plain.set_op_type("Constant");
      AttributeProto* value = plain.add_attribute();
      value->set_name("value");
      value->set_type(AttributeProto::TENSOR);
      *value->mutable_t() = MakeInt64Tensor("", {}, {size});
      return {std::move(plain)};
    }
    if (node.op_type() != "ConcatFromSequence" || tensors->empty()) return {};
    return Joined(node, *tensors, std::move(plain));
  }

  // Returns the Concat of the tensors of a ConcatFromSequence, along a new axis if it says so.
  std::vector<NodeProto> Joined(const NodeProto& node, const Tensors& tensors, NodeProto plain) {
    const int64_t axis = IntAttribute(node, "axis", 0);
    std::vector<NodeProto> own;
    plain.set_op_type("Concat");
    *plain.add_attribute() = MakeAttribute("axis", axis);
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (IntAttribute(node, "new_axis", 0) == 0) {
        plain.add_input(tensors[k]);
        continue;
      }
      NodeProto& apart = own.emplace_back();
      apart.set_op_type("Unsqueeze");
      apart.add_input(tensors[k]);
      apart.add_output(Fresh(fmt::format("{}/apart/{}", node.output(0), k)));
      if (opset_ < kUnsqueezeTakesAxes) {
        *apart.add_attribute() = MakeAttribute("axes", std::vector<int64_t>{axis});
      } else {
        onnx::TensorProto& axes = *graph_.add_initializer();
        axes = MakeInt64Tensor(Fresh(node.output(0) + "/axes"), {1}, {axis});
        apart.add_input(axes.name());
      }
      plain.add_input(apart.output(0));
    }
    own.push_back(std::move(plain));
    return own;
  }

  // Returns the nodes of a SequenceMap's body once for each place in its sequences, which must all
  // be known; nullopt if the node stays.
  std::optional<std::vector<NodeProto>> Spread(const NodeProto& node, const Scope& scope,
                                               GraphProto* graph) {
    const AttributeProto* attribute = FindAttribute(node, "body");
    if (attribute == nullptr || !attribute->has_g()) return std::nullopt;
    const GraphProto& body = attribute->g();
    if (body.input_size() != node.input_size() || body.output_size() < node.output_size() ||
        body.sparse_initializer_size() > 0) {
      return std::nullopt;
    }
    std::vector<Tensors> operands;
    for (int k = 0; k < node.input_size(); ++k) {
      const Tensors* tensors = SequenceAt(node, k, scope);
      if (tensors == nullptr || tensors->size() != SequenceAt(node, 0, scope)->size()) {
        return std::nullopt;
      }
      operands.push_back(*tensors);
    }
    if (operands.empty()) return std::nullopt;
    if (added_ + static_cast<int>(operands[0].size()) * body.node_size() > kMostAddedNodes) {
      return std::nullopt;
    }
    std::vector<NodeProto> own;
    std::vector<Tensors> results(static_cast<size_t>(node.output_size()));
    for (size_t place = 0; place < operands[0].size(); ++place) {
      absl::flat_hash_map<std::string, std::string> names;
      const auto define = [&](const std::string& name) {
        if (name.empty()) return;
        names[name] = Fresh(fmt::format("{}/{}/{}", node.output(0), place, name));
      };
      for (int k = 0; k < body.input_size(); ++k) {
        names[body.input(k).name()] = operands[static_cast<size_t>(k)][place];
      }
      for (const auto& tensor : body.initializer()) {
        define(tensor.name());
        *graph->add_initializer() = tensor;
        graph->mutable_initializer()->rbegin()->set_name(names.at(tensor.name()));
      }
      for (const NodeProto& inner : body.node()) {
        for (const std::string& output : inner.output()) define(output);
      }
      for (const NodeProto& inner : body.node()) {
        own.push_back(inner);
        ++added_;
        if (!RenameValues(names, &own.back()).ok()) return std::nullopt;
        if (!inner.name().empty()) {
          own.back().set_name(fmt::format("{}/{}/{}", node.name(), place, inner.name()));
        }
      }
      for (size_t k = 0; k < results.size(); ++k) {
        const std::string& result = body.output(static_cast<int>(k)).name();
        const auto it = names.find(result);
        results[k].push_back(it == names.end() ? result : it->second);
      }
    }
    for (int k = 0; k < node.output_size(); ++k) {
      // A SequenceConstruct, whose operands are known as any other's, holds them.
      NodeProto& made = own.emplace_back();
      made.set_op_type("SequenceConstruct");
      made.add_output(node.output(k));
      for (const std::string& tensor : results[static_cast<size_t>(k)]) made.add_input(tensor);
    }
    return own;
  }

  std::string Fresh(std::string name) {
    while (!names_.insert(name).second) name.push_back('\'');
    return name;
  }

  // Removes nodes of the main graph that make sequences which nothing reads any more.
  void RemoveUnread() {
    auto* nodes = graph_.mutable_node();
    for (int before = nodes->size() + 1; nodes->size() < before;) {
      before = nodes->size();
      absl::flat_hash_set<std::string> read;
      for (const auto& output : graph_.output()) read.insert(output.name());
      for (const NodeProto& node : *nodes) {
        read.insert(node.input().begin(), node.input().end());
        const auto scopes = CollectScopes(node);
        if (!scopes.ok()) return;
        for (std::string_view name : CapturedNames(*scopes)) read.insert(std::string(name));
      }
      const auto is_unread = [&](const NodeProto& node) {
        return IsOfSequences(node) && node.output_size() == 1 && !read.contains(node.output(0));
      };
      nodes->erase(std::remove_if(nodes->begin(), nodes->end(), is_unread), nodes->end());
    }
  }

  GraphProto& graph_;
  int64_t opset_;
  absl::flat_hash_set<std::string> names_;
  int added_ = 0;
};

}  // namespace

void WithoutSequences(onnx::ModelProto* model) {
  const auto& nodes = model->graph().node();
  const bool makes = std::any_of(nodes.begin(), nodes.end(), [](const NodeProto& node) {
    return IsOfSequences(node) &&
           (node.op_type() == "SequenceConstruct" || node.op_type() == "SequenceEmpty");
  });
  if (makes) SequenceRemover(model).Run();
}

}  // namespace kvlift
