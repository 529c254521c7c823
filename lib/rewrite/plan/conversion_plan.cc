#include "rewrite/plan/conversion_plan.h"

#include <algorithm>

#include "base/overloaded.h"

namespace kvlift {

bool ConversionPlan::grows() const {
  return std::any_of(caches.begin(), caches.end(),
                     [](const PlannedCache& cache) { return cache.grows(); });
}

std::vector<ValueId> ValuesRead(const Analysis& a, const ConversionPlan& plan) {
  std::vector<ValueId> values;
  const auto add_all = [&](const std::vector<ValueId>& more) {
    values.insert(values.end(), more.begin(), more.end());
  };
  for (const AnalysedCache& cache : a.caches) {
    if (cache.update_index < 0) continue;
    std::visit(
        Overloaded{[&](const RowsInTargetLayout& rows) { values.push_back(rows.value); },
                   [&](const RowsInSourceLayout& rows) { values.push_back(rows.value); },
                   [&](const StackedRows& rows) { add_all(rows.parts); },
                   [&](const DrawnRows& drawn) { add_all(sym::SourcesOf(drawn.rows.element)); }},
        plan.writes[cache.update_index].rows);
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
