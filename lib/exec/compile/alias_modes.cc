#include "exec/compile/alias_modes.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

bool IsFloat(int32_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE ||
         type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
}

// Returns true if a value depends on the elements of a graph input, not only on shapes and
// constants.
bool DependsOnInputs(const Graph& graph, ValueId value) {
  std::vector<ValueId> stack = {value};
  absl::flat_hash_set<ValueId> seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    if (graph.is_graph_input(v)) return true;
    const NodeId n = graph.producer(v);
    if (n == kNoNode || graph.Is(n, "Shape") || graph.Is(n, "Size")) continue;
    for (const ValueId in : graph.inputs(n)) {
      if (in != kNoValue && seen.insert(in).second) stack.push_back(in);
    }
  }
  return false;
}

}  // namespace

void RetiredMemory::Retire(const View& past, std::string what) {
  if (past.data != nullptr && past.bytes() > 0) {
    regions_.push_back({past.data, past.data + past.bytes(), std::move(what)});
  }
}

absl::Status RetiredMemory::Check(absl::Span<const View> operands) const {
  for (const Region& region : regions_) {
    for (const View& view : operands) {
      if (view.data < region.begin || view.data >= region.end || view.size() == 0) continue;
      return absl::FailedPreconditionError(fmt::format("reads {}", region.what));
    }
  }
  return absl::OkStatus();
}

bool HasUnreadRows(const Graph& graph, absl::Span<const OpDef* const> defs, const PairPlan& pair) {
  // With several writers, rows behind those of one writer may belong to another.
  if (pair.writer == kNoNode || !pair.written.empty() || !graph.Is(pair.writer, "TensorScatter") ||
      StringAttribute(graph.node(pair.writer), "mode", "linear") != "linear") {
    return false;
  }
  std::vector<ValueId> stack = {graph.outputs(pair.writer)[0], pair.past};
  absl::flat_hash_set<ValueId> seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    for (const Use& use : graph.uses(v)) {
      if (use.kind == Use::Kind::kGraphOutput) continue;
      if (use.kind == Use::Kind::kCapture) return false;
      if (use.node == pair.writer || graph.Is(use.node, "Shape")) continue;
      const auto inputs = graph.inputs(use.node);
      if (graph.Is(use.node, "Attention") && (use.index == 1 || use.index == 2) &&
          inputs.size() > 6 && inputs[6] != kNoValue && DependsOnInputs(graph, inputs[6])) {
        continue;
      }
      const bool view = defs[use.node] != nullptr && defs[use.node]->view == ViewKind::kWhole;
      if (use.index != 0 || (!view && !graph.Is(use.node, "Slice"))) return false;
      const ValueId out = graph.outputs(use.node)[0];
      if (out != kNoValue && seen.insert(out).second) stack.push_back(out);
    }
  }
  return true;
}

// The cache is [B, .., M, ..] and the update [B, .., S, ..], with M and S on `axis`.
void PoisonRows(const onnx::NodeProto& node, absl::Span<const View> inputs) {
  const View& cache = inputs[0];
  const auto rank = static_cast<int64_t>(cache.shape.size());
  int64_t axis = IntAttribute(node, "axis", -2);
  if (axis < 0) axis += rank;
  if (inputs.size() < 2 || axis <= 0 || axis >= rank || !IsFloat(cache.type)) return;
  if (static_cast<int64_t>(inputs[1].shape.size()) != rank) return;
  const int64_t capacity = cache.shape[axis], count = inputs[1].shape[axis];
  int64_t blocks = 1, row = ElementBits(cache.type) / 8;  // blocks per batch entry, bytes of a row
  for (int64_t d = 1; d < axis; ++d) blocks *= cache.shape[d];
  for (int64_t d = axis + 1; d < rank; ++d) row *= cache.shape[d];
  const bool indexed = inputs.size() > 2 && !inputs[2].absent();
  if (indexed && inputs[2].size() != cache.shape[0]) return;
  for (int64_t b = 0; b < cache.shape[0]; ++b) {
    const int64_t start = !indexed                                     ? 0
                          : inputs[2].type == onnx::TensorProto::INT32 ? inputs[2].as<int32_t>()[b]
                                                                       : inputs[2].as<int64_t>()[b];
    if (start < 0 || start + count > capacity) continue;
    for (int64_t k = 0; k < blocks; ++k) {
      std::byte* begin = cache.data + ((b * blocks + k) * capacity + start + count) * row;
      std::memset(begin, 0xff, static_cast<size_t>((capacity - start - count) * row));
    }
  }
}

}  // namespace kvlift::exec
