#include "rewrite/recognise/new_rows_only.h"

#include <algorithm>
#include <vector>

#include "fmt/format.h"
#include "rewrite/recognise/append.h"
#include "rewrite/recognise/attention/match.h"

namespace kvlift {
namespace {

constexpr size_t kMaxReaders = 32;

// Returns true if v is the past with the rows of this form behind it.
bool AppendsRows(sym::Forms& forms, ValueId past, ValueId v, const sym::Form& rows) {
  const auto append = ReadAppend(forms, past, v);
  if (!append || append->reversed) return false;
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution unit_axes;
  unit_axes.indices = Indices(pool, rows.shape);
  const auto at = [&](sym::Expr e) {
    return pool.Substitute(e, unit_axes, sym::Facts{rows.shape});
  };
  return at(append->update) == at(rows.element);
}

// Returns the past and what is computed from it, nearest first.
std::vector<ValueId> ReadersOf(const Graph& graph, ValueId past) {
  std::vector<ValueId> reached = {past};
  for (size_t k = 0; k < reached.size(); ++k) {
    for (const Use& use : graph.uses(reached[k])) {
      if (reached.size() >= kMaxReaders) return reached;
      if (use.kind != Use::Kind::kNodeInput) continue;
      const ValueId result = graph.outputs(use.node)[0];
      const bool known = std::find(reached.begin(), reached.end(), result) != reached.end();
      if (result != kNoValue && !known) reached.push_back(result);
    }
  }
  return reached;
}

}  // namespace

ValueId PastOfNewRows(sym::Forms& forms, ValueId output) {
  const Graph& graph = forms.graph();
  const sym::Form rows = forms.Of(output);
  if (!rows.known_rank) return kNoValue;
  for (ValueId past : graph.graph_inputs()) {
    const sym::Form& form = forms.Of(past);
    if (past == output || !form.known_rank || form.shape.size() != rows.shape.size()) continue;
    if (forms.ElementType(past) != forms.ElementType(output)) continue;
    for (ValueId v : ReadersOf(graph, past)) {
      if (v != past && AppendsRows(forms, past, v, rows)) return past;
    }
  }
  return kNoValue;
}

Finding NewRowsOnly(const Graph& graph, ValueId output, ValueId past) {
  return MakeFinding("KV220",
                     fmt::format("{} holds only the new rows that are read behind {}: the host "
                                 "appends them, and the graph updates no cache",
                                 graph.name(output), graph.name(past)),
                     graph, {graph.producer(output)}, {past, output});
}

}  // namespace kvlift
