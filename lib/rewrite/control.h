// Computes where new rows are written and how many rows are valid: TensorScatter's write_indices,
// Attention's nonpad_kv_seqlen, and views of the valid rows of a buffer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rewrite/plan_state.h"

namespace kvlift::internal {

// The numbers of one cache in a step, as names of int64 values.
struct Slots {
  std::string write;   // [extent of the cache's axis 0]: slot of the first new row
  std::string valid;   // [B]: number of rows that attention may read, nonpad_kv_seqlen
  std::string keys;    // [1]: number of rows that attention is given
  bool whole = false;  // attention is given the whole buffer; no Slice is needed
  // Slot of the first new row among the rows that attention is given, as masks express it.
  sym::Expr start = nullptr;
};

class Control {
 public:
  explicit Control(PlanState& state) : s_(state) {}

  // Fills the lengths, the batch and the masks of the state. A refusal is left in the plan.
  void Survey();
  // Adds the nodes that growing and shifting caches share. A refusal is left in the plan.
  absl::Status Emit();
  // Names of the inputs that Emit asks for; empty if there is no such input.
  const std::string& input() const { return input_; }              // the write index
  const std::string& valid_input() const { return valid_input_; }  // the number of valid rows
  // Which new tokens each new token sees (--tree-mask).
  const std::string& tree_input() const { return tree_input_; }

  // Returns the numbers of a cache. Fails if the write index cannot be built from nodes.
  absl::StatusOr<Slots> SlotsOf(const PlannedCache& cache);
  // Returns SlotsOf, with the whole buffer given to attention and valid. Not for growing caches.
  absl::StatusOr<Slots> WholeBuffer(const PlannedCache& update);

  // Names of the rows of a growing cache that the source has as its past, as its present and as
  // what attention reads, in the layout of the result. Only where PlanState::views() holds.
  std::string PastView(const CacheUpdate& update);
  std::string PresentView(const CacheUpdate& update);
  std::string ViewForAttention(const CacheUpdate& update);

 private:
  void CollectKeyLengthMasks(sym::Expr keep);
  void FindBatch();
  void RefuseOtherKeyLengthInputs();
  absl::Status EmitDerived(const std::string& length);
  absl::Status EmitInput(const std::string& length);
  std::optional<std::pair<ValueId, int>> LengthSource();
  std::string Capacity();
  absl::StatusOr<std::string> WriteIndices(const CacheUpdate& update);
  absl::StatusOr<Slots> GrowingSlots(const PlannedCache& cache);
  absl::StatusOr<Slots> BufferSlots(const PlannedCache& cache);
  absl::StatusOr<Slots> RingSlots(const CacheUpdate& update, const WindowRing& ring);
  std::string FreeName(std::string name) const;
  // Returns max(length - window, 0), int64 [1]; 0 without a window.
  std::string Dropped(const std::string& length, std::optional<int64_t> window);
  // Returns the rows [Dropped(before, window), to) of a past or present.
  std::string Rows(const CacheUpdate& update, ValueId of, const std::string& before,
                   const std::string& to);

  PlanState& s_;
  std::string input_, valid_input_, tree_input_, write_, valid_, keys_;
  std::string past_, total_;                              // int64 [1]: P and P + S, if uniform
  std::map<std::pair<int64_t, sym::Expr>, Slots> rings_;  // by window and extent of axis 0
};

}  // namespace kvlift::internal
