#include "support/disguise.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;

bool Chance(std::mt19937& rng, int one_in) { return rng() % static_cast<unsigned>(one_in) == 0; }

void Shuffle(std::vector<int>* items, std::mt19937& rng) {
  for (size_t k = items->size(); k > 1; --k) std::swap((*items)[k - 1], (*items)[rng() % k]);
}

void ForEachBody(NodeProto* node, const std::function<void(GraphProto*)>& visit) {
  for (auto& attribute : *node->mutable_attribute()) {
    if (attribute.has_g()) visit(attribute.mutable_g());
    for (auto& g : *attribute.mutable_graphs()) visit(&g);
  }
}

// Collects the names that the bodies of a node mention, among them all that they capture.
void CollectMentioned(const NodeProto& node, std::set<std::string>* names) {
  for (const auto& attribute : node.attribute()) {
    std::vector<const GraphProto*> bodies;
    if (attribute.has_g()) bodies.push_back(&attribute.g());
    for (const auto& g : attribute.graphs()) bodies.push_back(&g);
    for (const GraphProto* body : bodies) {
      for (const auto& inner : body->node()) {
        names->insert(inner.input().begin(), inner.input().end());
        CollectMentioned(inner, names);
      }
      for (const auto& output : body->output()) names->insert(output.name());
    }
  }
}

class Renamer {
 public:
  explicit Renamer(std::mt19937& rng) : rng_(rng) {}

  void Graph(GraphProto* graph) {
    for (auto& t : *graph->mutable_initializer()) t.set_name(Value(t.name()));
    for (auto& info : *graph->mutable_input()) Info(&info);
    for (auto& info : *graph->mutable_output()) Info(&info);
    for (auto& info : *graph->mutable_value_info()) Info(&info);
    for (auto& node : *graph->mutable_node()) {
      if (!node.name().empty()) node.set_name(fmt::format("node{}", nodes_++));
      for (auto& name : *node.mutable_input()) name = Value(name);
      for (auto& name : *node.mutable_output()) name = Value(name);
      ForEachBody(&node, [&](GraphProto* body) { Graph(body); });
    }
  }

 private:
  std::string Fresh(std::map<std::string, std::string>* names, const std::string& old) {
    const auto [it, fresh] = names->try_emplace(old);
    if (fresh) it->second = fmt::format("x{:08x}_{}", rng_(), names->size());
    return it->second;
  }

  std::string Value(const std::string& old) { return old.empty() ? old : Fresh(&values_, old); }

  // Renames each word of a sum.
  std::string Symbol(const std::string& text) {
    std::string result, word;
    const auto flush = [&] {
      const bool number =
          !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
      if (!word.empty()) result += number ? word : Fresh(&symbols_, word);
      word.clear();
    };
    for (char c : text) {
      if (c == '+' || c == '-' || c == '*' || c == ' ') {
        flush();
        result += c;
      } else {
        word += c;
      }
    }
    flush();
    return result;
  }

  void Info(onnx::ValueInfoProto* info) {
    info->set_name(Value(info->name()));
    if (!info->type().tensor_type().has_shape()) return;
    auto* shape = info->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (auto& dim : *shape->mutable_dim()) {
      if (dim.has_dim_param()) dim.set_dim_param(Symbol(dim.dim_param()));
    }
  }

  std::mt19937& rng_;
  std::map<std::string, std::string> values_, symbols_;
  int nodes_ = 0;
};

}  // namespace

void InsertIdentities(onnx::ModelProto* model, std::mt19937& rng) {
  GraphProto* graph = model->mutable_graph();
  std::vector<std::string> values;
  std::set<std::string> outputs;
  for (const auto& info : graph->input()) values.push_back(info.name());
  for (const auto& t : graph->initializer()) values.push_back(t.name());
  for (const auto& output : graph->output()) outputs.insert(output.name());
  for (const auto& node : graph->node()) {
    for (const auto& name : node.output()) {
      if (!name.empty()) values.push_back(name);
    }
  }
  int made = 0;
  for (const std::string& name : values) {
    if (!Chance(rng, 5)) continue;
    const std::string copy = fmt::format("{}/copy{}", name, made++);
    std::string from = name, to = copy;
    if (outputs.contains(name)) {  // the copy takes the name
      std::set<std::string> captured;
      for (const auto& node : graph->node()) CollectMentioned(node, &captured);
      if (captured.contains(name)) continue;
      for (auto& node : *graph->mutable_node()) {
        std::replace(node.mutable_output()->begin(), node.mutable_output()->end(), name, copy);
      }
      from = copy;
      to = name;
    }
    const bool all = Chance(rng, 2);
    for (auto& node : *graph->mutable_node()) {
      for (auto& input : *node.mutable_input()) {
        if (input == name) input = all || Chance(rng, 2) ? to : from;
      }
    }
    NodeProto* identity = graph->add_node();
    identity->set_op_type("Identity");
    identity->set_name(fmt::format("copy{}", made));
    identity->add_input(from);
    identity->add_output(to);
  }
  ReorderNodes(model, rng);
}

void RenameEverything(onnx::ModelProto* model, std::mt19937& rng) {
  Renamer(rng).Graph(model->mutable_graph());
}

void ReorderNodes(onnx::ModelProto* model, std::mt19937& rng) {
  GraphProto* graph = model->mutable_graph();
  std::map<std::string, int> producer;
  for (int n = 0; n < graph->node_size(); ++n) {
    for (const auto& name : graph->node(n).output()) {
      if (!name.empty()) producer[name] = n;
    }
  }
  std::vector<std::vector<int>> readers(graph->node_size());
  std::vector<int> waiting(graph->node_size(), 0), ready;
  for (int n = 0; n < graph->node_size(); ++n) {
    std::set<std::string> names(graph->node(n).input().begin(), graph->node(n).input().end());
    CollectMentioned(graph->node(n), &names);
    std::set<int> sources;
    for (const auto& name : names) {
      if (const auto it = producer.find(name); it != producer.end() && it->second != n) {
        sources.insert(it->second);
      }
    }
    for (int source : sources) readers[source].push_back(n);
    waiting[n] = static_cast<int>(sources.size());
    if (sources.empty()) ready.push_back(n);
  }
  google::protobuf::RepeatedPtrField<NodeProto> ordered;
  while (!ready.empty()) {
    Shuffle(&ready, rng);
    const int n = ready.back();
    ready.pop_back();
    *ordered.Add() = graph->node(n);
    for (int reader : readers[n]) {
      if (--waiting[reader] == 0) ready.push_back(reader);
    }
  }
  graph->mutable_node()->Swap(&ordered);
  graph->clear_value_info();
}

void MoveInitializersToConstants(onnx::ModelProto* model, std::mt19937& rng) {
  GraphProto* graph = model->mutable_graph();
  google::protobuf::RepeatedPtrField<onnx::TensorProto> kept;
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  for (const auto& t : graph->initializer()) {
    if (!Chance(rng, 2)) {
      *kept.Add() = t;
      continue;
    }
    NodeProto* node = nodes.Add();
    node->set_op_type("Constant");
    node->set_name(fmt::format("constant{}", nodes.size()));
    node->add_output(t.name());
    auto* attribute = node->add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    *attribute->mutable_t() = t;
  }
  for (const auto& node : graph->node()) *nodes.Add() = node;
  graph->mutable_initializer()->Swap(&kept);
  graph->mutable_node()->Swap(&nodes);
}

void AddUnrelatedConsumers(onnx::ModelProto* model, std::mt19937& rng) {
  GraphProto* graph = model->mutable_graph();
  std::vector<std::string> values;
  for (const auto& info : graph->input()) values.push_back(info.name());
  for (const auto& node : graph->node()) {
    if (!node.output(0).empty()) values.push_back(node.output(0));
  }
  for (int k = 0; k < 5; ++k) {
    NodeProto* node = graph->add_node();
    node->set_op_type("Shape");
    node->set_name(fmt::format("unrelated{}", k));
    node->add_input(values[rng() % values.size()]);
    node->add_output(fmt::format("unrelated/{}", k));
  }
}

void DoubleMovesAndCasts(onnx::ModelProto* model, std::mt19937& rng) {
  GraphProto* graph = model->mutable_graph();
  const int count = graph->node_size();
  for (int k = 0; k < count; ++k) {
    NodeProto* node = graph->mutable_node(k);
    const bool move = node->op_type() == "Transpose" && node->attribute_size() == 1;
    if (!node->domain().empty() || (!move && node->op_type() != "Cast") || !Chance(rng, 2))
      continue;
    NodeProto* second = graph->add_node();
    node = graph->mutable_node(k);
    *second = *node;
    const std::string half = fmt::format("{}/half{}", node->output(0), k);
    second->set_name(fmt::format("half{}", k));
    node->set_output(0, half);
    second->set_input(0, half);
    if (!move) continue;
    auto* first_perm = node->mutable_attribute(0)->mutable_ints();
    auto* second_perm = second->mutable_attribute(0)->mutable_ints();
    const int rank = first_perm->size();
    for (int axis = 0; axis < rank; ++axis) {
      second_perm->Set(axis, rank - 1 - first_perm->Get(axis));
      first_perm->Set(axis, rank - 1 - axis);
    }
  }
  ReorderNodes(model, rng);
}

void DisguiseFully(onnx::ModelProto* model, std::mt19937& rng) {
  AddUnrelatedConsumers(model, rng);
  MoveInitializersToConstants(model, rng);
  DoubleMovesAndCasts(model, rng);
  InsertIdentities(model, rng);
  RenameEverything(model, rng);
}

}  // namespace kvlift
