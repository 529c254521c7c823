#include "proof/lemmas/softmax_precision.h"

#include "sym/forms/keeps_value.h"
#include "sym/forms/row_softmax.h"

namespace kvlift {
namespace {

constexpr int kMostCasts = 8;

bool RoundsTo(sym::Forms& forms, NodeId node, int32_t type) {
  const auto passed = sym::PassedThrough(forms, node);
  return passed && passed->fidelity >= sym::Fidelity::kRounded &&
         forms.ElementType(forms.graph().outputs(node)[0]) == type;
}

// Returns true if the node's operand is a softmax's result, apart from a NaN guard and exact casts.
bool ReadsSoftmax(sym::Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  NodeId from = graph.producer(graph.inputs(node)[0]);
  if (from != kNoNode && graph.Is(from, "Where") && graph.inputs(from).size() == 3) {
    const NodeId first = graph.producer(graph.inputs(from)[1]);
    const bool clears = first == kNoNode || graph.constant(graph.inputs(from)[1]) != nullptr;
    from = clears ? graph.producer(graph.inputs(from)[2]) : first;
  }
  for (int k = 0; from != kNoNode && k < kMostCasts; ++k) {
    if (sym::ReadRowSoftmax(forms, from)) return true;
    const ValueId operand = sym::ExactOperand(forms, from);
    from = operand == kNoValue ? kNoNode : graph.producer(operand);
  }
  return false;
}

}  // namespace

bool IsCastOfScores(sym::Forms& forms, NodeId node, int32_t softmax_type) {
  return RoundsTo(forms, node, softmax_type);
}

bool IsCastOfWeights(sym::Forms& forms, NodeId node, int32_t value_type) {
  return RoundsTo(forms, node, value_type) && ReadsSoftmax(forms, node);
}

}  // namespace kvlift
