// Adds the nodes that say where new rows are written and how many rows are valid: TensorScatter's
// write_indices, Attention's nonpad_kv_seqlen, and views of the valid rows of a buffer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "rewrite/emit/emit_state.h"

namespace kvlift::internal {

// The write index and the lengths of one cache in a step, as names of int64 values.
struct Slots {
  std::string write;     // [extent of the cache's axis 0]: slot of the first new row
  std::string valid;     // [B]: number of rows that attention may read, nonpad_kv_seqlen
  std::string keys;      // [1]: number of rows that attention is given
  bool counted = false;  // `keys` is the largest element of `valid`
};

class Control {
 public:
  explicit Control(EmitState& state) : s_(state) {}

  // Adds the nodes that growing and shifting caches share.
  absl::Status Emit();

  // Returns write index and lengths of the cache with this index into ConversionPlan::caches.
  absl::StatusOr<Slots> SlotsOf(int cache);
  // Returns SlotsOf for an attention that reads these rows of the cache.
  absl::StatusOr<Slots> SlotsOf(int cache, const KeysRead& read);

  // Returns the name of a Slice of `of`, a past or present: its rows [from, to), in the layout of
  // the result. counted: `from` is 0, and `to` is the largest number of valid rows of a sequence.
  std::string Rows(const PlannedCache& cache, ValueId of, const std::string& from,
                   const std::string& to, bool counted);

  // These return the names of views of a growing cache, in the layout of the result: the rows that
  // are the source's past, its present, and what its attention reads. They need
  // ConversionPlan::views().
  std::string PastView(const PlannedCache& cache);
  std::string PresentView(const PlannedCache& cache);
  std::string ViewForAttention(const PlannedCache& cache);

 private:
  absl::Status EmitDerived(const DerivedIndex& index, const std::string& length);
  void EmitInput(const IndexInputs& inputs, const std::string& length);
  std::string Capacity();
  absl::StatusOr<std::string> WriteIndices(const WriteIndex& index);
  absl::StatusOr<Slots> GrowingSlots(const PlannedCache& cache, const WriteIndex& index);
  absl::StatusOr<Slots> BufferSlots(const SourceIndex& index);
  absl::StatusOr<Slots> RingSlots(const PlannedCache& cache, const WindowRing& ring,
                                  const WriteIndex& index);
  // Returns max(length - window, 0), int64 [1]; 0 without a window.
  std::string Dropped(const std::string& length, std::optional<int64_t> window);
  // Returns true if the number of rows to read of a growing cache is the largest count of rows.
  bool Counts(const PlannedCache& cache) const;

  EmitState& s_;
  std::string write_, valid_, keys_;
  std::string past_, total_;                              // int64 [1]: P and P + S, if uniform
  std::map<std::pair<int64_t, sym::Expr>, Slots> rings_;  // by window and extent of axis 0
};

}  // namespace kvlift::internal
