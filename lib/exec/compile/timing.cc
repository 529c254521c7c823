#include "exec/compile/timing.h"

#include <algorithm>

#include "exec/compile/shape_reads.h"

namespace kvlift::exec {
namespace {

class NodeTimer {
 public:
  NodeTimer(const Graph& graph, absl::Span<const OpDef* const> defs,
            absl::Span<const onnx::TensorProto* const> constants)
      : graph_(graph),
        defs_(defs),
        constants_(constants),
        timing_(graph.num_nodes(), Timing::kPlanned),
        index_(graph.num_values(), false) {}

  std::vector<Timing> Time(const std::vector<NodeId>& order) {
    for (const NodeId n : order) {
      if (!IsConstant(n)) TimeNode(n);
    }
    for (auto n = order.rbegin(); n != order.rend(); ++n) {
      if (!IsConstant(*n)) MarkNeeded(*n);
    }
    return std::move(timing_);
  }

 private:
  bool IsConstant(NodeId n) const {
    const auto outputs = graph_.outputs(n);
    return !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      return v != kNoValue && constants_[v] != nullptr;
    });
  }

  // Returns true if the elements can be known before the step runs.
  bool IsKnown(ValueId v) const {
    return constants_[v] != nullptr || graph_.producer(v) == kNoNode || index_[v];
  }

  // Decides whether the node is planned or late, and whether its results may be computed early.
  void TimeNode(NodeId n) {
    const OpDef* def = defs_[n];
    if (def == nullptr || !graph_.captures(n).empty()) {
      timing_[n] = Timing::kLate;
      return;
    }
    const uint32_t reads = ShapeReads(*def);
    const auto inputs = graph_.inputs(n);
    bool known = true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue) continue;
      const NodeId producer = graph_.producer(inputs[i]);
      const bool late = producer != kNoNode && timing_[producer] == Timing::kLate &&
                        constants_[inputs[i]] == nullptr;
      if (late || (ReadsInput(reads, i) && !IsKnown(inputs[i]))) {
        timing_[n] = Timing::kLate;
        return;
      }
      known = known && IsKnown(inputs[i]);
    }
    if (!IsIndexArithmetic(*def) || (!known && !IsOfShapeAlone(*def))) return;
    for (const ValueId v : graph_.outputs(n)) {
      if (v != kNoValue) index_[v] = true;
    }
  }

  // Makes nodes early whose elements a shape reads, and the nodes that they are computed from.
  void MarkNeeded(NodeId n) {
    if (timing_[n] == Timing::kLate) return;
    const bool early = timing_[n] == Timing::kEarly;
    const uint32_t reads = ShapeReads(*defs_[n]);
    const auto inputs = graph_.inputs(n);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || constants_[inputs[i]] != nullptr) continue;
      const bool needed = ReadsInput(reads, i) || (early && !IsOfShapeAlone(*defs_[n]));
      const NodeId producer = graph_.producer(inputs[i]);
      if (needed && producer != kNoNode) timing_[producer] = Timing::kEarly;
    }
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  absl::Span<const onnx::TensorProto* const> constants_;
  std::vector<Timing> timing_;  // by node
  std::vector<bool> index_;     // by value: may be computed early
};

}  // namespace

std::vector<Timing> TimeNodes(const Graph& graph, absl::Span<const OpDef* const> defs,
                              absl::Span<const onnx::TensorProto* const> constants,
                              const std::vector<NodeId>& order) {
  return NodeTimer(graph, defs, constants).Time(order);
}

}  // namespace kvlift::exec
