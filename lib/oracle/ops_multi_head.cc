// com.microsoft MultiHeadAttention: as many key heads as query heads, a past that grows.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/op.h"
#include "oracle/sums.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// L new keys behind P past ones, T in all; E and Dv are the head sizes of keys and values.
struct Sizes {
  int64_t B = 0, N = 0, S = 0, L = 0, P = 0, T = 0, E = 0, Dv = 0;
};

// [B, N, rows, width] in row-major order.
struct Rows {
  std::vector<Number> numbers;
  int64_t heads = 0, rows = 0, width = 0;

  const Number* Of(int64_t b, int64_t n, int64_t row) const {
    return &numbers[static_cast<size_t>(((b * heads + n) * rows + row) * width)];
  }
};

// An operand [B, rows, N * width], with its part of the bias, or [B, N, rows, width].
Rows Split(const OpContext& c, const Value& x, int64_t heads, int64_t rows, int64_t width,
           int64_t bias_at) {
  const bool flat = x.rank() == 3;
  Rows out{{}, heads, rows, width};
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

// The past's rows with the new ones behind.
Rows Joined(const Value& past, const Rows& news, int64_t batch, int64_t before) {
  if (past.absent()) return news;
  Rows out{{}, news.heads, before + news.rows, news.width};
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

Value AsValue(const Rows& x, int32_t type, int64_t batch) {
  Reals out(static_cast<int64_t>(x.numbers.size()));
  for (size_t i = 0; i < x.numbers.size(); ++i) out.Set(static_cast<int64_t>(i), x.numbers[i]);
  return Value::FromReals(type, {batch, x.heads, x.rows, x.width}, std::move(out));
}

// Whether a mask of padding shows key t to token s: the number of keys per sequence, where they end
// and start, or a truth per key.
bool Shown(const Value& mask, const Sizes& z, int64_t b, int64_t s, int64_t t) {
  const std::vector<int64_t>& m = mask.integers();
  const int64_t size = mask.size();
  if (mask.rank() == 3) return m[(b * z.S + s) * z.T + t] > 0;
  if (mask.rank() == 2) return m[b * z.T + t] > 0;
  if (size == 2 * z.B) return t >= m[z.B + b] && t < m[b];
  return t < m[b];
}

bool MaskFits(const Value& mask, const Sizes& z) {
  const Dims& d = mask.dims();
  return d == Dims{z.B} || d == Dims{2 * z.B} || d == Dims{3 * z.B + 2} || d == Dims{z.B, z.T} ||
         d == Dims{z.B, z.S, z.T};
}

absl::Status ReadSizes(const OpContext& c, Sizes* z) {
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
  Attention(const OpContext& c, const Sizes& z, const Rows& q, const Rows& k, const Rows& v)
      : c_(c), z_(z), q_(q), k_(k), v_(v) {
    const int32_t own = c.in[0].type();
    type_ = own == TensorProto::DOUBLE ? own : int32_t{TensorProto::FLOAT};
    const float scale = c.Float("scale", 0);
    scale_ = scale != 0 ? static_cast<double>(scale)
                        : RoundTo(TensorProto::FLOAT, 1 / std::sqrt(static_cast<double>(z.E)));
    filter_ = static_cast<double>(c.Float("mask_filter_value", -10000));
    causal_ = c.Int("unidirectional", 0) != 0;
    if (c.has(5)) bias_ = BroadcastIndex(c.in[5].dims(), {z.B, z.N, z.S, z.T});
  }

  // A token's row of the result.
  std::vector<Number> Row(int64_t b, int64_t n, int64_t s) const {
    const int64_t end = causal_ ? std::min(z_.T, z_.P + s + 1) : z_.T;
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
      score = Approximated(Plus(score, c_.in[5].reals().At(at)), type_, 1);
    }
    if (c_.has(4) && !Shown(c_.in[4], z_, b, s, t)) {
      score = Approximated(Plus(score, {filter_, 0, 0}), type_, 1);
    }
    return score;
  }

  const OpContext& c_;
  const Sizes& z_;
  const Rows &q_, &k_, &v_;
  int32_t type_ = 0;
  double scale_ = 1, filter_ = 0;
  bool causal_ = false;
  std::vector<int64_t> bias_;  // the element that each score gets
};

absl::Status MultiHeadAttention(OpContext& c) {
  Sizes z;
  KV_RETURN_IF_ERROR(ReadSizes(c, &z));
  Dims common;
  if (c.has(5) && (!Broadcast(c.in[5].dims(), {z.B, z.N, z.S, z.T}, &common) ||
                   common != Dims{z.B, z.N, z.S, z.T})) {
    return Wrong(c, "bias of the scores");
  }
  KV_RETURN_IF_ERROR(c.Spend(40 * z.B * z.N * z.S * z.T * (z.E + z.Dv)));
  const int64_t hidden = z.N * z.E;
  const Rows q = Split(c, c.in[0], z.N, z.S, z.E, 0);
  const Rows k =
      Joined(c.has(6) ? c.in[6] : Value(), Split(c, c.in[1], z.N, z.L, z.E, hidden), z.B, z.P);
  const Rows v =
      Joined(c.has(7) ? c.in[7] : Value(), Split(c, c.in[2], z.N, z.L, z.Dv, 2 * hidden), z.B, z.P);
  const Attention attention(c, z, q, k, v);
  const int32_t type = c.in[0].type();
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
  (*c.out)[0] = Value::FromReals(type, {z.B, z.S, z.N * z.Dv}, std::move(out));
  if (c.wants(1)) (*c.out)[1] = AsValue(k, type, z.B);
  if (c.wants(2)) (*c.out)[2] = AsValue(v, type, z.B);
  return absl::OkStatus();
}

constexpr OpEntry kOps[] = {{"com.microsoft", "MultiHeadAttention", MultiHeadAttention}};

}  // namespace

absl::Span<const OpEntry> MultiHeadOps() { return kOps; }

}  // namespace kvlift::oracle
