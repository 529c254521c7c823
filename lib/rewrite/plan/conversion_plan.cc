#include "rewrite/plan/conversion_plan.h"

#include <algorithm>

#include "base/overloaded.h"

namespace kvlift {

bool ConversionPlan::grows() const {
  return std::any_of(caches.begin(), caches.end(),
                     [](const PlannedCache& cache) { return cache.grows(); });
}

std::vector<ValueId> ValuesOf(const NewRows& rows) {
  using Values = std::vector<ValueId>;
  return std::visit(Overloaded{[](const RowsInTargetLayout& r) { return Values{r.value}; },
                               [](const RowsInSourceLayout& r) { return Values{r.value}; },
                               [](const StackedRows& r) { return r.parts; },
                               [](const DrawnRows& r) { return sym::SourcesOf(r.rows.element); }},
                    rows);
}

std::vector<ValueId> ValuesRead(const Analysis& a, const ConversionPlan& plan) {
  std::vector<ValueId> values;
  for (const AnalysedCache& cache : a.caches) {
    if (cache.update_index < 0) continue;
    for (ValueId v : ValuesOf(plan.writes[cache.update_index].rows)) values.push_back(v);
  }
  for (size_t k = 0; k < plan.attention.size(); ++k) {
    const PlannedAttention* attention = plan.replaced(k);
    if (attention == nullptr) continue;
    if (attention->mask) {
      for (ValueId source : sym::SourcesOf(attention->mask->element)) {
        if (!a.graph->is_graph_input(source)) values.push_back(source);
      }
    }
    for (const PlannedBias& bias : attention->biases) values.push_back(bias.value);
    values.push_back(a.attention[k].site->query);
  }
  return values;
}

}  // namespace kvlift
