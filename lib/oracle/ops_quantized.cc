// Numbers kept in few bits.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// For each element of x the element of its scale: one for all, one per row of an axis, or one per
// block of it.
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
  if (scale.rank() != x.rank()) return Wrong(c, "scale");
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

std::pair<double, double> RangeOf(int32_t type) {
  switch (type) {
    case TensorProto::UINT8:
      return {0, 255};
    case TensorProto::INT8:
      return {-128, 127};
    case TensorProto::UINT16:
      return {0, 65535};
    case TensorProto::INT16:
      return {-32768, 32767};
    case TensorProto::UINT4:
      return {0, 15};
    case TensorProto::INT4:
      return {-8, 7};
    default:
      return {0, 0};
  }
}

absl::Status Quantize(OpContext& c) {
  const Value &x = c.in[0], &scale = c.in[1];
  const auto given = static_cast<int32_t>(c.Int("output_dtype", 0));
  const int32_t type = c.has(2) ? c.in[2].type() : given != 0 ? given : int32_t{TensorProto::UINT8};
  const auto [low, high] = RangeOf(type);
  if (high == 0 || !x.real()) return NoMeaning(c, "this type");
  std::vector<int64_t> index;
  KV_RETURN_IF_ERROR(ScaleIndex(c, &index));
  std::vector<int64_t> out(static_cast<size_t>(x.size()));
  bool doubtful = false;
  for (int64_t i = 0; i < x.size(); ++i) {
    const Number q = Rounded(Over(x.reals().At(i), scale.reals().At(index[i])), x.type());
    const double zero = c.has(2) ? static_cast<double>(c.in[2].integers()[index[i]]) : 0;
    const double bound = BoundOf(q.worst, q.spread);
    const auto whole = [&, lowest = low, highest = high](double v) {
      return std::clamp(std::nearbyint(v) + zero, lowest, highest);
    };
    out[i] = static_cast<int64_t>(whole(q.value));
    doubtful = doubtful || whole(q.value - bound) != whole(q.value + bound);
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

constexpr OpEntry kOps[] = {
    {"", "DequantizeLinear", Dequantize},
    {"", "QuantizeLinear", Quantize},
    {"", "MatMulInteger", MatMulInteger},
};

}  // namespace

absl::Span<const OpEntry> QuantizedOps() { return kOps; }

}  // namespace kvlift::oracle
