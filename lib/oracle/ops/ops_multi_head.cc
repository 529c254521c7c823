// com.microsoft MultiHeadAttention, and Attention, which projects its input first. They have as
// many key/value heads as query heads, and a past that grows.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/core/op.h"
#include "oracle/core/sums.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// The input that is added to the scores, in both operators.
constexpr size_t kScores = 5;

// L new keys follow P past ones, T = P + L; E and Dv are the head sizes of keys and values.
struct HeadSizes {
  int64_t B = 0, N = 0, S = 0, L = 0, P = 0, T = 0, E = 0, Dv = 0;
};

// HeadRows [B, N, rows, width], row-major.
struct HeadRows {
  std::vector<Number> numbers;
  int64_t heads = 0, rows = 0, width = 0;

  const Number* Of(int64_t b, int64_t n, int64_t row) const {
    return &numbers[static_cast<size_t>(((b * heads + n) * rows + row) * width)];
  }
};

// Splits an operand [B, rows, N * width] into heads and adds its part of the bias; [B, N, rows,
// width] is split already.
HeadRows Split(const OpContext& c, const Value& x, int64_t heads, int64_t rows, int64_t width,
               int64_t bias_at) {
  const bool flat = x.rank() == 3;
  HeadRows out{{}, heads, rows, width};
  const int64_t batch = x.dims()[0];
  out.numbers.reserve(static_cast<size_t>(batch * heads * rows * width));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t d = 0; d < width; ++d) {
          const int64_t at = flat ? ((b * rows + r) * heads + n) * width + d
                                  : ((b * heads + n) * rows + r) * width + d;
          Number v = x.reals().At(at);
          if (flat && c.has(3)) {
            v = Rounded(Plus(v, c.in[3].reals().At(bias_at + n * width + d)), x.type());
          }
          out.numbers.push_back(v);
        }
      }
    }
  }
  return out;
}

// Returns the past's rows followed by the new ones.
HeadRows Joined(const Value& past, const HeadRows& news, int64_t batch, int64_t before) {
  if (past.absent()) return news;
  HeadRows out{{}, news.heads, before + news.rows, news.width};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < news.heads; ++n) {
      for (int64_t r = 0; r < out.rows; ++r) {
        for (int64_t d = 0; d < news.width; ++d) {
          out.numbers.push_back(
              r < before ? past.reals().At(((b * news.heads + n) * before + r) * news.width + d)
                         : news.Of(b, n, r - before)[d]);
        }
      }
    }
  }
  return out;
}

Value AsValue(const HeadRows& x, int32_t type, int64_t batch) {
  Reals out(static_cast<int64_t>(x.numbers.size()));
  for (size_t i = 0; i < x.numbers.size(); ++i) out.Set(static_cast<int64_t>(i), x.numbers[i]);
  return Value::FromReals(type, {batch, x.heads, x.rows, x.width}, std::move(out));
}

// Returns true if a padding mask shows key t to token s. The mask has the number of keys per
// sequence, their ends and starts, or one truth value per key.
bool IsVisible(const Value& mask, const HeadSizes& z, int64_t b, int64_t s, int64_t t) {
  const std::vector<int64_t>& m = mask.integers();
  const int64_t size = mask.size();
  if (mask.rank() == 3) return m[(b * z.S + s) * z.T + t] > 0;
  if (mask.rank() == 2) return m[b * z.T + t] > 0;
  if (size == 2 * z.B) return t >= m[z.B + b] && t < m[b];
  return t < m[b];
}

bool MaskFits(const Value& mask, const HeadSizes& z) {
  const Dims& d = mask.dims();
  return d == Dims{z.B} || d == Dims{2 * z.B} || d == Dims{3 * z.B + 2} || d == Dims{z.B, z.T} ||
         d == Dims{z.B, z.S, z.T};
}

absl::Status ReadHeadSizes(const OpContext& c, HeadSizes* z) {
  for (size_t k = 8; k < c.in.size(); ++k) {
    if (c.has(k)) return NoMeaning(c, "shared buffers or beams");
  }
  const Value& q = c.in[0];
  z->N = c.Int("num_heads", 0);
  if (q.rank() != 3 || !c.has(1) || !c.has(2) || z->N <= 0 || c.out->size() > 3) {
    return NoMeaning(c, "this form");
  }
  const Value &k = c.in[1], &v = c.in[2];
  const bool flat = k.rank() == 3 && v.rank() == 3;
  if (!flat && (k.rank() != 4 || v.rank() != 4)) return NoMeaning(c, "this form");
  if (q.dims()[2] % z->N != 0) return Wrong(c, "heads");
  z->B = q.dims()[0];
  z->S = q.dims()[1];
  z->E = q.dims()[2] / z->N;
  z->L = k.dims()[flat ? 1 : 2];
  z->Dv = flat ? v.dims()[2] / z->N : v.dims()[3];
  z->P = c.has(6) ? c.in[6].dims()[2] : 0;
  z->T = z->P + z->L;
  const bool keys = k.size() == z->B * z->N * z->L * z->E;
  const bool values = v.size() == z->B * z->N * z->L * z->Dv;
  if (!keys || !values || c.has(6) != c.has(7)) return Wrong(c, "shape");
  if (c.has(3) && c.in[3].size() != z->N * (2 * z->E + z->Dv)) return Wrong(c, "bias");
  if (c.has(4) && !MaskFits(c.in[4], *z)) return Wrong(c, "mask");
  return absl::OkStatus();
}

class Attention {
 public:
  // `mask` is the index of the padding mask input.
  Attention(const OpContext& c, const HeadSizes& z, const HeadRows& q, const HeadRows& k,
            const HeadRows& v, size_t mask)
      : c_(c), z_(z), q_(q), k_(k), v_(v), mask_(mask) {
    const int32_t own = c.in[0].type();
    type_ = own == TensorProto::DOUBLE ? own : int32_t{TensorProto::FLOAT};
    const float scale = c.Float("scale", 0);
    scale_ = scale != 0 ? static_cast<double>(scale)
                        : RoundTo(TensorProto::FLOAT, 1 / std::sqrt(static_cast<double>(z.E)));
    filter_ = static_cast<double>(c.Float("mask_filter_value", -10000));
    causal_ = c.Int("unidirectional", 0) == 1;
    if (c.has(kScores)) bias_ = BroadcastIndex(c.in[kScores].dims(), {z.B, z.N, z.S, z.T});
  }

  // Returns the result of one token and head.
  std::vector<Number> Row(int64_t b, int64_t n, int64_t s) const {
    // ONNX Runtime hides no key from the last query, which shows where T is more than P + S.
    const int64_t end = causal_ && s + 1 < z_.S ? std::min(z_.T, z_.P + s + 1) : z_.T;
    std::vector<Number> weights;
    for (int64_t t = 0; t < end; ++t) weights.push_back(Score(b, n, s, t));
    SoftmaxRow(weights, type_);
    std::vector<Number> out;
    for (int64_t d = 0; d < z_.Dv; ++d) {
      Sum sum;
      for (int64_t t = 0; t < end; ++t) sum.Add(Times(weights[t], v_.Of(b, n, t)[d]));
      out.push_back(sum.Carried(type_, 2));
    }
    return out;
  }

 private:
  Number Score(int64_t b, int64_t n, int64_t s, int64_t t) const {
    Sum sum;
    for (int64_t d = 0; d < z_.E; ++d) sum.Add(Times(q_.Of(b, n, s)[d], k_.Of(b, n, t)[d]));
    Number score = Approximated(Times(sum.Carried(type_, 1), {scale_, 0, 0}), type_, 1);
    if (!bias_.empty()) {
      const int64_t at = bias_[((b * z_.N + n) * z_.S + s) * z_.T + t];
      score = Approximated(Plus(score, c_.in[kScores].reals().At(at)), type_, 1);
    }
    if (c_.has(mask_) && !IsVisible(c_.in[mask_], z_, b, s, t)) {
      score = Approximated(Plus(score, {filter_, 0, 0}), type_, 1);
    }
    return score;
  }

  const OpContext& c_;
  const HeadSizes& z_;
  const HeadRows &q_, &k_, &v_;
  size_t mask_;
  int32_t type_ = 0;
  double scale_ = 1, filter_ = 0;
  bool causal_ = false;
  std::vector<int64_t> bias_;  // the element that is added to each score
};

bool ScoresFit(const OpContext& c, const HeadSizes& z) {
  Dims common;
  return !c.has(kScores) || (Broadcast(c.in[kScores].dims(), {z.B, z.N, z.S, z.T}, &common) &&
                             common == Dims{z.B, z.N, z.S, z.T});
}

// Returns the result [B, S, N * Dv].
Value ResultOf(const Attention& attention, const HeadSizes& z, int32_t type) {
  Reals out(z.B * z.S * z.N * z.Dv);
  for (int64_t b = 0; b < z.B; ++b) {
    for (int64_t s = 0; s < z.S; ++s) {
      for (int64_t n = 0; n < z.N; ++n) {
        const std::vector<Number> row = attention.Row(b, n, s);
        for (int64_t d = 0; d < z.Dv; ++d) {
          out.Set(((b * z.S + s) * z.N + n) * z.Dv + d, Approximated(row[d], type, 1));
        }
      }
    }
  }
  return Value::FromReals(type, {z.B, z.S, z.N * z.Dv}, std::move(out));
}

absl::Status MultiHeadAttention(OpContext& c) {
  HeadSizes z;
  KV_RETURN_IF_ERROR(ReadHeadSizes(c, &z));
  if (!ScoresFit(c, z)) return Wrong(c, "bias of the scores");
  KV_RETURN_IF_ERROR(c.Spend(40 * z.B * z.N * z.S * z.T * (z.E + z.Dv)));
  const int64_t hidden = z.N * z.E;
  const HeadRows q = Split(c, c.in[0], z.N, z.S, z.E, 0);
  const HeadRows k =
      Joined(c.has(6) ? c.in[6] : Value(), Split(c, c.in[1], z.N, z.L, z.E, hidden), z.B, z.P);
  const HeadRows v =
      Joined(c.has(7) ? c.in[7] : Value(), Split(c, c.in[2], z.N, z.L, z.Dv, 2 * hidden), z.B, z.P);
  const int32_t type = c.in[0].type();
  (*c.out)[0] = ResultOf(Attention(c, z, q, k, v, 4), z, type);
  if (c.wants(1)) (*c.out)[1] = AsValue(k, type, z.B);
  if (c.wants(2)) (*c.out)[2] = AsValue(v, type, z.B);
  return absl::OkStatus();
}

// Inputs of Attention: X [B, S, W], weights [W, 2 * N * E + N * Dv], their bias, the padding mask,
// past keys and values [2, B, N, P, E], and the input that is added to the scores.
enum ProjectedInput : size_t { kX, kWeights, kBias, kPads, kPast };

absl::Status ReadProjectedSizes(const OpContext& c, HeadSizes* z) {
  if (c.Int("past_present_share_buffer", 0) != 0 || c.Int("do_rotary", 0) != 0 || c.has(6)) {
    return NoMeaning(c, "shared buffers or rotation");
  }
  z->N = c.Int("num_heads", 0);
  if (!c.has(kX) || !c.has(kWeights) || c.out->size() > 2 || z->N <= 0) {
    return NoMeaning(c, "this form");
  }
  const Dims &x = c.in[kX].dims(), &w = c.in[kWeights].dims();
  if (x.size() != 3 || w.size() != 2 || w[0] != x[2]) return Wrong(c, "shape");
  const std::vector<int64_t> sizes = c.Ints("qkv_hidden_sizes");
  const int64_t hidden = sizes.empty() ? w[1] / 3 : sizes[0];
  const int64_t values = sizes.size() == 3 ? sizes[2] : hidden;
  if (2 * hidden + values != w[1] || hidden % z->N != 0 || values % z->N != 0 || hidden == 0) {
    return Wrong(c, "heads");
  }
  z->B = x[0];
  z->S = z->L = x[1];
  z->E = hidden / z->N;
  z->Dv = values / z->N;
  if (c.has(kPast)) {
    z->P = c.in[kPast].rank() == 5 ? c.in[kPast].dims()[3] : 0;
    if (c.in[kPast].dims() != Dims{2, z->B, z->N, z->P, z->E} || z->E != z->Dv) {
      return Wrong(c, "past");
    }
  }
  z->T = z->P + z->L;
  if (c.has(kBias) && c.in[kBias].dims() != Dims{w[1]}) return Wrong(c, "bias");
  if (c.has(kPads) && !MaskFits(c.in[kPads], *z)) return Wrong(c, "mask");
  if (!ScoresFit(c, *z)) return Wrong(c, "bias of the scores");
  return absl::OkStatus();
}

// Multiplies X by the columns of the weights from `begin` on, and returns the product as heads.
HeadRows Projected(const OpContext& c, const HeadSizes& z, int64_t begin, int64_t width) {
  const int32_t own = c.in[kX].type();
  const int32_t carried = own == TensorProto::DOUBLE ? own : int32_t{TensorProto::FLOAT};
  const Dims &x = c.in[kX].dims(), &w = c.in[kWeights].dims();
  HeadRows out{{}, z.N, z.S, width};
  for (int64_t b = 0; b < z.B; ++b) {
    for (int64_t n = 0; n < z.N; ++n) {
      for (int64_t s = 0; s < z.S; ++s) {
        for (int64_t d = 0; d < width; ++d) {
          const int64_t column = begin + n * width + d;
          Sum sum;
          for (int64_t k = 0; k < w[0]; ++k) {
            sum.Add(Times(c.in[kX].reals().At((b * x[1] + s) * x[2] + k),
                          c.in[kWeights].reals().At(k * w[1] + column)));
          }
          Number v = sum.Carried(carried, 1);
          if (c.has(kBias)) v = Rounded(Plus(v, c.in[kBias].reals().At(column)), carried);
          out.numbers.push_back(own == carried ? v : Rounded(v, own));
        }
      }
    }
  }
  return out;
}

// Returns the past's keys (0) or values (1).
Value PastOf(const OpContext& c, const HeadSizes& z, int64_t which) {
  if (!c.has(kPast)) return Value();
  const int64_t size = z.B * z.N * z.P * z.E;
  std::vector<int64_t> from(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) from[i] = which * size + i;
  return Take(c.in[kPast], {z.B, z.N, z.P, z.E}, from);
}

absl::Status ProjectedAttention(OpContext& c) {
  HeadSizes z;
  KV_RETURN_IF_ERROR(ReadProjectedSizes(c, &z));
  const Dims& w = c.in[kWeights].dims();
  KV_RETURN_IF_ERROR(c.Spend(40 * z.B * z.N * z.S * z.T * (z.E + z.Dv)));
  KV_RETURN_IF_ERROR(c.Spend(20 * z.B * z.S * w[0] * w[1]));
  const int64_t hidden = z.N * z.E;
  const HeadRows q = Projected(c, z, 0, z.E);
  const HeadRows k = Joined(PastOf(c, z, 0), Projected(c, z, hidden, z.E), z.B, z.P);
  const HeadRows v = Joined(PastOf(c, z, 1), Projected(c, z, 2 * hidden, z.Dv), z.B, z.P);
  const int32_t type = c.in[kX].type();
  (*c.out)[0] = ResultOf(Attention(c, z, q, k, v, kPads), z, type);
  if (!c.wants(1)) return absl::OkStatus();
  if (z.E != z.Dv) return Wrong(c, "a present of keys and values of several sizes");
  HeadRows both{k.numbers, z.N, z.T, z.E};
  both.numbers.insert(both.numbers.end(), v.numbers.begin(), v.numbers.end());
  (*c.out)[1] = AsValue(both, type, 2 * z.B).WithDims({2, z.B, z.N, z.T, z.E});
  return absl::OkStatus();
}

constexpr OpEntry kMultiHeadOps[] = {{"com.microsoft", "Attention", ProjectedAttention},
                                     {"com.microsoft", "MultiHeadAttention", MultiHeadAttention}};

}  // namespace

absl::Span<const OpEntry> MultiHeadOps() { return kMultiHeadOps; }

}  // namespace kvlift::oracle
