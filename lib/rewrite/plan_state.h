// What the steps of planning share. Internal to lib/rewrite.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/node_builder.h"
#include "rewrite/plan.h"
#include "sym/emit.h"

namespace kvlift::internal {

// The number of keys that attention reads, in the expressions of what is drawn anew.
inline sym::DimSymbol KeysSymbol() { return sym::DimSymbol::Internal("W"); }
// The extent of a ring, by its window.
inline sym::DimSymbol RingSymbol(int64_t window) {
  return sym::DimSymbol::Internal("C" + std::to_string(window));
}
// The extent of a growing cache's buffer.
inline sym::DimSymbol CapacitySymbol() { return sym::DimSymbol::Internal("M"); }

struct PlanState {
  PlanState(Analysis& analysis, const ConvertOptions& convert_options)
      : a(analysis),
        graph(*analysis.graph),
        forms(*analysis.forms),
        pool(forms.pool()),
        options(convert_options),
        nodes(graph),
        emitter(forms, nodes) {}

  bool prefix_read() const { return options.read != ReadForm::kFull; }
  // Growing caches but rings are read through views of what is valid, so that what cannot be
  // rewritten stays.
  bool views() const { return uniform && prefix_read(); }
  bool IsWide(ValueId v) const {
    for (const auto& [input, axis] : wide) {
      if (input == v) return true;
    }
    return false;
  }
  void Refuse(std::string_view code, std::string text, std::vector<NodeId> at,
              std::vector<ValueId> values = {}) {
    plan.refusal = MakeFinding(code, std::move(text), graph, at, values);
  }

  Analysis& a;
  const Graph& graph;
  sym::Forms& forms;
  sym::Pool& pool;
  const ConvertOptions& options;
  NodeBuilder nodes;
  sym::Emitter emitter;
  bool derived = false;  // no control input: P comes from what the host gives
  bool uniform = false;  // one P for all sequences
  bool growing = false;  // some cache grows
  bool shifts = false;   // in the source, the rows of some cache move
  bool rings = false;    // some growing cache becomes a ring
  // Attentions whose fully masked rows would differ stay: something reads such rows of a cache.
  bool keep_unguarded = false;
  sym::Expr batch = nullptr, new_length = nullptr;
  ValueId batch_source =
      kNoValue;                    // a growing cache's past, or an input, whose axis 0 is the batch
  sym::Pool::Substitution normal;  // of the symbols below: to kPastSymbol
  std::vector<sym::DimSymbol> lengths;     // dim symbols that mean P or depend on it
  std::set<std::pair<ValueId, int>> wide;  // inputs and the axis that is as long as the keys
  // Of these with --padding none: the number that each element is taken to be.
  std::map<ValueId, int64_t> assumed;
  std::vector<ValueId> roots;  // values that what is new reads
  ConversionPlan plan;
};

}  // namespace kvlift::internal
