#include "proof/graphs/value_types.h"

#include "sym/forms/forms.h"

namespace kvlift {

std::vector<TensorType> TypesOf(const Graph& graph, const std::vector<ValueId>& values) {
  sym::Forms forms(graph);
  std::vector<TensorType> types;
  for (ValueId v : values) {
    TensorType type = graph.type(v);
    if (type.elem_type == 0) type.elem_type = forms.ElementType(v);
    const sym::Form form = forms.Of(v);
    if (form.known_rank && !type.shape) type.shape.emplace(form.shape.size());
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      const sym::Expr extent = form.shape[k];
      Dim& dim = (*type.shape)[k];
      if (extent->kind() == sym::Kind::kInteger) {
        dim = {extent->value(), ""};
      } else if (extent->kind() == sym::Kind::kDim && !extent->dim().is_internal()) {
        dim = {std::nullopt, std::string(extent->dim().name())};
      }
    }
    types.push_back(std::move(type));
  }
  return types;
}

}  // namespace kvlift
