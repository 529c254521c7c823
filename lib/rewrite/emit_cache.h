// One TensorScatter-24 per recognised cache.
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

  // Adds the nodes of all caches and marks what they replace. A refusal is left in the plan.
  absl::Status Emit();

 private:
  // The buffer that is written: the past, or the past with its sequences in another order.
  absl::StatusOr<std::string> Base(const CacheUpdate& update);
  void KeepReaders(const CacheUpdate& update);
  // The new rows, as the result's cache lies, and as the source's.
  absl::StatusOr<std::string> Rows(const CacheUpdate& update);
  absl::StatusOr<std::string> RowsAsTheyLie(const CacheUpdate& update);
  absl::StatusOr<std::string> DrawnRows(const CacheUpdate& update);
  // Values of the source whose stack along the axes that hold several caches is `element`; empty if
  // there are none.
  std::vector<ValueId> FindParts(const CacheUpdate& update, const std::string& layout,
                                 sym::Expr element, const std::vector<sym::Expr>& shape);
  // Takes the parts from the front of `parts`.
  std::string Stack(const std::string& layout, const std::vector<sym::Expr>& shape,
                    std::vector<ValueId>* parts);
  void EmitScatter(const CacheUpdate& update, const std::string& past, const std::string& rows,
                   const Slots& slots);

  PlanState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
