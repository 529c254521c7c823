// Rotary positions, and operators of com.microsoft.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/op.h"
#include "oracle/product.h"

namespace kvlift::oracle {
namespace {

// X as [B, N, S, D] in memory or as [B, S, N * D].
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

// Turns pairs of elements by the angles whose cosine and sine stand in row angle(b, s).
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
      const int64_t row = angle(b, s);
      if (row < 0 || row >= rows) return Wrong(c, "a position out of range");
      for (int64_t n = 0; n < h.heads; ++n) {
        for (int64_t k = 0; k < half; ++k) {
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
      [&](int64_t b, int64_t s) {
        const int64_t at = b * h.tokens + s;
        return by_position ? c.in[3].integers()[at] : at;
      },
      &(*c.out)[0]);
}

// As above, with the operands in another order, and positions that may be those of the first token.
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
      [&](int64_t b, int64_t s) {
        return first_only ? positions.integers()[0] + s : positions.integers()[b * h.tokens + s];
      },
      &(*c.out)[0]);
}

absl::Status FusedMatMul(OpContext& c) {
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) {
    return NoMeaning(c, "a transposed batch");
  }
  const Value &x = c.in[0], &y = c.in[1];
  if (x.rank() < 2 || y.rank() < 2) return NoMeaning(c, "vectors");
  const Value a = c.Int("transA", 0) != 0 ? Turned(x) : x;
  const Value b = c.Int("transB", 0) != 0 ? Turned(y) : y;
  return MatrixProduct(c, a, b, static_cast<double>(c.Float("alpha", 1)), &(*c.out)[0]);
}

constexpr OpEntry kOps[] = {
    {"", "RotaryEmbedding", RotaryEmbedding},
    {"com.microsoft", "RotaryEmbedding", OldRotaryEmbedding},
    {"com.microsoft", "FusedMatMul", FusedMatMul},
};

}  // namespace

absl::Span<const OpEntry> ContribOps() { return kOps; }

}  // namespace kvlift::oracle
