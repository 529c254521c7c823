// Few queries over many keys: one unit of work is a key/value head and a split of its keys.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "exec/kernels/attention/attention_grouped.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

int64_t Padded(int64_t size) { return (size + 15) / 16 * 16; }

// Queries [s0, s1) of heads [h0, h1), which share a key/value head; row (s - s0) * (h1 - h0) + h -
// h0.
struct Rows {
  int64_t b, kv_head, s0, s1, h0, h1;
  int64_t count() const { return (s1 - s0) * (h1 - h0); }
  int64_t s(int64_t row) const { return s0 + row / (h1 - h0); }
  int64_t h(int64_t row) const { return h0 + row % (h1 - h0); }
};

// The state of all rows after each split: the highest score and the sum of exp(score - highest) of
// a row (its head), and the values weighted by these exponentials.
class Partials {
 public:
  static int64_t Size(int64_t rows, int64_t splits, int64_t Dv) {
    return rows * splits * (kHead + Padded(Dv));
  }
  Partials(float* data, int64_t rows, int64_t Dv) : data_(data), rows_(rows), size_(Padded(Dv)) {}
  float* Head(int64_t split, int64_t row) const {
    return data_ + split * rows_ * (kHead + size_) + row * kHead;
  }
  // The weighted values of all rows, contiguous.
  float* Values(int64_t split) const { return Head(split, 0) + rows_ * kHead; }
  int64_t size() const { return size_; }

 private:
  static constexpr int64_t kHead = 16;
  float* data_;
  int64_t rows_, size_;
};

KeyRange Union(const GroupedHeads& heads, int64_t b, int64_t s0, int64_t s1) {
  KeyRange all = {std::numeric_limits<int64_t>::max(), 0};
  for (int64_t s = s0; s < s1; ++s) {
    const KeyRange r = heads.mask->Visible(b, s);
    if (r.begin >= r.end) continue;
    all = {std::min(all.begin, r.begin), std::max(all.end, r.end)};
  }
  return all.begin < all.end ? all : KeyRange{0, 0};
}

// Sums the values of `block` weighted by p. Tokens of weight 0, whose values are arbitrary, are
// skipped.
void SumSkippingZeros(const RowBlock& block, const float* p, float* out) {
  std::fill(out, out + block.size, 0.0f);
  for (int64_t t = 0; t < block.rows; ++t) {
    if (p[t] != 0) AttentionIsa().values(RowsFrom(block, t, 1), p + t, 1, 1, out);
  }
}

// Replaces scores x[n] by exp(score - highest).
void Exponentials(float* x, int64_t n, float* head) {
  const VectorOps<float>& vectors = Vectors<float>();
  head[0] = HighestScore(x, n);
  head[1] = 0;
  if (head[0] == kMasked) {
    std::fill(x, x + n, 0.0f);
  } else {
    head[1] = vectors.exp_sum(x, n, head[0], x);
  }
}

// Attends to keys [begin, end) for all rows. `more`: the keys behind them probably come next.
void AttendSplit(const GroupedHeads& heads, const Rows& rows, int64_t begin, int64_t end, bool more,
                 const Partials& partials, int64_t split) {
  const AttentionKernels& ops = AttentionIsa();
  const int64_t count = rows.count(), size = Padded(heads.D), ld = kSplitKeys + 16;
  ScratchScope scratch;
  float* queries = scratch.Get<float>(count * size);
  float* scores = scratch.Get<float>(count * ld);
  for (int64_t row = 0; row < count; ++row) {
    LoadQuery(heads, rows.b, rows.h(row), rows.s(row), size, queries + row * size);
  }
  RowBlock keys = RowsOf(heads.k, heads.D, rows.b, rows.kv_head, begin, end, scratch);
  RowBlock values = RowsOf(heads.v, heads.Dv, rows.b, rows.kv_head, begin, end, scratch);
  if (values.rows >= kRowsAhead) keys.next = values.data;
  keys.next_scales = values.scales;
  if (more) {
    const RowBlock behind = RowsFrom(keys, keys.rows, kRowsAhead);
    values.next = behind.data;
    values.next_scales = behind.scales;
  }
  ops.scores(keys, queries, count, scores, ld);
  for (int64_t row = 0; row < count; ++row) {
    float* x = scores + row * ld - begin;
    KeyRange r = heads.mask->Visible(rows.b, rows.s(row));
    r = {std::clamp(r.begin, begin, end), std::clamp(r.end, begin, end)};
    std::fill(x + begin, x + r.begin, 0.0f);
    if (heads.softcap != 0) {
      ops.soft_cap(x + r.begin, r.end - r.begin, static_cast<float>(heads.softcap));
    }
    if (r.begin < r.end) {
      heads.mask->Apply(rows.b, rows.h(row), rows.s(row), r.begin, r.end, x + r.begin);
    }
    Exponentials(x + r.begin, r.end - r.begin, partials.Head(split, row));
    std::fill(x + std::max(r.begin, r.end), x + end, 0.0f);
  }
  float* out = partials.Values(split);
  std::fill(out, out + count * partials.size(), 0.0f);
  ops.values(values, scores, ld, count, out);
  for (int64_t row = 0; row < count; ++row) {
    float* y = out + row * partials.size();
    if (ops.odd(y, heads.Dv)) SumSkippingZeros(values, scores + row * ld, y);
  }
}

// Merges splits [0, splits) into the results of all rows, in rising order.
void Merge(const GroupedHeads& heads, const Rows& rows, const Partials& partials, int64_t splits) {
  const AttentionKernels& ops = AttentionIsa();
  ScratchScope scratch;
  float* out = scratch.Get<float>(partials.size());
  for (int64_t row = 0; row < rows.count(); ++row) {
    const int64_t h = rows.h(row);
    float highest = heads.sink == nullptr ? kMasked : heads.sink[h];
    for (int64_t split = 0; split < splits; ++split) {
      const float x = partials.Head(split, row)[0];
      if (x > highest || x != x) highest = x;
    }
    std::fill(out, out + heads.Dv, 0.0f);
    float sum = heads.sink == nullptr || highest == kMasked ? 0 : std::exp(heads.sink[h] - highest);
    for (int64_t split = 0; split < splits; ++split) {
      const float* head = partials.Head(split, row);
      if (head[0] == kMasked) continue;
      const float weight = std::exp(head[0] - highest);
      sum = std::fma(weight, head[1], sum);
      ops.add_scaled(partials.Values(split) + row * partials.size(), heads.Dv, weight, out);
    }
    if (sum != 0) Vectors<float>().divide(out, heads.Dv, sum, out);
    StoreResult(heads, rows.b, h, rows.s(row), out);
  }
}

}  // namespace

void RunFewQueries(const GroupedHeads& heads, int threads) {
  // Splits [first, first + splits) of every batch entry cover the keys that its queries see.
  int64_t splits = 1, visible = 0;
  for (int64_t b = 0; b < heads.B; ++b) {
    const KeyRange all = Union(heads, b, 0, heads.S);
    visible += all.end - all.begin;
    splits = std::max(splits, (all.end + kSplitKeys - 1) / kSplitKeys - all.begin / kSplitKeys);
  }
  const int64_t groups = heads.B * heads.Nk, count = heads.S * heads.G();
  const int64_t stride = Partials::Size(count, splits, heads.Dv);
  ScratchScope scratch;
  float* data = scratch.Get<float>(groups * stride);
  auto* left = scratch.Get<std::atomic<int64_t>>(groups);  // splits of a group that are not done
  for (int64_t i = 0; i < groups; ++i) new (left + i) std::atomic<int64_t>(splits);
  const bool small = heads.Nk * count * visible * (heads.D + heads.Dv) < (1 << 17);
  math::ParallelUnits(small ? 1 : threads, groups * splits, [&](int64_t unit) {
    const int64_t group = unit / splits, split = unit % splits;
    const int64_t b = group / heads.Nk, kv_head = group % heads.Nk;
    const Rows rows = {b, kv_head, 0, heads.S, kv_head * heads.G(), (kv_head + 1) * heads.G()};
    const Partials partials(data + group * stride, count, heads.Dv);
    const KeyRange all = Union(heads, b, 0, heads.S);
    const int64_t at = all.begin / kSplitKeys + split;
    const int64_t begin = std::max(all.begin, at * kSplitKeys);
    const int64_t end = std::min(all.end, (at + 1) * kSplitKeys);
    if (begin < end) {
      AttendSplit(heads, rows, begin, end, end + kRowsAhead <= all.end, partials, split);
    } else {
      for (int64_t row = 0; row < count; ++row) partials.Head(split, row)[0] = kMasked;
    }
    if (left[group].fetch_sub(1, std::memory_order_acq_rel) == 1) {
      Merge(heads, rows, partials, splits);
    }
  });
}

void RunOneRow(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s) {
  const Rows rows = {b, h / heads.G(), s, s + 1, h, h + 1};
  const KeyRange all = Union(heads, b, s, s + 1);
  const int64_t first = all.begin / kSplitKeys;
  const int64_t splits = (all.end + kSplitKeys - 1) / kSplitKeys - first;
  ScratchScope scratch;
  const Partials partials(scratch.Get<float>(Partials::Size(1, splits, heads.Dv)), 1, heads.Dv);
  for (int64_t i = 0; i < splits; ++i) {
    AttendSplit(heads, rows, std::max(all.begin, (first + i) * kSplitKeys),
                std::min(all.end, (first + i + 1) * kSplitKeys), false, partials, i);
  }
  Merge(heads, rows, partials, splits);
}

}  // namespace kvlift::exec
