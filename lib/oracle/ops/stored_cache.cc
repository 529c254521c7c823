#include "oracle/ops/stored_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "oracle/core/number.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

constexpr size_t kScales = 12, kPasts = 3;
constexpr int64_t kOffset = 8;  // added to a 4-bit value

// Returns the scale of element d of a head.
Number ScaleAt(const StoredCache& cache, int64_t head, int64_t d) {
  return cache.scale.reals().At(cache.scale.size() > 1 ? head * cache.width + d : 0);
}

// Returns x in steps of the scale.
Number InSteps(const Number& x, const Number& scale) {
  const Number one = {1, 0, 0};
  const Number inverse = scale.value == 0 ? one : Rounded(Over(one, scale), TensorProto::FLOAT);
  return Rounded(Times(x, inverse), TensorProto::FLOAT);
}

// Returns the integer that a number of steps is stored as. Sets *doubtful if an error of it could
// change that.
int64_t WholeOf(const StoredCache& cache, const Number& steps, bool* doubtful) {
  const double low = cache.in_four_bits() ? -8 : -128;
  const auto whole = [low](double v) { return std::clamp(std::nearbyint(v), low, -low - 1); };
  const double bound = BoundOf(steps.worst, steps.spread);
  *doubtful = *doubtful || whole(steps.value - bound) != whole(steps.value + bound);
  return static_cast<int64_t>(whole(steps.value));
}

}  // namespace

absl::Status ReadStoredCache(const OpContext& c, int side, int64_t heads, int64_t width,
                             StoredCache* cache) {
  const std::string form = c.Text(side == 0 ? "k_quant_type" : "v_quant_type", "NONE");
  cache->heads = heads;
  cache->width = width;
  const size_t past = kPasts + static_cast<size_t>(side), scale = kScales + side;
  if (form == "NONE") {
    const bool plain = !c.has(scale) && (!c.has(past) || c.in[past].type() == c.in[0].type());
    return plain ? absl::OkStatus() : NoMeaning(c, "a cache of another type");
  }
  const int64_t bits = c.Int("kv_cache_bit_width", 0);
  const int32_t usual = bits == 4 ? TensorProto::UINT8 : TensorProto::INT8;
  cache->type = c.has(past) ? c.in[past].type() : usual;
  const bool fits = cache->type == usual || (bits == 8 && cache->type == TensorProto::FLOAT8E4M3FN);
  if ((bits != 4 && bits != 8) || width % 2 != 0 || !fits) {
    return NoMeaning(c, "a cache of such bits");
  }
  const int64_t count = form == "PER_TENSOR" ? 1 : heads * width;
  if (!c.has(scale) || !c.in[scale].real() || c.in[scale].size() != count) {
    return Wrong(c, "scales");
  }
  cache->scale = c.in[scale];
  return absl::OkStatus();
}

Value StoredRows(const StoredCache& cache, const Value& rows) {
  const int64_t count = rows.size() / cache.width, stored = cache.stored_width();
  const bool real = IsReal(cache.type);
  std::vector<int64_t> kept(static_cast<size_t>(real ? 0 : count * stored), 0);
  Reals numbers(real ? rows.size() : 0);
  bool doubtful = rows.doubtful || cache.scale.doubtful;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t row = i / cache.width, d = i % cache.width;
    const Number steps = InSteps(rows.reals().At(i), ScaleAt(cache, row % cache.heads, d));
    if (real) {
      numbers.value[i] = CodeOf(steps, cache.type, &doubtful);
    } else if (cache.in_four_bits()) {
      const int64_t code = WholeOf(cache, steps, &doubtful) + kOffset;
      kept[row * stored + d / 2] += code * (d % 2 == 0 ? 1 : 16);
    } else {
      kept[i] = WholeOf(cache, steps, &doubtful);
    }
  }
  Dims dims = rows.dims();
  dims.back() = cache.heads * stored;
  Value value = real ? Value::FromReals(cache.type, std::move(dims), std::move(numbers))
                     : Value::FromIntegers(cache.type, std::move(dims), std::move(kept));
  value.doubtful = doubtful;
  return value;
}

Value ReadRows(const StoredCache& cache, const Value& kept) {
  Dims dims = kept.dims();
  const int64_t tokens = dims[2], stored = cache.stored_width();
  dims.back() = cache.width;
  Reals out(Product(dims));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    const int64_t row = (at[0] * cache.heads + at[1]) * tokens + at[2], d = at[3];
    Number steps = {0, 0, 0};
    if (kept.real()) {
      steps.value = kept.reals().value[row * stored + d];
    } else if (cache.in_four_bits()) {
      const int64_t byte = kept.integers()[row * stored + d / 2];
      steps.value = static_cast<double>((d % 2 == 0 ? byte % 16 : byte / 16) - kOffset);
    } else {
      steps.value = static_cast<double>(kept.integers()[row * stored + d]);
    }
    out.Set(i, Rounded(Times(steps, ScaleAt(cache, at[1], d)), TensorProto::FLOAT));
  });
  Value value = Value::FromReals(TensorProto::FLOAT, std::move(dims), std::move(out));
  value.doubtful = kept.doubtful || cache.scale.doubtful;
  return value;
}

}  // namespace kvlift::oracle
