#include "exec/packing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/plan.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

// Returns true for a Transpose of a constant matrix that swaps its two axes.
bool IsMatrixTranspose(const Graph& graph, NodeId n,
                       const std::vector<const onnx::TensorProto*>& protos) {
  if (!graph.Is(n, "Transpose") || graph.inputs(n).size() != 1) return false;
  const ValueId from = graph.inputs(n)[0];
  if (from == kNoValue || protos[from] == nullptr || protos[from]->dims_size() != 2 ||
      ElementBits(protos[from]->data_type()) % 8 != 0) {
    return false;
  }
  for (const onnx::AttributeProto& a : graph.node(n).attribute()) {
    if (a.name() == "perm" && (a.ints_size() != 2 || a.ints(0) != 1 || a.ints(1) != 0)) {
      return false;
    }
  }
  return true;
}

// Returns true if every reader of v packs it and understands transposed constants.
bool OnlyPacked(const Graph& graph, ValueId v) {
  if (graph.is_graph_output(v)) return false;
  const auto uses = graph.uses(v);
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    if (use.kind != Use::Kind::kNodeInput) return false;
    const OpDef* def = DefOf(graph, use.node);
    return def != nullptr && def->pack != nullptr && def->packs_transposed &&
           use.index == def->packs_input;
  });
}

}  // namespace

WeightPacker::WeightPacker(const Graph& graph, std::vector<const onnx::TensorProto*>& protos)
    : graph_(graph) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!IsMatrixTranspose(graph, n, protos)) continue;
    const ValueId from = graph.inputs(n)[0], to = graph.outputs(n)[0];
    if (to == kNoValue || protos[to] != nullptr || !OnlyPacked(graph, to)) continue;
    auto shape = std::make_unique<onnx::TensorProto>();
    shape->set_data_type(protos[from]->data_type());
    shape->add_dims(protos[from]->dims(1));
    shape->add_dims(protos[from]->dims(0));
    protos[to] = shape.get();
    shapes_.push_back(std::move(shape));
    sources_.emplace(to, from);
  }
}

ValueId WeightPacker::SourceOf(ValueId v) const {
  const auto it = sources_.find(v);
  return it == sources_.end() ? kNoValue : it->second;
}

std::shared_ptr<const Prepacked> WeightPacker::PackNode(NodeId n, const OpDef& def,
                                                        absl::Span<const Tensor* const> constants,
                                                        bool canonical, int threads) {
  const onnx::NodeProto& node = graph_.node(n);
  const absl::Span<const ValueId> inputs = graph_.inputs(n);
  if (def.packs_input >= static_cast<int>(inputs.size())) return nullptr;
  const ValueId weights = inputs[def.packs_input];
  if (weights == kNoValue || constants[weights] == nullptr) return nullptr;
  std::vector<View> views(inputs.size());
  Key key;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNoValue || constants[inputs[i]] == nullptr) continue;
    views[i] = constants[inputs[i]]->view();
    key.first.push_back(views[i].data);
  }
  PackRequest request{node, OpsetOf(graph_.model(), node.domain()), views};
  request.transposed = sources_.contains(weights);
  request.canonical = canonical;
  request.threads = threads;
  if (request.transposed)
    std::swap(views[def.packs_input].shape[0], views[def.packs_input].shape[1]);
  key.second = node.op_type() + (request.transposed ? " transposed" : "");
  for (const onnx::AttributeProto& a : node.attribute()) key.second += a.SerializeAsString();
  const auto [it, inserted] = done_.try_emplace(std::move(key));
  if (inserted) {
    it->second = def.pack(request);
    for (const ValueId v : inputs) {
      if (it->second != nullptr && v != kNoValue && constants[v] != nullptr) {
        constants[v]->ReleasePages();
      }
    }
  }
  return it->second;
}

// Counts the readers of each constant. A Transpose that is left out does not count; a graph output
// or a capture counts as reading always.
absl::flat_hash_map<const Tensor*, int64_t> WeightPacker::CountReaders(
    absl::Span<const Tensor* const> constants) const {
  constexpr int64_t kAlways = int64_t{1} << 32;
  absl::flat_hash_map<const Tensor*, int64_t> readers;
  for (ValueId v = 0; v < graph_.num_values(); ++v) {
    if (constants[v] == nullptr) continue;
    for (const Use& use : graph_.uses(v)) {
      const bool operand = use.kind == Use::Kind::kNodeInput;
      const ValueId out =
          operand && !graph_.outputs(use.node).empty() ? graph_.outputs(use.node)[0] : kNoValue;
      if (out != kNoValue && SourceOf(out) == v) continue;
      readers[constants[v]] += operand ? 1 : kAlways;
    }
  }
  return readers;
}

std::vector<std::shared_ptr<const Prepacked>> WeightPacker::Pack(
    absl::Span<const OpDef* const> defs, absl::Span<const Tensor* const> constants, bool canonical,
    int threads, absl::FunctionRef<void(ValueId)> unread) {
  std::vector<std::shared_ptr<const Prepacked>> packed(defs.size());
  auto readers = CountReaders(constants);
  for (NodeId n = 0; n < static_cast<NodeId>(defs.size()); ++n) {
    if (defs[n] == nullptr || defs[n]->pack == nullptr) continue;
    packed[n] = PackNode(n, *defs[n], constants, canonical, threads);
    if (packed[n] == nullptr) continue;
    const ValueId weights = graph_.inputs(n)[defs[n]->packs_input];
    if (--readers[constants[weights]] > 0) continue;
    unread(SourceOf(weights) == kNoValue ? weights : SourceOf(weights));
  }
  done_.clear();
  return packed;
}

Tensor TransposedMatrix(const Tensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  Tensor result(matrix.type(), {columns, rows});
  if (matrix.size() == 0 || result.data() == nullptr) return result;
  const auto bytes = static_cast<size_t>(matrix.view().bytes() / matrix.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      std::memcpy(result.data() + (j * rows + i) * bytes, matrix.data() + (i * columns + j) * bytes,
                  bytes);
    }
  }
  return result;
}

}  // namespace kvlift::exec
