// Quantised numbers and products.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "ir/types.h"
#include "oracle/core/op.h"
#include "oracle/ops/codes.h"
#include "oracle/ops/product.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// Finds for each element of x the index of its scale: there is one for all, one per index of an
// axis, or one per block of an axis.
absl::Status ScaleIndex(const OpContext& c, std::vector<int64_t>* index) {
  const Value &x = c.in[0], &scale = c.in[1];
  index->assign(static_cast<size_t>(x.size()), 0);
  if (scale.size() == 1 && scale.rank() <= 1) return absl::OkStatus();
  const int64_t axis = AxisOf(c.Int("axis", 1), x.rank());
  if (axis < 0) return Wrong(c, "axis");
  const int64_t block = c.Int("block_size", 0);
  if (block == 0) {
    if (scale.rank() != 1 || scale.size() != x.dims()[axis]) return Wrong(c, "scale");
    ForEach(x.dims(), [&](int64_t i, const Dims& at) { (*index)[i] = at[axis]; });
    return absl::OkStatus();
  }
  // The scales have the shape of x, but one element per block along the axis.
  Dims dims = x.dims();
  dims[axis] = (dims[axis] + block - 1) / block;
  if (block < 0 || scale.dims() != dims) return Wrong(c, "scale");
  const Dims strides = StridesOf(scale.dims());
  ForEach(x.dims(), [&](int64_t i, const Dims& at) {
    (*index)[i] = Flat(at, strides) + (at[axis] / block - at[axis]) * strides[axis];
  });
  return absl::OkStatus();
}

absl::Status Dequantize(OpContext& c) {
  const Value &x = c.in[0], &scale = c.in[1];
  std::vector<int64_t> index;
  KV_RETURN_IF_ERROR(ScaleIndex(c, &index));
  const auto given = static_cast<int32_t>(c.Int("output_dtype", 0));
  const int32_t type = given != 0 ? given : scale.type();
  Reals out(x.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    Number v{x.real() ? x.reals().value[i] : static_cast<double>(x.integers()[i]), 0, 0};
    if (c.has(2) && !x.real()) v.value -= static_cast<double>(c.in[2].integers()[index[i]]);
    const Number r = Times(v, scale.reals().At(index[i]));
    out.Set(i, type == scale.type() ? Rounded(r, type) : Approximated(r, type, 2));
  }
  (*c.out)[0] = Value::FromReals(type, x.dims(), std::move(out));
  return absl::OkStatus();
}

// Quantises x to a float of 8 bits, which saturates.
absl::Status QuantizeToFloat(OpContext& c, int32_t type) {
  const Value &x = c.in[0], &scale = c.in[1];
  std::vector<int64_t> index;
  KV_RETURN_IF_ERROR(ScaleIndex(c, &index));
  if (c.Int("saturate", 1) == 0) return NoMeaning(c, "saturate=0");
  Reals out(x.size());
  bool doubtful = false;
  for (int64_t i = 0; i < x.size(); ++i) {
    const Number q = Rounded(Over(x.reals().At(i), scale.reals().At(index[i])), x.type());
    out.value[i] = CodeOf(q, type, &doubtful);
  }
  (*c.out)[0] = Value::FromReals(type, x.dims(), std::move(out));
  (*c.out)[0].doubtful = doubtful;
  return absl::OkStatus();
}

absl::Status Quantize(OpContext& c) {
  const Value &x = c.in[0], &scale = c.in[1];
  const auto given = static_cast<int32_t>(c.Int("output_dtype", 0));
  const int32_t type = c.has(2) ? c.in[2].type() : given != 0 ? given : int32_t{TensorProto::UINT8};
  if (x.real() && IsReal(type) && ElementBits(type) == 8) return QuantizeToFloat(c, type);
  if (RangeOfCodes(type).second == 0 || !x.real()) return NoMeaning(c, "this type");
  std::vector<int64_t> index;
  KV_RETURN_IF_ERROR(ScaleIndex(c, &index));
  std::vector<int64_t> out(static_cast<size_t>(x.size()));
  bool doubtful = false;
  for (int64_t i = 0; i < x.size(); ++i) {
    const Number q = Rounded(Over(x.reals().At(i), scale.reals().At(index[i])), x.type());
    const double zero = c.has(2) ? static_cast<double>(c.in[2].integers()[index[i]]) : 0;
    out[i] = NearestCode(q, zero, type, &doubtful);
  }
  (*c.out)[0] = Value::FromIntegers(type, x.dims(), std::move(out));
  (*c.out)[0].doubtful = doubtful;
  return absl::OkStatus();
}

absl::Status MatMulInteger(OpContext& c) {
  const Value &a = c.in[0], &b = c.in[1];
  if (a.rank() < 2 || b.rank() < 2) return NoMeaning(c, "vectors");
  const int64_t m = a.dims()[a.rank() - 2], k = a.dims().back(), n = b.dims().back();
  const Dims lead_a(a.dims().begin(), a.dims().end() - 2);
  const Dims lead_b(b.dims().begin(), b.dims().end() - 2);
  Dims lead;
  if (!Broadcast(lead_a, lead_b, &lead)) return Wrong(c, "shapes that do not fit");
  const auto ia = BroadcastIndex(lead_a, lead), ib = BroadcastIndex(lead_b, lead);
  Dims dims = lead;
  dims.insert(dims.end(), {m, n});
  KV_RETURN_IF_ERROR(c.Spend(Product(dims) * k * 2));
  const auto zero = [&](size_t input, int64_t at) -> int64_t {
    if (!c.has(input)) return 0;
    const Value& z = c.in[input];
    return z.integers()[z.size() == 1 ? 0 : at];
  };
  if ((c.has(2) && c.in[2].rank() > 1) || (c.has(3) && c.in[3].rank() > 1)) {
    return NoMeaning(c, "zero points of a batch");
  }
  std::vector<int64_t> out(static_cast<size_t>(Product(dims)), 0);
  for (size_t p = 0; p < ia.size(); ++p) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t t = 0; t < k; ++t) {
        const int64_t x = a.integers()[(ia[p] * m + i) * k + t] - zero(2, i);
        for (int64_t j = 0; j < n; ++j) {
          out[(static_cast<int64_t>(p) * m + i) * n + j] +=
              x * (b.integers()[(ib[p] * k + t) * n + j] - zero(3, j));
        }
      }
    }
  }
  for (int64_t& v : out) v = Wrap(TensorProto::INT32, v);
  (*c.out)[0] = Value::FromIntegers(TensorProto::INT32, dims, std::move(out));
  return absl::OkStatus();
}

int64_t BitsAt(const Value& packed, int64_t first_byte, int64_t index, int64_t bits) {
  const int64_t bit = index * bits;
  return (packed.integers()[first_byte + bit / 8] >> (bit % 8)) & ((int64_t{1} << bits) - 1);
}

// Dequantises the weights [K, N] of MatMulNBits: (q - zero point) * scale, per block of a column.
absl::Status UnpackBits(OpContext& c, int64_t k_size, int64_t n_size, Value* weights) {
  const int64_t bits = c.Int("bits", 4), block = c.Int("block_size", 0);
  if (block <= 0 || block * bits % 8 != 0 || (bits != 2 && bits != 4 && bits != 8)) {
    return NoMeaning(c, "this form");
  }
  const int64_t blocks = (k_size + block - 1) / block, bytes = block * bits / 8;
  const int64_t zero_bytes = (blocks * bits + 7) / 8;
  const bool zeros = c.has(3), packed = zeros && c.in[3].type() == TensorProto::UINT8;
  if (c.in[1].size() != n_size * blocks * bytes || c.in[2].size() != n_size * blocks ||
      (zeros && c.in[3].size() != n_size * (packed ? zero_bytes : blocks))) {
    return Wrong(c, "weights");
  }
  KV_RETURN_IF_ERROR(c.Spend(4 * k_size * n_size));
  Reals out(k_size * n_size);
  for (int64_t n = 0; n < n_size; ++n) {
    for (int64_t k = 0; k < k_size; ++k) {
      const int64_t b = k / block, at = n * blocks + b;
      Number zero{static_cast<double>(int64_t{1} << (bits - 1)), 0, 0};
      if (packed) zero.value = static_cast<double>(BitsAt(c.in[3], n * zero_bytes, b, bits));
      if (zeros && !packed) zero = c.in[3].reals().At(at);
      const auto q = static_cast<double>(BitsAt(c.in[1], at * bytes, k % block, bits));
      const Number scale = c.in[2].reals().At(at);
      out.Set(k * n_size + n,
              Approximated(Times(Minus({q, 0, 0}, zero), scale), TensorProto::FLOAT, 1));
    }
  }
  *weights = Value::FromReals(TensorProto::FLOAT, {k_size, n_size}, std::move(out));
  return absl::OkStatus();
}

// Dequantises the weights [K, N] of MatMulBnb4: a number of a table times the scale of the block. A
// byte holds two codes, the first in the higher bits; codes and blocks run on over the K weights of
// one column to those of the next.
absl::Status UnpackBnb4(OpContext& c, int64_t k_size, int64_t n_size, Value* weights) {
  static constexpr double kFp4[] = {0,   5.208333333e-03, 0.66666667, 1, 0.33333333,
                                    0.5, 0.16666667,      0.25};
  static constexpr double kNf4[] = {
      -1.0,
      -0.6961928009986877,
      -0.5250730514526367,
      -0.39491748809814453,
      -0.28444138169288635,
      -0.18477343022823334,
      -0.09105003625154495,
      0.0,
      0.07958029955625534,
      0.16093020141124725,
      0.24611230194568634,
      0.33791524171829224,
      0.44070982933044434,
      0.5626170039176941,
      0.7229568362236023,
      1.0,
  };
  const int64_t type = c.Int("quant_type", -1), block = c.Int("block_size", 0);
  const int64_t all = k_size * n_size;
  if ((type != 0 && type != 1) || c.Int("transB", 1) != 1 || block <= 0) {
    return NoMeaning(c, "this form");
  }
  if (c.in[1].size() != (all + 1) / 2 || c.in[2].size() != (all + block - 1) / block) {
    return Wrong(c, "weights");
  }
  KV_RETURN_IF_ERROR(c.Spend(4 * all));
  Reals out(all);
  for (int64_t at = 0; at < all; ++at) {
    const int64_t byte = c.in[1].integers()[at / 2];
    const int64_t code = at % 2 == 0 ? byte / 16 : byte % 16;
    const double fp4 = code < 8 ? kFp4[code] : -kFp4[code - 8];
    // Both tables are stored as float32.
    const auto number = static_cast<double>(static_cast<float>(type == 0 ? fp4 : kNf4[code]));
    const Number scale = c.in[2].reals().At(at / block);
    out.Set(at % k_size * n_size + at / k_size,
            Approximated(Times({number, 0, 0}, scale), TensorProto::FLOAT, 1));
  }
  *weights = Value::FromReals(TensorProto::FLOAT, {k_size, n_size}, std::move(out));
  return absl::OkStatus();
}

// Computes the product with weights that `unpack` dequantises, plus the bias in input 5 if the
// operator has one.
using Unpack = absl::Status (*)(OpContext& c, int64_t k_size, int64_t n_size, Value* weights);

absl::Status ProductOfUnpacked(OpContext& c, Unpack unpack) {
  const Value& a = c.in[0];
  const int64_t k = c.Int("K", 0), n = c.Int("N", 0);
  if (k <= 0 || n <= 0 || a.rank() < 1 || a.dims().back() != k) return Wrong(c, "shape");
  Value weights, y;
  KV_RETURN_IF_ERROR(unpack(c, k, n, &weights));
  Dims dims = a.dims();
  KV_RETURN_IF_ERROR(MatrixProduct(c, a.WithDims({a.size() / k, k}), weights, 1, &y));
  dims.back() = n;
  Reals out = y.reals();
  for (int64_t i = 0; c.has(5) && i < y.size(); ++i) {
    // The bias may be added before all other terms.
    const Number bias = c.in[5].reals().At(i % n);
    Number sum = Plus(out.At(i), bias);
    sum.worst += Gamma(static_cast<double>(k) + 2, SumUnitOf(y.type())) * std::fabs(bias.value);
    sum.spread = std::hypot(sum.spread, std::sqrt(static_cast<double>(k) + 2) *
                                            SumUnitOf(y.type()) * std::fabs(bias.value));
    out.Set(i, Approximated(sum, y.type(), 1));
  }
  (*c.out)[0] = Value::FromReals(a.type(), std::move(dims), std::move(out));
  return absl::OkStatus();
}

absl::Status MatMulNBits(OpContext& c) {
  if (c.has(4) || c.Int("weight_prepacked", 0) != 0) return NoMeaning(c, "groups of its own");
  return ProductOfUnpacked(c, UnpackBits);
}

absl::Status MatMulBnb4(OpContext& c) { return ProductOfUnpacked(c, UnpackBnb4); }

// GatherBlockQuantized: (q - zero point) * scale of the rows that the indices name. Each block of
// `block_size` numbers along quantize_axis has a scale. Bytes hold 8 / bits numbers of the last
// axis, the first in the lowest bits, and stand for numbers around 2^(bits - 1).
absl::Status GatherBlockQuantized(OpContext& c) {
  const Value &data = c.in[0], &indices = c.in[1], &scales = c.in[2];
  const int64_t gather = AxisOf(c.Int("gather_axis", 0), data.rank());
  const int64_t quantize = AxisOf(c.Int("quantize_axis", 1), data.rank());
  const int64_t bits = c.Int("bits", 4), block = c.Int("block_size", 128);
  const bool bytes = data.type() == TensorProto::UINT8;
  if (gather < 0 || quantize < 0 || block <= 0) return Wrong(c, "axis or block_size");
  if (bits != 2 && bits != 4 && bits != 8) return NoMeaning(c, "this form");
  const int64_t packed = bytes ? 8 / bits : 1;
  Dims table = data.dims();
  table.back() *= packed;
  Dims blocks = table;
  blocks[quantize] = (blocks[quantize] + block - 1) / block;
  Dims zeros = blocks;
  if (bytes) zeros.back() = (zeros.back() + packed - 1) / packed;
  if (scales.dims() != blocks || (c.has(3) && c.in[3].dims() != zeros)) return Wrong(c, "scales");
  // Returns number `at` of a tensor whose last axis holds `last` numbers.
  const auto read = [&](const Value& from, int64_t at, int64_t last) {
    return bytes ? BitsAt(from, at / last * from.dims().back(), at % last, bits)
                 : from.integers()[at];
  };
  const Dims front(table.begin(), table.begin() + gather);
  const Dims back(table.begin() + gather + 1, table.end());
  const int64_t inner = Product(back), extent = table[gather], count = indices.size();
  const int64_t stride = StridesOf(table)[quantize];
  Dims dims = front;
  dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), back.begin(), back.end());
  KV_RETURN_IF_ERROR(c.Spend(4 * Product(dims)));
  Reals out(Product(dims));
  for (int64_t i = 0; i < Product(dims); ++i) {
    int64_t row = indices.integers()[i / inner % count];
    if (row < 0) row += extent;
    if (row < 0 || row >= extent) return Wrong(c, "an index out of range");
    const int64_t at = (i / inner / count * extent + row) * inner + i % inner;
    const int64_t place = at / stride % table[quantize], before = at / stride / table[quantize];
    const int64_t scale_at = (before * blocks[quantize] + place / block) * stride + at % stride;
    const int64_t middle = bytes ? int64_t{1} << (bits - 1) : 0;
    const int64_t zero = c.has(3) ? read(c.in[3], scale_at, blocks.back()) : middle;
    const auto q = static_cast<double>(read(data, at, table.back()) - zero);
    const Number scale = scales.reals().At(scale_at);
    out.Set(i, Approximated(Times({q, 0, 0}, scale), scales.type(), 1));
  }
  (*c.out)[0] = Value::FromReals(scales.type(), std::move(dims), std::move(out));
  return absl::OkStatus();
}

constexpr OpEntry kQuantizedOps[] = {
    {"com.microsoft", "GatherBlockQuantized", GatherBlockQuantized},
    {"com.microsoft", "MatMulBnb4", MatMulBnb4},
    {"com.microsoft", "MatMulNBits", MatMulNBits},
    {"", "DequantizeLinear", Dequantize},
    {"", "QuantizeLinear", Quantize},
    {"", "MatMulInteger", MatMulInteger},
};

}  // namespace

absl::Span<const OpEntry> QuantizedOps() { return kQuantizedOps; }

}  // namespace kvlift::oracle
