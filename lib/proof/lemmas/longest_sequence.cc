#include "proof/lemmas/longest_sequence.h"

#include <optional>

#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift {
namespace {

constexpr char kMore[] = "more of the longest sequence, ";

}  // namespace

ValueId LargestOf(sym::Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  if (!graph.Is(n, "ReduceMax")) return kNoValue;
  const ValueId numbers = graph.inputs(n)[0];
  const sym::Form form = forms.Of(numbers);
  if (!form.known_rank || form.shape.size() != 1 || !IsIntegerType(forms.ElementType(numbers))) {
    return kNoValue;
  }
  // Without axes the maximum is over the whole vector, unless noop_with_empty_axes is set.
  const ValueId axes = graph.inputs(n).size() > 1 ? graph.inputs(n)[1] : kNoValue;
  bool some = !IntsAttribute(graph.node(n), "axes").empty();
  if (axes != kNoValue) {
    const auto elements = forms.Elements(axes);
    if (!elements) return kNoValue;
    some = !elements->empty();
  }
  const bool nothing = !some && IntAttribute(graph.node(n), "noop_with_empty_axes", 0) != 0;
  return nothing ? kNoValue : numbers;
}

sym::Expr MoreOfLongest(sym::Forms& forms, NodeId n) {
  return forms.pool().Internal(fmt::format("{}{}", kMore, n));
}

sym::Expr AtLongest(sym::Pool& pool, sym::Expr e) {
  sym::Pool::Substitution s;
  for (const sym::DimSymbol& name : sym::DimsOf(e)) {
    if (name.is_internal() && name.name().rfind(kMore, 0) == 0) s.dims[name] = pool.Integer(0);
  }
  return s.dims.size() == 1 ? pool.Substitute(e, s, sym::Facts{}) : e;
}

}  // namespace kvlift
