// Attention in order fast: the query heads of a group share one pass over the rows of their key
// head. Few queries: keys in splits of kSplitKeys tokens, merged in rising order. Many: tiles of
// queries and keys. What no query may see is never read, so the cost follows the visible keys,
// never the capacity. Units of work are fixed by shapes, so that results depend neither on
// threads nor on the rest of the batch.
// Letters: B batch, N query heads, Nk key heads, G = N / Nk, S queries, D head size of queries and
// keys, Dv of values.
#pragma once

#include <cstdint>

#include "exec/kernels/attention.h"
#include "exec/kernels/attention_isa.h"
#include "exec/kernels/scratch.h"

namespace kvlift::exec {

// Which keys a query sees, and what is added to its scores.
class KeyMask {
 public:
  virtual ~KeyMask() = default;
  // Keys [begin, end) that query s of entry b may see at most; {0, 0} if none.
  virtual KeyRange Visible(int64_t b, int64_t s) const = 0;
  // Adds to x[0, end - begin), the scores of keys [begin, end); -inf where masked.
  virtual void Apply(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end, float* x) const;
};

struct GroupedHeads {
  struct Part {
    const void* data = nullptr;
    Storage storage = Storage::kNative;
    HeadLayout layout;
    const float* scales = nullptr;  // given: elements are int8, `group` of a row share a scale
    HeadLayout scale_layout = {};
    int64_t group = 0;
  };
  int64_t B = 0, N = 0, Nk = 0, S = 0, D = 0, Dv = 0;
  Part q, k, v;
  void* y = nullptr;
  Storage y_storage = Storage::kNative;
  HeadLayout y_layout;
  double scale = 1, softcap = 0;
  const float* sink = nullptr;  // by query head: exp(sink) is added to the sum of the softmax
  const KeyMask* mask = nullptr;

  int64_t G() const { return N / Nk; }
};

// The choice between the two by shape alone.
void RunGrouped(const GroupedHeads& heads, int threads);

constexpr int64_t kSplitKeys = 512;
constexpr int64_t kFewRows = 16;  // queries times heads of a group

void RunFewQueries(const GroupedHeads& heads, int threads);
void RunManyQueries(const GroupedHeads& heads, int threads);
// One query and head, whatever the values behind masks hold.
void RunOneRow(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s);

// Row (s, h) of q, widened, times the scale, padded with zeros up to `padded`.
void LoadQuery(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, int64_t padded,
               float* out);
// Result of row (s, h).
void StoreResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, const float* x);
// Where it goes if results are floats, else null.
float* FloatResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s);
// Rows [begin, end) of a key head; copied to scratch if the head size, or a group of it with a
// scale of its own, is no multiple of 16.
RowBlock RowsOf(const GroupedHeads::Part& part, int64_t size, int64_t b, int64_t kv_head,
                int64_t begin, int64_t end, ScratchScope& scratch);
// Rows [first, first + count) of a block; a block as float.
RowBlock RowsFrom(const RowBlock& block, int64_t first, int64_t count);
RowBlock Widened(const RowBlock& block, ScratchScope& scratch);
// The highest of x[n]: -inf if all are, NaN if that is all there is besides.
float HighestScore(const float* x, int64_t n);

}  // namespace kvlift::exec
