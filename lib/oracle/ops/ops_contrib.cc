// RotaryEmbedding, and operators of com.microsoft.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/core/op.h"
#include "oracle/core/sums.h"
#include "oracle/ops/norm.h"
#include "oracle/ops/ops_key_value.h"
#include "oracle/ops/product.h"
#include "oracle/ops/stored_cache.h"

namespace kvlift::oracle {
namespace {

// X, which is [B, N, S, D] or (flat) [B, S, N * D].
struct Heads {
  int64_t batch = 0, heads = 0, tokens = 0, width = 0;
  bool flat = false;

  int64_t At(int64_t b, int64_t n, int64_t s, int64_t d) const {
    return flat ? ((b * tokens + s) * heads + n) * width + d
                : ((b * heads + n) * tokens + s) * width + d;
  }
};

bool HeadsOf(const Value& x, int64_t heads, int64_t width, Heads* h) {
  if (x.rank() == 4) {
    *h = {x.dims()[0], x.dims()[1], x.dims()[2], x.dims()[3], false};
    return true;
  }
  if (x.rank() != 3) return false;
  if (heads == 0 && width > 0) heads = x.dims()[2] / width;
  if (heads <= 0 || x.dims()[2] % heads != 0) return false;
  *h = {x.dims()[0], heads, x.dims()[1], x.dims()[2] / heads, true};
  return true;
}

// Rotates pairs of elements by the angles whose cosine and sine are in row angle(b, s, k) for pair
// k.
template <typename F>
absl::Status Rotate(const OpContext& c, const Value& x, const Heads& h, const Value& cosines,
                    const Value& sines, int64_t rotated, bool interleaved, F angle, Value* y) {
  if (rotated == 0) rotated = h.width;
  const int64_t half = rotated / 2;
  if (half == 0 || cosines.dims().back() != half || sines.dims() != cosines.dims()) {
    return Wrong(c, "cache");
  }
  const int64_t rows = cosines.size() / half;
  Reals out = x.reals();
  if (out.exact()) out.MakeInexact();
  for (int64_t b = 0; b < h.batch; ++b) {
    for (int64_t s = 0; s < h.tokens; ++s) {
      for (int64_t n = 0; n < h.heads; ++n) {
        for (int64_t k = 0; k < half; ++k) {
          const int64_t row = angle(b, s, k);
          if (row < 0 || row >= rows) return Wrong(c, "a position out of range");
          const int64_t i = h.At(b, n, s, interleaved ? 2 * k : k);
          const int64_t j = h.At(b, n, s, interleaved ? 2 * k + 1 : k + half);
          const Number p = x.reals().At(i), q = x.reals().At(j);
          const Number cosine = cosines.reals().At(row * half + k);
          const Number sine = sines.reals().At(row * half + k);
          const int32_t t =
              onnx::TensorProto::DOUBLE == x.type() ? x.type() : int32_t{onnx::TensorProto::FLOAT};
          const auto times = [t](const Number& u, const Number& v) {
            return Rounded(Times(u, v), t);
          };
          out.Set(i,
                  Rounded(Approximated(Minus(times(cosine, p), times(sine, q)), t, 1), x.type()));
          out.Set(j, Rounded(Approximated(Plus(times(sine, p), times(cosine, q)), t, 1), x.type()));
        }
      }
    }
  }
  *y = Value::FromReals(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

absl::Status RotaryEmbedding(OpContext& c) {
  Heads h;
  if (!HeadsOf(c.in[0], c.Int("num_heads", 0), 0, &h)) return Wrong(c, "shape");
  const bool by_position = c.has(3);
  return Rotate(
      c, c.in[0], h, c.in[1], c.in[2], c.Int("rotary_embedding_dim", 0),
      c.Int("interleaved", 0) != 0,
      [&](int64_t b, int64_t s, int64_t) {
        const int64_t at = b * h.tokens + s;
        return by_position ? c.in[3].integers()[at] : at;
      },
      &(*c.out)[0]);
}

// The com.microsoft operator: its operands have another order, and positions may be those of the
// first token only.
absl::Status OldRotaryEmbedding(OpContext& c) {
  Heads h;
  const int64_t rotated = c.Int("rotary_embedding_dim", 0);
  const int64_t width = rotated > 0 ? 0 : 2 * c.in[2].dims().back();
  if (!HeadsOf(c.in[0], c.Int("num_heads", 0), width, &h)) return Wrong(c, "shape");
  if (c.Int("is_packed_batching", 0) != 0 || c.Float("scale", 1) != 1) {
    return NoMeaning(c, "packed batches or a scale");
  }
  const Value& positions = c.in[1];
  const bool first_only = positions.size() == 1;
  return Rotate(
      c, c.in[0], h, c.in[2], c.in[3], rotated, c.Int("interleaved", 0) != 0,
      [&](int64_t b, int64_t s, int64_t) {
        return first_only ? positions.integers()[0] + s : positions.integers()[b * h.tokens + s];
      },
      &(*c.out)[0]);
}

// Each token has three positions, [3, B, S], and each pair of elements is rotated by one of them:
// the first pairs by the first one and so on, or in turn as long as the sections of the second and
// the third one last.
absl::Status MultimodalRotaryEmbedding(OpContext& c) {
  Heads h;
  const int64_t rotated = c.Int("rotary_embedding_dim", 0);
  const int64_t half = c.in[2].dims().back();
  if (!HeadsOf(c.in[0], c.Int("num_heads", 0), rotated > 0 ? 0 : 2 * half, &h)) {
    return Wrong(c, "shape");
  }
  const std::vector<int64_t> sections = c.Ints("mrope_section");
  const int64_t layout = c.Int("mrope_layout", 0);
  if (c.Int("is_packed_batching", 0) != 0 || c.Float("scale", 1) != 1) {
    return NoMeaning(c, "packed batches or a scale");
  }
  if (sections.size() != 3 || sections[0] + sections[1] + sections[2] != half ||
      (layout != 0 && layout != 1) || c.in[1].dims() != Dims({3, h.batch, h.tokens})) {
    return Wrong(c, "sections or positions");
  }
  const auto position_of = [&](int64_t pair) -> int64_t {
    if (layout == 1) {
      const int64_t turn = pair % 3;
      return turn != 0 && pair < 3 * sections[static_cast<size_t>(turn)] ? turn : 0;
    }
    if (pair < sections[0]) return 0;
    return pair < sections[0] + sections[1] ? 1 : 2;
  };
  return Rotate(
      c, c.in[0], h, c.in[2], c.in[3], rotated, c.Int("interleaved", 0) != 0,
      [&](int64_t b, int64_t s, int64_t pair) {
        return c.in[1].integers()[(position_of(pair) * h.batch + b) * h.tokens + s];
      },
      &(*c.out)[0]);
}

absl::Status FusedMatMul(OpContext& c) {
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) {
    return NoMeaning(c, "a transposed batch");
  }
  const Value &x = c.in[0], &y = c.in[1];
  if (x.rank() < 2 || y.rank() < 2) return NoMeaning(c, "vectors");
  const Value a = c.Int("transA", 0) != 0 ? Transposed(x) : x;
  const Value b = c.Int("transB", 0) != 0 ? Transposed(y) : y;
  return MatrixProduct(c, a, b, static_cast<double>(c.Float("alpha", 1)), &(*c.out)[0]);
}

// Returns heads [first, first + heads) of rows of tokens, as [B, S, heads * D].
Value HeadsFrom(const Value& x, int64_t first, int64_t heads, int64_t width) {
  const int64_t rows = x.dims()[0] * x.dims()[1], all = x.dims()[2];
  std::vector<int64_t> from;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < heads * width; ++k) from.push_back(r * all + first * width + k);
  }
  return Take(x, {x.dims()[0], x.dims()[1], heads * width}, from);
}

// The operands of the attention of one head of one sequence.
struct Seen {
  const Value &query, &keys, &values;
  Heads q, k, v;
  double scale = 1, cap = 0;
  int32_t type = 0;  // the type of the computation
  // One more score for each query head, which meets no value; empty: no head has a sink.
  std::vector<Number> sinks = {};
};

// Attends with one query to the keys [begin, end).
void Attend(const Seen& a, int64_t b, int64_t n, int64_t s, int64_t begin, int64_t end,
            std::vector<Number>* out) {
  const int64_t m = n / (a.q.heads / a.k.heads);
  std::vector<Number> row;
  for (int64_t t = begin; t < end; ++t) {
    Sum sum;
    for (int64_t d = 0; d < a.q.width; ++d) {
      sum.Add(Times(a.query.reals().At(a.q.At(b, n, s, d)), a.keys.reals().At(a.k.At(b, m, t, d))));
    }
    Number score = Approximated(Times(sum.Carried(a.type, 1), {a.scale, 0, 0}), a.type, 1);
    if (a.cap > 0) {
      const Number part = Approximated(Over(score, {a.cap, 0, 0}), a.type, 1);
      const double y = std::tanh(part.value);
      score = Approximated(Times(Approximated(Lipschitz(part, y, 1), a.type, 4), {a.cap, 0, 0}),
                           a.type, 1);
    }
    row.push_back(score);
  }
  if (!a.sinks.empty()) row.push_back(a.sinks[n]);
  SoftmaxRow(row, a.type);
  out->clear();
  for (int64_t d = 0; d < a.v.width; ++d) {
    Sum sum;
    for (int64_t t = begin; t < end; ++t) {
      sum.Add(Times(row[t - begin], a.values.reals().At(a.v.At(b, m, t, d))));
    }
    out->push_back(sum.Carried(a.type, 2));
  }
}

// Returns a cache of `slots` rows: the past with the new rows of each sequence behind its old ones.
Value Appended(const Value& past, const Value& news, const Heads& h,
               const std::vector<int64_t>& lengths, int64_t slots) {
  const int64_t rows = past.absent() ? 0 : past.dims()[2];
  const Value zero = ZeroOf(news.type());
  std::vector<Pick> picks;
  for (int64_t b = 0; b < h.batch; ++b) {
    for (int64_t n = 0; n < h.heads; ++n) {
      for (int64_t t = 0; t < slots; ++t) {
        const int64_t s = t - lengths[b];
        for (int64_t d = 0; d < h.width; ++d) {
          const bool fresh = s >= 0 && s < h.tokens;
          picks.push_back(fresh      ? Pick{1, h.At(b, n, s, d)}
                          : t < rows ? Pick{2, ((b * h.heads + n) * rows + t) * h.width + d}
                                     : Pick{0, 0});
        }
      }
    }
  }
  return Collect({&zero, &news, past.absent() ? &zero : &past}, {h.batch, h.heads, slots, h.width},
                 picks);
}

// The buffers of GroupQueryAttention with sliding_window_cache. Source: its text in ONNX Runtime
// 1.31, "Windowed KV Cache".
struct Sliding {
  int64_t window = 0, capacity = 0;  // a capacity of 0: the past keeps all rows

  // Returns how many of the newest tokens a buffer holds. A full one makes room by dropping
  // capacity - window + 1 tokens, as often as it takes.
  int64_t Held(int64_t tokens) const {
    while (capacity > 0 && tokens > capacity) tokens -= capacity - window + 1;
    return tokens;
  }
};

// Returns the buffers after a step: the last rows of each sequence's `rows`, 0 behind them.
Value Newest(const Value& rows, const std::vector<int64_t>& ends, const std::vector<int64_t>& held,
             int64_t capacity) {
  const Value zero = ZeroOf(rows.type());
  const Dims& dims = rows.dims();
  std::vector<Pick> picks;
  for (int64_t b = 0; b < dims[0]; ++b) {
    for (int64_t n = 0; n < dims[1]; ++n) {
      for (int64_t t = 0; t < capacity; ++t) {
        const int64_t row = (b * dims[1] + n) * dims[2] + ends[b] - held[b] + t;
        for (int64_t d = 0; d < dims[3]; ++d) {
          picks.push_back(t < held[b] ? Pick{1, row * dims[3] + d} : Pick{0, 0});
        }
      }
    }
  }
  return Collect({&zero, &rows}, {dims[0], dims[1], capacity, dims[3]}, picks);
}

// Returns each head divided by its root mean square, times `weight`.
Value NormOfHeads(const OpContext& c, const Value& x, const Heads& h, const Value& weight) {
  const auto epsilon = static_cast<double>(c.Float("qk_norm_epsilon", 1e-6F));
  Reals out(x.size());
  std::vector<Number> row(static_cast<size_t>(h.width));
  for (int64_t k = 0; k < h.batch * h.tokens * h.heads; ++k) {
    const int64_t s = k / h.heads % h.tokens, b = k / h.heads / h.tokens;
    for (int64_t d = 0; d < h.width; ++d) row[d] = x.reals().At(h.At(b, k % h.heads, s, d));
    NormalizeRow(row, epsilon, false, onnx::TensorProto::FLOAT);
    for (int64_t d = 0; d < h.width; ++d) {
      // The normalised value may be rounded before it is scaled.
      const Number y = Times(Approximated(row[d], x.type(), 1), weight.reals().At(d));
      out.Set(h.At(b, k % h.heads, s, d), Approximated(y, x.type(), 1));
    }
  }
  return Value::FromReals(x.type(), x.dims(), std::move(out));
}

absl::Status GroupQueryAttention(OpContext& c) {
  constexpr size_t kPositions = 9, kBias = 10, kSink = 11, kQueryNorm = 14, kKeyNorm = 15;
  if (c.has(kBias) || c.in.size() > kKeyNorm + 1) return NoMeaning(c, "a bias");
  if (c.out->size() > 3 || c.in[0].rank() != 3) return NoMeaning(c, "this form");
  const int64_t heads = c.Int("num_heads", 0), groups = c.Int("kv_num_heads", 0);
  if (heads <= 0 || groups <= 0 || heads % groups != 0) return Wrong(c, "heads");
  if (!c.has(5) || !c.has(6) || c.in[6].size() != 1 || c.has(1) != c.has(2)) {
    return Wrong(c, "lengths or operands");
  }
  const bool packed = !c.has(1);
  const int64_t width = c.in[0].dims()[2] / (packed ? heads + 2 * groups : heads);
  Value query = packed ? HeadsFrom(c.in[0], 0, heads, width) : c.in[0];
  Value key = packed ? HeadsFrom(c.in[0], heads, groups, width) : c.in[1];
  Value value = packed ? HeadsFrom(c.in[0], heads + groups, groups, width) : c.in[2];
  if (key.rank() != 3 || value.rank() != 3) return NoMeaning(c, "keys of rank 4");
  Heads q, k, v;
  if (!HeadsOf(query, heads, 0, &q) || !HeadsOf(key, groups, 0, &k) ||
      !HeadsOf(value, groups, 0, &v)) {
    return Wrong(c, "shape");
  }
  const bool fit = k.batch == q.batch && v.batch == q.batch && k.tokens == q.tokens &&
                   v.tokens == q.tokens && k.width == q.width;
  if (!fit || c.in[5].size() != q.batch || c.has(3) != c.has(4)) return Wrong(c, "extents");
  for (const size_t past : {3, 4}) {
    if (!c.has(past)) continue;
    const Dims& dims = c.in[past].dims();
    if (dims.size() != 4 || dims[0] != q.batch || dims[1] != groups ||
        dims[2] != c.in[3].dims()[2]) {
      return Wrong(c, "extents of a past");
    }
  }
  if (c.has(kQueryNorm) != c.has(kKeyNorm)) return Wrong(c, "norms");
  for (const size_t norm : {kQueryNorm, kKeyNorm}) {
    if (!c.has(norm)) continue;
    if (c.in[norm].size() != q.width) return Wrong(c, "norms");
    Value& x = norm == kQueryNorm ? query : key;
    x = NormOfHeads(c, x, norm == kQueryNorm ? q : k, c.in[norm]);
  }
  const int64_t total = c.in[6].integers()[0];
  Sliding sliding;
  if (c.Int("sliding_window_cache", 0) == 1) {
    sliding = {c.Int("local_window_size", -1), c.has(3) ? c.in[3].dims()[2] : 0};
    if (sliding.window < 1 || sliding.capacity < sliding.window) return Wrong(c, "a window");
  }
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < q.batch; ++b) {
    const int64_t valid = c.in[5].integers()[b] + 1;
    lengths.push_back(total == q.tokens ? 0 : valid - q.tokens);
    const bool whole = valid == total || total == q.tokens;
    const int64_t rows = c.has(3) ? c.in[3].dims()[2] : 0;
    const bool fits = whole || rows >= total || sliding.capacity > 0;
    if (lengths.back() < 0 || !fits) return NoMeaning(c, "these lengths");
  }
  if (c.Int("do_rotary", 0) != 0) {
    if (!c.has(7) || !c.has(8) || c.in[7].rank() != 2) return Wrong(c, "cosines and sines");
    const bool interleaved = c.Int("rotary_interleaved", 0) != 0;
    if (c.has(kPositions) && c.in[kPositions].size() != q.batch * q.tokens) {
      return Wrong(c, "positions");
    }
    // In a prompt only the first of the positions counts.
    const auto at = [&](int64_t b, int64_t s, int64_t) {
      if (!c.has(kPositions)) return lengths[b] + s;
      const auto& positions = c.in[kPositions].integers();
      return total == q.tokens ? positions[0] + s : positions[b * q.tokens + s];
    };
    const int64_t rotated = 2 * c.in[7].dims().back();
    const int64_t named = c.Int("rotary_embedding_dim", 0);
    if (named != 0 && named != rotated) return NoMeaning(c, "tables of another width");
    KV_RETURN_IF_ERROR(Rotate(c, query, q, c.in[7], c.in[8], rotated, interleaved, at, &query));
    KV_RETURN_IF_ERROR(Rotate(c, key, k, c.in[7], c.in[8], rotated, interleaved, at, &key));
  }
  int64_t slots = std::max(total, c.has(3) ? c.in[3].dims()[2] : 0);
  std::vector<int64_t> first = lengths, ends, kept;  // rows in the staged keys and values
  if (sliding.capacity > 0) {
    slots = sliding.capacity + q.tokens;
    for (int64_t& rows : first) {
      const int64_t tokens = rows + q.tokens;
      rows = sliding.Held(rows);
      ends.push_back(rows + q.tokens);
      kept.push_back(sliding.Held(tokens));
    }
  }
  StoredCache of_keys, of_values;
  KV_RETURN_IF_ERROR(ReadStoredCache(c, 0, groups, k.width, &of_keys));
  KV_RETURN_IF_ERROR(ReadStoredCache(c, 1, groups, v.width, &of_values));
  const auto store = [](const StoredCache& cache, Value* rows, Heads* rows_heads) {
    if (!cache.quantized()) return;
    *rows = StoredRows(cache, *rows);
    rows_heads->width = cache.stored_width();
  };
  store(of_keys, &key, &k);
  store(of_values, &value, &v);
  if ((c.has(3) && c.in[3].dims()[3] != k.width) || (c.has(4) && c.in[4].dims()[3] != v.width)) {
    return Wrong(c, "width of a past");
  }
  const Value keys = Appended(c.has(3) ? c.in[3] : Value(), key, k, first, slots);
  const Value values = Appended(c.has(4) ? c.in[4] : Value(), value, v, first, slots);
  const Value read_keys = of_keys.quantized() ? ReadRows(of_keys, keys) : keys;
  const Value read_values = of_values.quantized() ? ReadRows(of_values, values) : values;
  const bool doubtful = key.doubtful || value.doubtful;
  Seen seen{query, read_keys, read_values, q, {}, {}};
  if (!HeadsOf(read_keys, groups, 0, &seen.k) || !HeadsOf(read_values, groups, 0, &seen.v)) {
    return Wrong(c, "shape");
  }
  const auto given = static_cast<double>(c.Float("scale", 0));
  seen.scale = given != 0
                   ? given
                   : RoundTo(onnx::TensorProto::FLOAT, 1 / std::sqrt(static_cast<double>(q.width)));
  seen.cap = static_cast<double>(c.Float("softcap", 0));
  seen.type =
      query.type() == onnx::TensorProto::DOUBLE ? query.type() : int32_t{onnx::TensorProto::FLOAT};
  if (c.has(kSink)) {
    if (c.in[kSink].size() != heads) return Wrong(c, "sinks");
    for (int64_t n = 0; n < heads; ++n) seen.sinks.push_back(c.in[kSink].reals().At(n));
  } else if (c.Int("smooth_softmax", 0) == 1) {
    seen.sinks.assign(static_cast<size_t>(heads), Number());
  }
  const int64_t window = c.Int("local_window_size", -1);
  const int64_t size = seen.v.width;
  KV_RETURN_IF_ERROR(c.Spend(40 * q.batch * heads * q.tokens * total * (q.width + size)));
  Reals out(q.batch * q.tokens * heads * size);
  std::vector<Number> result;
  for (int64_t b = 0; b < q.batch; ++b) {
    for (int64_t s = 0; s < q.tokens; ++s) {
      const int64_t end = first[b] + s + 1;
      const int64_t begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
      // The operator's text does not say what a query behind the valid keys of a prompt gets.
      const bool unspecified = lengths[b] + s > c.in[5].integers()[b];
      for (int64_t n = 0; n < heads; ++n) {
        Attend(seen, b, n, s, begin, end, &result);
        if (unspecified) std::fill(result.begin(), result.end(), Number{0, HUGE_VAL, HUGE_VAL});
        for (int64_t d = 0; d < size; ++d) {
          out.Set(((b * q.tokens + s) * heads + n) * size + d,
                  Approximated(result[d], query.type(), 1));
        }
      }
    }
  }
  (*c.out)[0] = Value::FromReals(query.type(), {q.batch, q.tokens, heads * size}, std::move(out));
  const auto present = [&](const Value& rows) {
    return sliding.capacity > 0 ? Newest(rows, ends, kept, sliding.capacity) : rows;
  };
  if (c.wants(1)) (*c.out)[1] = present(keys);
  if (c.wants(2)) (*c.out)[2] = present(values);
  for (Value& output : *c.out) output.doubtful = output.doubtful || doubtful;
  return absl::OkStatus();
}

constexpr OpEntry kContribOps[] = {
    {"com.microsoft", "GroupQueryAttention", GroupQueryAttention},
    {"", "RotaryEmbedding", RotaryEmbedding},
    {"com.microsoft", "RotaryEmbedding", OldRotaryEmbedding},
    {"com.microsoft", "MRotaryEmbedding", MultimodalRotaryEmbedding},
    {"opmx", "KeyValueCache", KeyValueCache},
    {"opmx.dynamic_batching", "KeyValueCache", JoinedKeyValueCache},
    {"pmx", "KeyValueCache", KeyValueCache},
    {"pmx.dynamic_batching", "KeyValueCache", JoinedKeyValueCache},
    {"com.microsoft", "FusedMatMul", FusedMatMul},
};

}  // namespace

absl::Span<const OpEntry> ContribOps() { return kContribOps; }

}  // namespace kvlift::oracle
