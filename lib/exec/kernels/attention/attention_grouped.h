// Attention in the fast order: the query heads of a group share one pass over the rows of their
// key/value head. With few queries, keys are split into pieces of kSplitKeys tokens whose results
// are merged in rising order; with many, there are tiles of queries and keys. Keys that no query
// may see are never read, so the cost follows the visible keys, not the capacity. Units of work are
// fixed by shapes, so results depend neither on threads nor on the rest of the batch. Letters: B
// batch, N query heads, Nk key/value heads, G = N / Nk, S queries, D head size of queries and keys,
// Dv of values.
#pragma once

#include <cstdint>

#include "exec/kernels/attention/attention.h"
#include "exec/kernels/attention/attention_isa.h"
#include "exec/memory/scratch.h"

namespace kvlift::exec {

// The keys that a query sees, and the mask that is added to its scores.
class KeyMask {
 public:
  virtual ~KeyMask() = default;
  // Returns a range that contains all keys that query s of batch entry b may see; {0, 0} if there
  // are none.
  virtual KeyRange Visible(int64_t b, int64_t s) const = 0;
  // Adds the mask to x[0, end - begin), the scores of keys [begin, end); masked keys get -inf.
  virtual void Apply(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end, float* x) const;
};

// The operands of one call.
struct GroupedHeads {
  struct Part {
    const void* data = nullptr;
    Storage storage = Storage::kNative;
    HeadLayout layout;
    // Null: elements are of `storage`. Otherwise they are int8, and `group` elements of a row share
    // a scale.
    const float* scales = nullptr;
    HeadLayout scale_layout = {};
    int64_t group = 0;
  };
  int64_t B = 0, N = 0, Nk = 0, S = 0, D = 0, Dv = 0;
  Part q, k, v;
  // The result: rows of Dv elements.
  void* y = nullptr;
  Storage y_storage = Storage::kNative;
  HeadLayout y_layout;
  double scale = 1, softcap = 0;
  // The score of the sink, by query head: exp(sink) is added to the sum of the softmax. Null: no
  // sink.
  const float* sink = nullptr;
  // Must not be null.
  const KeyMask* mask = nullptr;

  int64_t G() const { return N / Nk; }
};

// Runs RunFewQueries or RunManyQueries; the choice depends on shapes alone.
void RunGrouped(const GroupedHeads& heads, int threads);

constexpr int64_t kSplitKeys = 512;
// RunGrouped uses RunFewQueries up to this number of S * G (and for S = 1).
constexpr int64_t kFewRows = 16;

void RunFewQueries(const GroupedHeads& heads, int threads);
void RunManyQueries(const GroupedHeads& heads, int threads);
// Computes the row of one query and head. Unlike RunFewQueries and RunManyQueries it is exact also
// where values of masked keys are infinite or NaN.
void RunOneRow(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s);

// Writes row (s, h) of q as floats, times the scale, padded with zeros up to `padded` elements.
void LoadQuery(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, int64_t padded,
               float* out);
// Stores the result of row (s, h), Dv elements.
void StoreResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, const float* x);
// Returns the place of that result if it is stored as float, else null.
float* FloatResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s);
// Returns rows [begin, end) of one key/value head. They are copied to `scratch` if the head size,
// or the size of a group with a scale of its own, is not a multiple of 16.
RowBlock RowsOf(const GroupedHeads::Part& part, int64_t size, int64_t b, int64_t kv_head,
                int64_t begin, int64_t end, ScratchScope& scratch);
// RowsFrom returns rows [first, first + count) of a block; Widened returns the block as floats.
RowBlock RowsFrom(const RowBlock& block, int64_t first, int64_t count);
RowBlock Widened(const RowBlock& block, ScratchScope& scratch);
// Returns the highest of x[0, n): -inf if all are -inf, NaN if the others are all NaN.
float HighestScore(const float* x, int64_t n);

}  // namespace kvlift::exec
