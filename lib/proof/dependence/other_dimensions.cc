#include "proof/dependence/other_dimensions.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace kvlift {
namespace {

using Dims = absl::flat_hash_set<sym::DimSymbol>;

void TakeDims(sym::Expr size, Dims* dims) {
  if (size == nullptr) return;
  for (const sym::DimSymbol& dim : sym::DimsOf(size)) dims->insert(dim);
}

}  // namespace

std::vector<InputAxis> OtherDimensions(const GraphPair& pair, const Correspondence& twins,
                                       const Manifest& relation) {
  const Graph& graph = pair.graph();
  const auto normal = [&](sym::Expr extent) { return twins.Normal(extent, sym::Facts{}); };
  Dims known;
  for (sym::Expr size : {twins.past(), twins.new_tokens(), twins.sequences()}) {
    TakeDims(size, &known);
  }
  for (const ManifestCache& cache : relation.caches) {
    const ValueId past = pair.Before(cache.source.input);
    if (past == kNoValue) continue;
    const sym::Form form = pair.forms().Of(past);
    if (!form.known_rank) continue;
    for (sym::Expr extent : form.shape) TakeDims(normal(extent), &known);
  }
  std::vector<InputAxis> axes;
  for (const ManifestInput& input : relation.inputs) {
    if (!HasSourceInput(input)) continue;
    const std::string& name = NameInSource(input);
    const ValueId v = pair.Before(name);
    if (v == kNoValue || graph.uses(v).empty()) continue;
    const sym::Form form = pair.forms().Of(v);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      Dims own;
      TakeDims(normal(form.shape[k]), &own);
      const bool is_other = std::any_of(
          own.begin(), own.end(), [&](const sym::DimSymbol& dim) { return !known.contains(dim); });
      if (is_other) axes.push_back({name, static_cast<int>(k)});
    }
  }
  return axes;
}

}  // namespace kvlift
