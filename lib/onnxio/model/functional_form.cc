#include "onnxio/model/functional_form.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/graph.h"

namespace kvlift {
namespace {

using Slots = KeyValueCacheSlots;

constexpr int kPresents[] = {Slots::kPresentCache, Slots::kPresentScale};
constexpr std::string_view kJoining = ".dynamic_batching";

bool IsOf(std::string_view domain) { return domain == "pmx" || domain == "opmx"; }

// A tensor of the host, and the nodes that write it, in execution order.
struct Tensor {
  struct Write {
    int node, input, output;
  };
  std::string name;
  std::vector<Write> writes;
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph) {
    for (int k = 0; k < graph.proto().node_size(); ++k) place_[&graph.proto().node(k)] = k;
  }

  // Returns the tensors; empty if a KeyValueCache must stay as it is, since then all do.
  std::vector<Tensor> Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (IsKeyValueCache(graph_.node(n)) && !Take(n)) return {};
    }
    return std::move(tensors_);
  }

 private:
  bool Take(NodeId n) {
    const onnx::NodeProto& node = graph_.node(n);
    const auto inputs = graph_.inputs(n);
    const Slots slots = Slots::Of(node);
    if (node.output_size() != Slots::kPresentCache) return false;
    for (const int output : kPresents) {
      const int input = slots.Written(output);
      const ValueId v = static_cast<size_t>(input) < inputs.size() ? inputs[input] : kNoValue;
      if (v == kNoValue && input == slots.scale) continue;
      if (v == kNoValue || !IsInOut(v, input)) return false;
      Tensor& tensor = Named(graph_.name(v));
      tensor.writes.push_back({place_.at(&node), input, output});
    }
    return true;
  }

  // Returns true for a graph input that only the writers read, as this operand.
  bool IsInOut(ValueId v, int input) const {
    if (!graph_.is_graph_input(v) || graph_.constant(v) != nullptr) return false;
    const auto uses = graph_.uses(v);
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (use.kind != Use::Kind::kNodeInput) return false;
      return graph_.Is(use.node, "Shape") ||
             (IsKeyValueCache(graph_.node(use.node)) && use.index == input);
    });
  }

  Tensor& Named(const std::string& name) {
    for (Tensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    tensors_.push_back({name, {}});
    return tensors_.back();
  }

  const Graph& graph_;
  absl::flat_hash_map<const onnx::NodeProto*, int> place_;
  std::vector<Tensor> tensors_;
};

using Names = absl::flat_hash_set<std::string>;

std::string Free(std::string name, Names* taken) {
  while (!taken->insert(name).second) name += "_";
  return name;
}

void Expose(const Tensor& tensor, Names* taken, onnx::GraphProto* graph) {
  const std::string last = Free(fmt::format("present_{}", tensor.name), taken);
  std::string now = tensor.name;
  for (const Tensor::Write& write : tensor.writes) {
    onnx::NodeProto& node = *graph->mutable_node(write.node);
    node.set_input(write.input, now);
    now = &write == &tensor.writes.back() ? last : Free(last + "_early", taken);
    while (node.output_size() <= write.output) node.add_output("");
    node.set_output(write.output, now);
  }
  for (const onnx::ValueInfoProto& input : graph->input()) {
    if (input.name() != tensor.name) continue;
    onnx::ValueInfoProto output = input;
    output.set_name(last);
    *graph->add_output() = std::move(output);
    return;
  }
}

}  // namespace

bool IsKeyValueCache(const onnx::NodeProto& node) {
  return node.op_type() == "KeyValueCache" && HasKeyValueCache(node.domain());
}

bool HasKeyValueCache(std::string_view domain) { return IsOf(domain) || JoinsSequences(domain); }

bool JoinsSequences(std::string_view domain) {
  return domain.size() > kJoining.size() &&
         domain.substr(domain.size() - kJoining.size()) == kJoining &&
         IsOf(domain.substr(0, domain.size() - kJoining.size()));
}

Slots Slots::Of(const onnx::NodeProto& node) {
  return JoinsSequences(node.domain()) ? Joined() : KeyValueCacheSlots();
}

void NamePresents(onnx::ModelProto* model) {
  const auto& nodes = model->graph().node();
  if (std::none_of(nodes.begin(), nodes.end(), IsKeyValueCache)) return;
  std::vector<Tensor> tensors;
  Names taken;
  {
    const std::shared_ptr<const onnx::ModelProto> borrowed(model, [](const onnx::ModelProto*) {});
    const auto graph = Graph::Build(borrowed);
    if (!graph.ok()) return;
    tensors = Finder(*graph).Run();
    for (ValueId v = 0; v < graph->num_values(); ++v) taken.insert(graph->name(v));
  }
  for (const Tensor& tensor : tensors) Expose(tensor, &taken, model->mutable_graph());
}

}  // namespace kvlift
