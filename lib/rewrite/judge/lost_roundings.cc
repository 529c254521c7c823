#include "rewrite/judge/lost_roundings.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "onnx/onnx_pb.h"
#include "rewrite/judge/staying_nodes.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::internal {
namespace {

using onnx::TensorProto;

// The operators with a float16 kernel in ONNX Runtime's CPU provider, those of opset 24 and those
// of com.microsoft in decoders.
constexpr std::string_view kHalfKernels[] = {"Cast",          "Clip",
                                             "Compress",      "Concat",
                                             "Expand",        "Flatten",
                                             "Gather",        "GatherElements",
                                             "GatherND",      "GroupQueryAttention",
                                             "Identity",      "LayerNormalization",
                                             "MatMulNBits",   "Max",
                                             "Min",           "RMSNormalization",
                                             "Reshape",       "RotaryEmbedding",
                                             "Round",         "ScatterElements",
                                             "ScatterND",     "Shape",
                                             "Sign",          "SimplifiedLayerNormalization",
                                             "Size",          "SkipLayerNormalization",
                                             "Slice",         "SkipSimplifiedLayerNormalization",
                                             "Split",         "Squeeze",
                                             "TensorScatter", "Tile",
                                             "Transpose",     "Unsqueeze"};

bool HasNarrowCache(const Analysis& a) {
  return std::any_of(a.updates.begin(), a.updates.end(), [&](const CacheUpdate& update) {
    return sym::HoldsNarrowerNumbers(*a.forms, update.pair.past);
  });
}

class RoundingFinder {
 public:
  RoundingFinder(const Analysis& a, const ConversionPlan& plan)
      : graph_(*a.graph), forms_(*a.forms), stays_(a, plan) {
    for (ValueId v : ValuesRead(a, plan)) read_by_new_nodes_.insert(v);
  }

  NodeId Find() const {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (stays_.Contains(n) && HasHalfKernel(n) && BecomesIsolated(n)) return n;
    }
    return kNoNode;
  }

 private:
  bool HasHalfKernel(NodeId n) const {
    return n != kNoNode &&
           std::any_of(std::begin(kHalfKernels), std::end(kHalfKernels),
                       [&](std::string_view op) { return graph_.node(n).op_type() == op; });
  }

  // A result of unknown type counts as one of the type of the first operand with a known one.
  bool IsHalf(ValueId v) const {
    while (v != kNoValue) {
      const int32_t type = forms_.ElementType(v);
      if (type != 0) return type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16;
      const NodeId n = graph_.producer(v);
      v = n == kNoNode || graph_.inputs(n).empty() ? kNoValue : graph_.inputs(n)[0];
    }
    return false;
  }

  // Returns true if a neighbour has a float16 kernel in the source and none has one in the result.
  bool BecomesIsolated(NodeId n) const {
    bool before = false;
    const auto inputs = graph_.inputs(n);
    for (int k = 0; k < static_cast<int>(inputs.size()); ++k) {
      if (!IsHalf(inputs[k]) || !HasHalfKernel(graph_.producer(inputs[k]))) continue;
      before = true;
      if (stays_.Keeps(n, k)) return false;
    }
    for (ValueId v : graph_.outputs(n)) {
      if (!IsHalf(v)) continue;
      for (const Use& use : graph_.uses(v)) {
        if (use.kind != Use::Kind::kNodeInput || !HasHalfKernel(use.node)) continue;
        before = true;
        if (stays_.Keeps(use.node, use.index) || read_by_new_nodes_.contains(v)) return false;
      }
    }
    return before;
  }

  const Graph& graph_;
  sym::Forms& forms_;
  const StayingNodes stays_;
  absl::flat_hash_set<ValueId> read_by_new_nodes_;
};

}  // namespace

std::optional<Finding> LosesRounding(const Analysis& a, const ConversionPlan& plan) {
  if (plan.options.rounding == Rounding::kFree || !HasNarrowCache(a)) return std::nullopt;
  const NodeId n = RoundingFinder(a, plan).Find();
  if (n == kNoNode) return std::nullopt;
  return MakeFinding(
      "KV248",
      fmt::format("needs the neighbours of {} as they are: without the last one that ONNX Runtime "
                  "computes in half precision, it would compute in float32 there (--rounding free "
                  "takes that)",
                  a.graph->NodeName(n)),
      *a.graph, {n});
}

}  // namespace kvlift::internal
