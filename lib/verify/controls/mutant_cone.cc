#include "verify/controls/mutant_cone.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "proof/graphs/pair.h"
#include "verify/mutants/mutant_maker.h"

namespace kvlift {
namespace {

class ConeFinder {
 public:
  ConeFinder(const Graph& model, const Graph& mutant, const Manifest& relation)
      : model_(model), mutant_(mutant), relation_(relation), dirty_(mutant.num_values(), false) {}

  AffectedPart Run() {
    for (NodeId n = 0; n < mutant_.num_nodes(); ++n) changed_.push_back(!IsInModel(n));
    FindCaches();
    for (bool again = true; again;) {
      nodes_.clear();
      again = false;
      for (NodeId n = 0; n < mutant_.num_nodes(); ++n) {
        if (IsDirty(n)) again |= Take(n);
      }
      for (const ManifestCache& cache : relation_.caches) {
        const ValueId output = mutant_.Find(cache.output);
        if (output != kNoValue && dirty_[output]) again |= TakeCache(cache);
      }
    }
    return Result();
  }

 private:
  std::vector<ValueId> OperandsOf(NodeId n) const {
    std::vector<ValueId> all;
    for (const ValueId v : mutant_.inputs(n)) {
      if (v != kNoValue) all.push_back(v);
    }
    for (const ValueId v : mutant_.captures(n)) all.push_back(v);
    return all;
  }

  bool IsDirty(NodeId n) const {
    const std::vector<ValueId> operands = OperandsOf(n);
    return changed_[n] ||
           std::any_of(operands.begin(), operands.end(), [&](ValueId v) { return dirty_[v]; });
  }

  bool IsInModel(NodeId n) const {
    const onnx::NodeProto& node = mutant_.node(n);
    const auto first = std::find_if(node.output().begin(), node.output().end(),
                                    [](const std::string& name) { return !name.empty(); });
    const ValueId v = first == node.output().end() ? kNoValue : model_.Find(*first);
    const NodeId m = v == kNoValue ? kNoNode : model_.producer(v);
    if (m == kNoNode) return false;
    return SameNode(node, model_.node(m));
  }

  // Finds, for each value, the caches whose rows it may hold: those whose past it is computed from
  // without an attention between.
  void FindCaches() {
    caches_.resize(mutant_.num_values());
    for (size_t k = 0; k < relation_.caches.size(); ++k) {
      const ValueId past = mutant_.Find(relation_.caches[k].input);
      if (past != kNoValue) caches_[past].insert(k);
    }
    for (NodeId n = 0; n < mutant_.num_nodes(); ++n) {
      if (mutant_.Is(n, "Attention")) continue;
      std::set<size_t> all;
      for (const ValueId v : OperandsOf(n)) all.insert(caches_[v].begin(), caches_[v].end());
      for (const ValueId v : mutant_.outputs(n)) {
        if (v != kNoValue) caches_[v] = all;
      }
    }
  }

  // Adds a node. A cache whose rows it reads becomes dirty, so that the part writes it as well.
  // Returns whether a cache has become dirty by that.
  bool Take(NodeId n) {
    nodes_.push_back(n);
    for (const ValueId v : mutant_.outputs(n)) {
      if (v != kNoValue) dirty_[v] = true;
    }
    bool more = false;
    for (const ValueId v : OperandsOf(n)) {
      if (dirty_[v]) continue;
      for (const size_t k : caches_[v]) more |= TakeCache(relation_.caches[k]);
    }
    return more;
  }

  bool TakeCache(const ManifestCache& cache) {
    const ValueId past = mutant_.Find(cache.input);
    if (past == kNoValue || dirty_[past]) return false;
    return dirty_[past] = true;
  }

  AffectedPart Result() {
    AffectedPart part;
    absl::flat_hash_set<ValueId> read;
    for (const NodeId n : nodes_) {
      for (const ValueId v : OperandsOf(n)) read.insert(v);
    }
    for (ValueId v = 0; v < mutant_.num_values(); ++v) {
      const NodeId producer = mutant_.producer(v);
      if (!read.contains(v) || dirty_[v] || producer == kNoNode) continue;
      if (mutant_.Is(producer, "Constant")) {
        part.nodes.push_back(producer);
      } else {
        part.fed.push_back(mutant_.name(v));
      }
    }
    part.nodes.insert(part.nodes.end(), nodes_.begin(), nodes_.end());
    part.relation = relation_;
    const auto is_read = [&](const std::string& name) { return read.contains(mutant_.Find(name)); };
    const auto is_given = [&](const std::string& name) {
      const ValueId v = mutant_.Find(name);
      return v != kNoValue && dirty_[v] && mutant_.producer(v) != kNoNode;
    };
    std::erase_if(part.relation.inputs, [&](const auto& input) { return !is_read(input.name); });
    std::erase_if(part.relation.outputs, [&](const auto& o) { return !is_given(o.name); });
    std::erase_if(part.relation.caches, [&](const auto& cache) { return !is_given(cache.output); });
    return part;
  }

  const Graph &model_, &mutant_;
  const Manifest& relation_;
  std::vector<bool> changed_;             // by node: it is not a node of the model
  std::vector<bool> dirty_;               // by value: it is computed within the part
  std::vector<std::set<size_t>> caches_;  // by value: indices of caches
  std::vector<NodeId> nodes_;
};

}  // namespace

std::optional<AffectedPart> FindAffectedPart(const Graph& model, const Graph& mutant,
                                             const Manifest& relation, double most) {
  AffectedPart part = ConeFinder(model, mutant, relation).Run();
  const bool small = static_cast<double>(part.nodes.size()) <= most * mutant.num_nodes();
  if (!small || part.nodes.empty() || part.relation.outputs.empty()) return std::nullopt;
  return part;
}

std::optional<std::vector<exec::Feeds>> ValueRecorder::Of(const Record& record,
                                                          const std::vector<std::string>& names) {
  Values& values = values_[&record];
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (values.count(name) == 0) missing.push_back(name);
  }
  if (!missing.empty()) Run(record, missing, &values);
  std::vector<exec::Feeds> feeds(record.steps.size());
  for (const std::string& name : names) {
    const std::vector<exec::Tensor>& steps = values[name];
    if (steps.size() != feeds.size()) return std::nullopt;
    for (size_t k = 0; k < feeds.size(); ++k) feeds[k][name] = steps[k];
  }
  return feeds;
}

void ValueRecorder::Run(const Record& record, const std::vector<std::string>& names,
                        Values* values) {
  const Graph& graph = model_.program().graph();
  const std::set<std::string> wanted(names.begin(), names.end());
  model_.session().set_observer([&](NodeId n, absl::Span<const exec::View> outputs) {
    for (size_t k = 0; k < outputs.size() && k < graph.outputs(n).size(); ++k) {
      const ValueId v = graph.outputs(n)[k];
      if (v == kNoValue || wanted.count(graph.name(v)) == 0 || outputs[k].type <= 0) continue;
      exec::Tensor copy(outputs[k].type, outputs[k].shape);
      std::copy_n(outputs[k].data, std::max<int64_t>(0, outputs[k].bytes()), copy.data());
      (*values)[graph.name(v)].push_back(std::move(copy));
    }
  });
  CacheState state = driver_.Fresh(model_, *record.plan);
  for (size_t k = 0; k < record.steps.size(); ++k) {
    const auto feeds = driver_.ConvertedFeeds(record.plan->steps[k], record.plan->capacity, state);
    if (!feeds.ok()) break;
    const auto fetches = model_.Step(*feeds);
    if (!fetches.ok()) break;
    for (const ManifestCache& cache : relation_.caches) {
      state[cache.id] = fetches->at(cache.output).Clone();
    }
  }
  model_.session().set_observer(nullptr);
}

std::shared_ptr<const onnx::ModelProto> BuildAffectedPart(const Graph& mutant,
                                                          const AffectedPart& part,
                                                          const exec::Feeds& feeds) {
  const std::shared_ptr<onnx::ModelProto> model = BorrowingModel(mutant.shared_model());
  const onnx::ModelProto& from = mutant.model();
  model->set_ir_version(from.ir_version());
  *model->mutable_opset_import() = from.opset_import();
  *model->mutable_functions() = from.functions();
  onnx::GraphProto& graph = *model->mutable_graph();
  graph.set_name(from.graph().name());
  absl::flat_hash_set<std::string> read, given;
  for (const NodeId n : part.nodes) {
    *graph.add_node() = mutant.node(n);
    for (const ValueId v : mutant.inputs(n)) {
      if (v != kNoValue) read.insert(mutant.name(v));
    }
    for (const ValueId v : mutant.captures(n)) read.insert(mutant.name(v));
    for (const ValueId v : mutant.outputs(n)) {
      if (v != kNoValue) given.insert(mutant.name(v));
    }
  }
  for (const auto& input : from.graph().input()) {
    if (read.contains(input.name())) *graph.add_input() = input;
  }
  for (const std::string& name : part.fed) {
    auto* input = graph.add_input();
    input->set_name(name);
    input->mutable_type()->mutable_tensor_type()->set_elem_type(feeds.at(name).type());
  }
  for (const auto& output : from.graph().output()) {
    if (given.contains(output.name())) *graph.add_output() = output;
  }
  for (const onnx::TensorProto& tensor : from.graph().initializer()) {
    if (!read.contains(tensor.name())) continue;
    graph.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<onnx::TensorProto*>(&tensor));
  }
  for (const auto& tensor : from.graph().sparse_initializer()) {
    if (read.contains(tensor.values().name())) *graph.add_sparse_initializer() = tensor;
  }
  return model;
}

}  // namespace kvlift
