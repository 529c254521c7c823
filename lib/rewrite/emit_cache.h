// Replaces the update of each recognised cache by one TensorScatter-24.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rewrite/control.h"
#include "rewrite/plan_state.h"

namespace kvlift::internal {

class CacheEmitter {
 public:
  CacheEmitter(PlanState& state, Control& control) : s_(state), control_(control) {}

  // Adds the nodes of all caches and marks the nodes that they replace. A refusal is left in the
  // plan.
  absl::Status Emit();

 private:
  // Returns the buffer that is written: the past, or the past with its sequences reordered.
  absl::StatusOr<std::string> WrittenBuffer(const CacheUpdate& update);
  void KeepReaders(const CacheUpdate& update);
  // Returns the new rows in the layout of the result's cache; RowsAsTheyLie in that of the
  // source's.
  absl::StatusOr<std::string> Rows(const CacheUpdate& update);
  absl::StatusOr<std::string> RowsAsTheyLie(const CacheUpdate& update);
  // Returns nodes for the expression of the new rows. A refusal is left in the plan.
  absl::StatusOr<std::string> DrawnRows(const CacheUpdate& update);
  // Returns the values of the source that, stacked along the axes that hold several caches, have
  // the element `element`; empty if some part is not a value of the source.
  std::vector<ValueId> FindParts(const CacheUpdate& update, const std::string& layout,
                                 sym::Expr element, const std::vector<sym::Expr>& shape);
  // Stacks the parts along the axes of `layout` that hold several caches, and removes them from the
  // front of *parts.
  std::string Stack(const std::string& layout, const std::vector<sym::Expr>& shape,
                    std::vector<ValueId>* parts);
  void EmitScatter(const PlannedCache& update, const std::string& past, const std::string& rows,
                   const Slots& slots);

  PlanState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
