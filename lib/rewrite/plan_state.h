// The state that the steps of planning share. Internal to lib/rewrite.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/node_builder.h"
#include "rewrite/plan.h"
#include "rewrite/planned_cache.h"
#include "sym/emit.h"

namespace kvlift::internal {

// W, the number of keys that attention is given, in the expressions of masks that are drawn.
inline sym::DimSymbol KeysSymbol() { return sym::DimSymbol::Internal("W"); }
// C, the number of slots of the rings for windows of this many rows.
inline sym::DimSymbol RingSymbol(int64_t window) {
  return sym::DimSymbol::Internal("C" + std::to_string(window));
}
// M, the number of slots of the buffers that growing caches become.
inline sym::DimSymbol CapacitySymbol() { return sym::DimSymbol::Internal("M"); }

struct PlanState {
  PlanState(Analysis& analysis, const std::vector<PlannedCache>& planned,
            const ConvertOptions& convert_options)
      : a(analysis),
        caches(planned),
        graph(*analysis.graph),
        forms(*analysis.forms),
        pool(forms.pool()),
        options(convert_options),
        nodes(graph),
        emitter(forms, nodes) {}

  // Attention is given the valid rows of a buffer, not the whole buffer.
  bool prefix_read() const { return options.read != ReadForm::kFull; }
  // Growing caches (rings not included) are read through views of their valid rows, so that readers
  // which cannot be rewritten may stay.
  bool views() const { return uniform && prefix_read(); }
  // Returns true if some axis of the input is as long as the keys.
  bool IsKeyLengthMask(ValueId v) const {
    for (const auto& [input, axis] : key_length_masks) {
      if (input == v) return true;
    }
    return false;
  }
  // These set plan.refusal, in place of an earlier one.
  void Refuse(Finding finding) {
    plan.refusal = PlanRefusal{PlanRefusal::Cause::kModel, std::move(finding)};
  }
  void Refuse(std::string_view code, std::string text, std::vector<NodeId> at,
              std::vector<ValueId> values = {}) {
    Refuse(MakeFinding(code, std::move(text), graph, at, values));
  }
  void RefuseOption(Finding finding) {
    plan.refusal = PlanRefusal{PlanRefusal::Cause::kOption, std::move(finding)};
  }

  Analysis& a;
  const std::vector<PlannedCache>& caches;  // by index of Analysis::updates
  const Graph& graph;
  sym::Forms& forms;
  sym::Pool& pool;
  const ConvertOptions& options;
  NodeBuilder nodes;
  sym::Emitter emitter;
  bool derived = false;  // no control input: P is computed from the width of an input of the source
  bool uniform = false;  // one P for all sequences of a batch
  bool growing = false;  // some cache grows
  bool fifos = false;    // some cache is a Fifo
  bool rings = false;    // some growing cache becomes a ring
  // Attention-24 gives 0 for a query without visible keys, and something else reads such rows:
  // attentions of the source that give another number for them stay.
  bool keep_unguarded = false;
  sym::Expr batch = nullptr, new_length = nullptr;  // B and S
  // A cache's past (on its axis B) or an input (on axis 0) whose extent is `batch`.
  ValueId batch_source = kNoValue;
  // Replaces the symbols in `lengths` by expressions of PastSymbol() and S.
  sym::Pool::Substitution normal;
  std::vector<sym::DimSymbol> lengths;  // dim symbols of the source that mean P or depend on it
  // Masks of the host: inputs, each with an axis that is as long as the keys.
  std::set<std::pair<ValueId, int>> key_length_masks;
  // With --padding none: the number that all elements of these inputs are taken to be.
  std::map<ValueId, int64_t> assumed;
  std::vector<ValueId> roots;  // values of the source that new nodes read
  ConversionPlan plan;
};

}  // namespace kvlift::internal
