// Where new rows go and how many rows are valid: write_indices, nonpad_kv_seqlen, and views of what
// is valid in a buffer.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rewrite/plan_state.h"

namespace kvlift::internal {

// One cache's numbers, as names of int64 values.
struct Slots {
  std::string write;   // [axis 0 of the cache]: of the first new row
  std::string valid;   // [B]: rows that attention may read, nonpad_kv_seqlen
  std::string keys;    // [1]: rows that it is given
  bool whole = false;  // all of them
  // The same in the forms of the mask: slot of the first new row among the rows given.
  sym::Expr start = nullptr;
};

class Control {
 public:
  explicit Control(PlanState& state) : s_(state) {}

  // Lengths, batch and the inputs that are as wide as the keys.
  void Survey();
  // The controls of growing caches. A refusal is left in the plan.
  absl::Status Emit();
  // What the input that gives the write index is called; empty if it is derived.
  const std::string& input() const { return input_; }
  // The same of the input that gives the number of valid rows, where the target has one.
  const std::string& valid_input() const { return valid_input_; }

  // The same of the input with the new tokens that each new token sees, where it is asked for.
  const std::string& tree_input() const { return tree_input_; }

  absl::StatusOr<Slots> SlotsOf(const CacheUpdate& update);
  // The same with the whole buffer given and valid; not of a growing cache.
  absl::StatusOr<Slots> WholeBuffer(const CacheUpdate& update);

  // Rows of a growing cache as the source has them, in the layout of the result's: its past, its
  // present and what attention reads.
  std::string PastView(const CacheUpdate& update);
  std::string PresentView(const CacheUpdate& update);
  std::string AttendedView(const CacheUpdate& update);

 private:
  void CollectWide(sym::Expr keep);
  void FindBatch();
  void RefuseOtherWideInputs();
  absl::Status EmitDerived(const std::string& length);
  absl::Status EmitInput(const std::string& length);
  std::optional<std::pair<ValueId, int>> LengthSource();
  std::string Capacity();
  absl::StatusOr<std::string> WriteIndices(const CacheUpdate& update);
  absl::StatusOr<Slots> RingSlots(const CacheUpdate& update);
  std::string FreeName(std::string name) const;
  // max(length - window, 0), [1]; 0 without a window.
  std::string Dropped(const std::string& length, int64_t window);
  // Rows of a past or present up to `to`, but for those that left the window at length `before`.
  std::string Rows(const CacheUpdate& update, ValueId of, const std::string& before,
                   const std::string& to);

  PlanState& s_;
  std::string input_, valid_input_, tree_input_, write_, valid_, keys_;
  std::string past_, total_;                              // [1]: P and P + S, when uniform
  std::map<std::pair<int64_t, sym::Expr>, Slots> rings_;  // by window and extent of axis 0
};

}  // namespace kvlift::internal
