#include "sym/forms/less_maximum.h"

#include "ir/graph.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::sym {
namespace {

// Returns the only axis that a reduction takes, by its attribute or its operand; nullopt if there
// are others or it is not known.
std::optional<int64_t> OnlyAxis(Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  for (const auto& attribute : graph.node(node).attribute()) {
    if (attribute.name() != "axes") continue;
    return attribute.ints_size() == 1 ? std::optional<int64_t>(attribute.ints(0)) : std::nullopt;
  }
  if (graph.inputs(node).size() < 2 || graph.inputs(node)[1] == kNoValue) return std::nullopt;
  const auto axes = forms.Elements(graph.inputs(node)[1]);
  if (!axes || axes->size() != 1 || (*axes)[0]->kind() != Kind::kInteger) return std::nullopt;
  return (*axes)[0]->value();
}

}  // namespace

ValueId WithoutMaximum(Forms& forms, ValueId value) {
  const Graph& graph = forms.graph();
  const NodeId node = graph.producer(Unrenamed(graph, value));
  if (node == kNoNode || !graph.Is(node, "Sub") || graph.inputs(node).size() != 2) return kNoValue;
  const ValueId x = Unrenamed(graph, graph.inputs(node)[0]);
  const NodeId reduction = graph.producer(Unrenamed(graph, graph.inputs(node)[1]));
  if (reduction == kNoNode || !graph.Is(reduction, "ReduceMax")) return kNoValue;
  const bool same =
      !graph.inputs(reduction).empty() && Unrenamed(graph, graph.inputs(reduction)[0]) == x;
  if (!same || IntAttribute(graph.node(reduction), "keepdims", 1) == 0) return kNoValue;
  const Form& form = forms.Of(x);
  const auto axis = OnlyAxis(forms, reduction);
  if (!form.known_rank || !axis) return kNoValue;
  const auto rank = static_cast<int64_t>(form.shape.size());
  return *axis == -1 || *axis == rank - 1 ? x : kNoValue;
}

}  // namespace kvlift::sym
