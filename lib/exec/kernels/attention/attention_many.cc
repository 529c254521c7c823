// Many queries: one unit of work is a key/value head and a block of queries with all heads of the
// group. Keys and values come in tiles, packed once per unit for all its rows; the softmax
// continues from tile to tile.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/kernels/attention/attention_grouped.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// Rows of a unit, which are queries times heads. Many rows share the packing of keys and values;
// few rows give small problems enough units.
constexpr int64_t kUnitRows = 432, kSmallUnitRows = 144, kEnoughUnits = 16;
constexpr int64_t kTileKeys = 512, kTileElements = 512 * 256;  // keys and values of a tile
constexpr int64_t W = VectorOps<float>::kPanel;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class Block {
 public:
  // Queries [s0, s1) of one key/value head; row (s - s0) * G + head of the group.
  Block(const GroupedHeads& heads, int64_t b, int64_t kv_head, int64_t s0, int64_t s1)
      : heads_(heads),
        vectors_(Vectors<float>()),
        ops_(AttentionIsa()),
        b_(b),
        kv_head_(kv_head),
        s0_(s0),
        G_(heads.G()),
        rows_((s1 - s0) * G_),
        query_ld_(heads.D + 16) {
    scores_ = scratch_.Get<float>(vectors_.max_rows * kLd);
    queries_ = scratch_.Get<float>(vectors_.max_rows * query_ld_);
    panels_ = scratch_.Get<float>(kTileKeys * RoundUp(heads.D, 16));
    values_ = scratch_.Get<float>(kTileKeys * RoundUp(heads.Dv, W));
    out_ = scratch_.Get<float>(rows_ * heads.Dv);
    highest_ = scratch_.Get<float>(rows_);
    sum_ = scratch_.Get<float>(rows_);
    ranges_ = scratch_.Get<KeyRange>(s1 - s0);
    for (int64_t s = s0; s < s1; ++s) ranges_[s - s0] = heads.mask->Visible(b, s);
  }

  void Run() {
    std::fill(out_, out_ + rows_ * heads_.Dv, 0.0f);
    std::fill(highest_, highest_ + rows_, kMasked);
    std::fill(sum_, sum_ + rows_, 0.0f);
    const KeyRange all = Visible(0, rows_);
    const int64_t fit = kTileElements / (heads_.D + heads_.Dv) / W * W;
    const int64_t step = std::clamp(fit, W, kTileKeys);
    for (int64_t t = all.begin / step * step; t < all.end; t += step) {
      Tile(std::max(t, all.begin), std::min(t + step, all.end));
    }
    ForRows([&](int64_t row) { Finish(row); });
  }

 private:
  // Rows start in different sets of the processor's cache.
  static constexpr int64_t kLd = kTileKeys + 16;

  // Visits rows in the order of memory.
  template <typename F>
  void ForRows(F f) {
    for (int64_t g = 0; g < G_; ++g) {
      for (int64_t row = g; row < rows_; row += G_) f(row);
    }
  }

  int64_t s(int64_t row) const { return s0_ + row / G_; }
  int64_t h(int64_t row) const { return kv_head_ * G_ + row % G_; }

  // Returns the range of keys that some of the rows see.
  KeyRange Visible(int64_t begin, int64_t end) const {
    KeyRange all = {std::numeric_limits<int64_t>::max(), 0};
    for (int64_t i = begin / G_; i <= (end - 1) / G_; ++i) {
      if (ranges_[i].begin >= ranges_[i].end) continue;
      all = {std::min(all.begin, ranges_[i].begin), std::max(all.end, ranges_[i].end)};
    }
    return all.begin < all.end ? all : KeyRange{0, 0};
  }

  // Packs keys [begin, end), transposed, in panels of W, and values in panels of W elements.
  void PackTile(int64_t begin, int64_t end) {
    ScratchScope scratch;
    RowBlock k = RowsOf(heads_.k, heads_.D, b_, kv_head_, begin, end, scratch);
    RowBlock v = RowsOf(heads_.v, heads_.Dv, b_, kv_head_, begin, end, scratch);
    if (k.scales != nullptr) k = Widened(k, scratch);
    if (v.scales != nullptr) v = Widened(v, scratch);
    ops_.pack_values(v, kTileKeys, values_);
    if (ops_.pack_keys == nullptr) k = Widened(k, scratch);
    for (int64_t t = 0; t < end - begin; t += W) {
      float* panel = panels_ + t * k.size;
      const int64_t n = std::min(W, end - begin - t);
      if (ops_.pack_keys == nullptr) {
        vectors_.pack_transposed(static_cast<int>(n), k.size,
                                 static_cast<const float*>(k.data) + t * k.stride, k.stride, panel);
      } else {
        ops_.pack_keys(RowsFrom(k, t, n), panel);
      }
    }
  }

  void Tile(int64_t begin, int64_t end) {
    PackTile(begin, end);
    for (int64_t i = 0; i < rows_; i += vectors_.max_rows) {
      const int64_t count = std::min<int64_t>(vectors_.max_rows, rows_ - i);
      KeyRange r = Visible(i, i + count);
      r = {std::max(r.begin, begin), std::min(r.end, end)};
      if (r.begin < r.end) Group(i, count, begin, r);
    }
  }

  // Computes rows [i, i + count) for keys `r` of the tile that starts at `begin`.
  void Group(int64_t i, int64_t count, int64_t begin, KeyRange r) {
    const auto m = static_cast<int>(count);
    const int64_t D = heads_.D, Dv = heads_.Dv, panel = RoundUp(D, 16);
    // The queries are loaded for every tile: few rows that stay in the first-level cache cost less
    // than all rows of the unit.
    for (int64_t k = 0; k < count; ++k) {
      LoadQuery(heads_, b_, h(i + k), s(i + k), D, queries_ + k * query_ld_);
    }
    for (int64_t t = (r.begin - begin) / W * W; t < r.end - begin; t += W) {
      vectors_.tile(m, static_cast<int>(W), D, queries_, query_ld_, 1, panels_ + t * panel, W,
                    scores_ + t, kLd, false);
    }
    for (int64_t k = 0; k < count; ++k) Softmax(i + k, scores_ + k * kLd - begin, r);
    const int64_t first = r.begin - begin, n = r.end - r.begin;
    for (int64_t d = 0; d < Dv; d += W) {
      vectors_.tile(m, static_cast<int>(std::min(W, Dv - d)), n, scores_ + first, kLd, 1,
                    values_ + d * kTileKeys + first * W, W, out_ + i * Dv + d, Dv, true);
    }
  }

  // Turns the scores of a row into weights relative to the highest score so far, and rescales the
  // previous sums to it. Keys of `r` that the row does not see get weight 0. x points to the score
  // of key 0; only the scores of `r` exist.
  void Softmax(int64_t row, float* x, KeyRange r) {
    KeyRange own = ranges_[row / G_];
    own = {std::clamp(own.begin, r.begin, r.end), std::clamp(own.end, r.begin, r.end)};
    if (own.begin >= own.end) own = {r.begin, r.begin};
    const int64_t n = own.end - own.begin;
    float* seen = x + own.begin;
    if (heads_.softcap != 0) ops_.soft_cap(seen, n, static_cast<float>(heads_.softcap));
    if (n > 0) heads_.mask->Apply(b_, h(row), s(row), own.begin, own.end, seen);
    const float top = HighestScore(seen, n), before = highest_[row];
    std::fill(x + r.begin, seen, 0.0f);
    std::fill(x + own.end, x + r.end, 0.0f);
    if (top == kMasked) {
      std::fill(seen, seen + n, 0.0f);
      return;
    }
    const float now = top > before || top != top ? top : before;
    const float sum = vectors_.exp_sum(seen, n, now, seen);
    if (now != before) {
      const float factor = before == kMasked ? 0 : std::exp(before - now);
      sum_[row] *= factor;
      if (before != kMasked) ops_.scale(out_ + row * heads_.Dv, heads_.Dv, factor);
      highest_[row] = now;
    }
    sum_[row] += sum;
  }

  void Finish(int64_t row) {
    float* y = out_ + row * heads_.Dv;
    if (ops_.odd(y, heads_.Dv)) {
      // This may be 0 times the arbitrary value of a slot that this row does not see.
      return RunOneRow(heads_, b_, h(row), s(row));
    }
    float sum = sum_[row];
    if (heads_.sink != nullptr) {
      const float sink = heads_.sink[h(row)], top = std::max(sink, highest_[row]);
      const float factor = highest_[row] == kMasked ? 0 : std::exp(highest_[row] - top);
      sum = sum * factor + std::exp(sink - top);
      ops_.scale(y, heads_.Dv, factor);
    }
    if (float* to = FloatResult(heads_, b_, h(row), s(row))) {
      return vectors_.divide(y, heads_.Dv, sum != 0 ? sum : 1, to);
    }
    if (sum != 0) vectors_.divide(y, heads_.Dv, sum, y);
    StoreResult(heads_, b_, h(row), s(row), y);
  }

  const GroupedHeads& heads_;
  const VectorOps<float>& vectors_;
  const AttentionKernels& ops_;
  const int64_t b_, kv_head_, s0_, G_, rows_, query_ld_;
  ScratchScope scratch_;
  float *scores_, *queries_, *panels_, *values_, *out_, *highest_, *sum_;
  KeyRange* ranges_;
};

}  // namespace

void RunManyQueries(const GroupedHeads& heads, int threads) {
  const int64_t groups = heads.B * heads.Nk, rows = heads.S * heads.G();
  const bool small = groups * ((rows + kUnitRows - 1) / kUnitRows) < kEnoughUnits;
  const int64_t most = std::max<int64_t>(1, (small ? kSmallUnitRows : kUnitRows) / heads.G());
  const int64_t wanted = (heads.S + most - 1) / most;
  const int64_t queries = (heads.S + wanted - 1) / wanted;  // of equal blocks
  const int64_t blocks = (heads.S + queries - 1) / queries;
  math::ParallelUnits(threads, groups * blocks, [&](int64_t unit) {
    const int64_t group = unit / blocks;
    const int64_t block = blocks - 1 - unit % blocks;  // the longest first if causal
    Block(heads, group / heads.Nk, group % heads.Nk, block * queries,
          std::min(heads.S, (block + 1) * queries))
        .Run();
  });
}

}  // namespace kvlift::exec
