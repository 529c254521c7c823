// Replaces the update of each planned cache by one TensorScatter-24. Internal to lib/rewrite.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rewrite/emit/control.h"
#include "rewrite/emit/emit_state.h"

namespace kvlift::internal {

class CacheEmitter {
 public:
  CacheEmitter(EmitState& state, Control& control) : s_(state), control_(control) {}

  // Adds the nodes of all caches and marks the nodes that they replace.
  absl::Status Emit();

 private:
  // Returns the buffer that is written: the past, or the past with its sequences reordered.
  absl::StatusOr<std::string> WrittenBuffer(const PlannedCache& cache, const PlannedWrite& write);
  void KeepReaders(const PlannedCache& cache);
  // Returns the new rows in the layout of the result's cache.
  absl::StatusOr<std::string> Rows(const PlannedCache& cache, const PlannedWrite& write);
  // Returns narrow rows (PlannedWrite::narrow_rows) in the type of the cache.
  absl::StatusOr<std::string> CastToCache(const PlannedCache& cache, const std::string& rows);
  // Stacks the parts along the axes of `layout` that hold several caches, and removes them from the
  // front of *parts.
  std::string Stack(const std::string& layout, const std::vector<sym::Expr>& shape,
                    std::vector<ValueId>* parts);
  void EmitScatter(const PlannedCache& cache, const std::string& past, const std::string& rows,
                   const Slots& slots);

  EmitState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
