#include "proof/graphs/constants.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/constant_node.h"
#include "proof/graphs/pair.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

// Tensors with equal bytes have to agree in type and shape as well; this key holds both.
std::string KindOf(const TensorProto& tensor) {
  return fmt::format("{}:{}", tensor.data_type(), fmt::join(tensor.dims(), ","));
}

// The names of values of the graph that are not only initializers.
absl::flat_hash_set<std::string> OtherNames(const GraphProto& graph) {
  absl::flat_hash_set<std::string> names;
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& output : graph.output()) names.insert(output.name());
  for (const NodeProto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
  }
  return names;
}

// Makes initializers of Constant nodes. A constant that is an output of the graph, whether node or
// initializer, becomes an initializer and an Identity, so that its name can change.
void NodesToInitializers(GraphProto* graph) {
  absl::flat_hash_set<std::string> outputs;
  for (const auto& output : graph->output()) outputs.insert(output.name());
  absl::flat_hash_set<std::string> used = OtherNames(*graph);
  for (const TensorProto& tensor : graph->initializer()) used.insert(tensor.name());
  auto* nodes = graph->mutable_node();
  int kept = 0;
  for (int k = 0; k < nodes->size(); ++k) {
    NodeProto& node = (*nodes)[k];
    const bool is_default = node.domain().empty() || node.domain() == "ai.onnx";
    if (node.op_type() == "Constant" && is_default && node.output_size() == 1) {
      const auto value = ConstantNodeTensor(node);
      if (value.ok() && value->tensor != nullptr &&
          value->tensor->data_type() != TensorProto::STRING) {
        TensorProto* tensor = graph->add_initializer();
        *tensor = *value->tensor;
        tensor->set_name(node.output(0));
        if (!outputs.contains(node.output(0))) continue;
        while (!used.insert(tensor->name()).second) tensor->mutable_name()->push_back('\'');
        node.set_op_type("Identity");
        node.clear_attribute();
        node.add_input(tensor->name());
      }
    }
    if (kept != k) nodes->SwapElements(kept, k);
    ++kept;
  }
  nodes->DeleteSubrange(kept, nodes->size() - kept);
  for (const auto& input : graph->input()) outputs.erase(input.name());
  for (TensorProto& tensor : *graph->mutable_initializer()) {
    if (!outputs.contains(tensor.name())) continue;
    NodeProto& node = *nodes->Add();
    node.set_op_type("Identity");
    node.add_output(tensor.name());
    while (!used.insert(tensor.name()).second) tensor.mutable_name()->push_back('\'');
    node.add_input(tensor.name());
  }
}

// The source's initializers, by type and shape.
class Index {
 public:
  explicit Index(const GraphProto& graph) {
    const absl::flat_hash_set<std::string> other = OtherNames(graph);
    for (const TensorProto& tensor : graph.initializer()) {
      if (other.contains(tensor.name())) continue;
      all_[KindOf(tensor)].push_back(&tensor);
      by_name_[tensor.name()] = &tensor;
    }
  }

  // Returns the name of a source initializer with the same contents: the tensor's own name if
  // possible, else the first that was not returned yet, else the first. Returns an empty string if
  // there is none.
  std::string NameFor(const TensorProto& tensor) {
    const auto own = by_name_.find(tensor.name());
    if (own != by_name_.end() && SameData(*own->second, tensor)) return tensor.name();
    const TensorProto* first = nullptr;
    for (const TensorProto* theirs : all_[KindOf(tensor)]) {
      if (!SameData(*theirs, tensor)) continue;
      if (given_.insert(theirs->name()).second) return theirs->name();
      if (first == nullptr) first = theirs;
    }
    return first == nullptr ? std::string() : first->name();
  }

 private:
  absl::flat_hash_map<std::string, std::vector<const TensorProto*>> all_;
  absl::flat_hash_map<std::string, const TensorProto*> by_name_;
  absl::flat_hash_set<std::string> given_;
};

void RenameInitializers(const GraphProto& source, GraphProto* result) {
  Index index(source);
  const absl::flat_hash_set<std::string> other = OtherNames(*result);
  absl::flat_hash_map<std::string, std::string> names;
  for (const TensorProto& tensor : result->initializer()) {
    if (other.contains(tensor.name())) continue;
    const std::string name = index.NameFor(tensor);
    if (!name.empty() && !other.contains(name)) names[tensor.name()] = name;
  }
  // An initializer whose name is given to another one gets a new name.
  absl::flat_hash_set<std::string> taken;
  for (const auto& [old, name] : names) taken.insert(name);
  absl::flat_hash_set<std::string> used = other;
  for (const TensorProto& tensor : result->initializer()) used.insert(tensor.name());
  for (const TensorProto& tensor : source.initializer()) used.insert(tensor.name());
  for (const TensorProto& tensor : result->initializer()) {
    if (names.contains(tensor.name()) || !taken.contains(tensor.name())) continue;
    std::string fresh = tensor.name();
    while (!used.insert(fresh).second) fresh += '\'';
    names[tensor.name()] = fresh;
  }
  auto* initializers = result->mutable_initializer();
  absl::flat_hash_set<std::string> there;
  int kept = 0;
  for (int k = 0; k < initializers->size(); ++k) {
    TensorProto& tensor = (*initializers)[k];
    if (const auto it = names.find(tensor.name()); it != names.end()) tensor.set_name(it->second);
    if (!there.insert(tensor.name()).second) continue;
    if (kept != k) initializers->SwapElements(kept, k);
    ++kept;
  }
  initializers->DeleteSubrange(kept, initializers->size() - kept);
  for (NodeProto& node : *result->mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (const auto it = names.find(input); it != names.end()) input = it->second;
    }
  }
}

}  // namespace

void ShareConstants(ModelProto* source, ModelProto* result) {
  if (HasBodies(*source) || HasBodies(*result)) return;
  NodesToInitializers(source->mutable_graph());
  NodesToInitializers(result->mutable_graph());
  RenameInitializers(source->graph(), result->mutable_graph());
}

}  // namespace kvlift
