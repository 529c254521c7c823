// KeyValueCache of pmx and opmx in its functional form: present_cache is the cache with new rows in
// the layer's part, key and value are what that part holds up to them.
#include "oracle/ops_key_value.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/op.h"

namespace kvlift::oracle {
namespace {

enum Input { kKey, kValue, kStart, kCache, kScale };
enum Output { kPresentCache = 2, kPresentScale = 3 };

struct Sizes {
  int64_t B = 0, S = 0, Nk = 0, D = 0, T = 0, start = 0, repeat = 1, group = 0;
  int64_t layer = 0, layout = 0;

  // The axes of a packed tensor, given those of a row.
  Dims Place(int64_t b, int64_t role, int64_t t, int64_t h, int64_t d) const {
    if (layout == 0) return {b, layer, role, t, h, d};
    return {layer, b, role, h, t, d};
  }
  Dims Rows(int64_t width) const { return {B, S, Nk, width}; }
  Dims All() const { return {B, T, Nk * repeat, D}; }
};

absl::Status ReadSizes(const OpContext& c, Sizes* z) {
  const Dims& rows = c.in[kKey].dims();
  if (rows.size() != 4 || c.in[kValue].dims() != rows || c.in[kStart].size() != 1 ||
      c.in[kCache].rank() != 6) {
    return Wrong(c, "shapes");
  }
  z->B = rows[0];
  z->S = rows[1];
  z->Nk = rows[2];
  z->D = rows[3];
  z->start = c.in[kStart].integers()[0];
  z->T = z->start + z->S;
  z->repeat = c.Int("num_repeat", 1);
  z->layer = c.Int("layer_idx", 0);
  z->layout = c.Int("cache_layout", 0);
  const int64_t bits = c.Int("quant_bit", 0);
  if (bits == 8) z->group = c.Int("quant_group", 8);
  if ((bits != 0 && bits != 8) || (bits == 8 && !c.has(kScale))) return NoMeaning(c, "such bits");
  if (z->layout != 0 && z->layout != 1) return Wrong(c, "cache_layout");
  if (z->B < 1 || z->S < 1 || z->start < 0 || z->repeat < 1 || z->layer < 0) {
    return NoMeaning(c, "no rows");
  }
  if (z->group < 0 || (z->group > 0 && z->D % z->group != 0)) return Wrong(c, "quant_group");
  const Dims& cache = c.in[kCache].dims();
  const Dims last = z->Place(z->B - 1, 1, z->T - 1, z->Nk - 1, z->D - 1);
  for (size_t k = 0; k < last.size(); ++k) {
    if (last[k] >= cache[k]) return Wrong(c, "a cache that is too small");
  }
  return absl::OkStatus();
}

// The packed tensor with the rows of both roles in it; `width` elements each.
Value Written(const Sizes& z, const Value& packed, const Value& keys, const Value& values,
              int64_t width) {
  std::vector<Pick> picks(static_cast<size_t>(packed.size()));
  for (int64_t i = 0; i < packed.size(); ++i) picks[i] = {0, i};
  const Dims strides = StridesOf(packed.dims());
  ForEach(z.Rows(width), [&](int64_t i, const Dims& at) {
    for (int role = 0; role < 2; ++role) {
      picks[Flat(z.Place(at[0], role, z.start + at[1], at[2], at[3]), strides)] = {1 + role, i};
    }
  });
  return Collect({&packed, &keys, &values}, packed.dims(), picks);
}

// Element [b, t, h, d] of a role's rows so far, in the packed tensor.
template <typename F>
void ForAll(const Sizes& z, const Value& packed, int64_t role, int64_t group, F f) {
  const Dims strides = StridesOf(packed.dims());
  ForEach(z.All(), [&](int64_t i, const Dims& at) {
    f(i, Flat(z.Place(at[0], role, at[1], at[2] / z.repeat, at[3] / group), strides));
  });
}

struct Quantized {
  Value values, scales;
};

Quantized Quantize(const OpContext& c, const Sizes& z, const Value& x) {
  const int32_t type = x.type(), kept = c.in[kScale].type();
  const int64_t groups = x.size() / z.group;
  Reals scales(groups);
  std::vector<int64_t> values(static_cast<size_t>(x.size()));
  bool doubtful = x.doubtful;
  for (int64_t g = 0; g < groups; ++g) {
    Number largest;
    for (int64_t i = g * z.group; i < (g + 1) * z.group; ++i) {
      Number size = x.reals().At(i);
      size.value = std::fabs(size.value);
      largest = Extreme<true>(largest, size);
    }
    const Number least = {RoundTo(type, 1e-5), 0, 0};
    const Number scale = Extreme<true>(Rounded(Over(largest, {127, 0, 0}), type), least);
    scales.Set(g, type == kept ? scale : Rounded(scale, kept));
    for (int64_t i = g * z.group; i < (g + 1) * z.group; ++i) {
      const Number q = Rounded(Over(x.reals().At(i), scale), type);
      const auto whole = [](double v) { return std::clamp(std::nearbyint(v), -128.0, 127.0); };
      const double bound = BoundOf(q.worst, q.spread);
      values[i] = static_cast<int64_t>(whole(q.value));
      doubtful = doubtful || whole(q.value - bound) != whole(q.value + bound);
    }
  }
  Quantized result{Value::FromIntegers(onnx::TensorProto::INT8, x.dims(), std::move(values)),
                   Value::FromReals(kept, z.Rows(z.D / z.group), std::move(scales))};
  result.values.doubtful = doubtful;
  return result;
}

absl::Status RunQuantized(OpContext& c, const Sizes& z) {
  const Quantized keys = Quantize(c, z, c.in[kKey]), values = Quantize(c, z, c.in[kValue]);
  Value cache = Written(z, c.in[kCache], keys.values, values.values, z.D);
  Value scale = Written(z, c.in[kScale], keys.scales, values.scales, z.D / z.group);
  cache.doubtful = keys.values.doubtful || values.values.doubtful || c.in[kCache].doubtful;
  scale.doubtful = keys.scales.doubtful || values.scales.doubtful || c.in[kScale].doubtful;
  const int32_t type = c.in[kKey].type();
  for (int role = 0; role < 2; ++role) {
    if (!c.wants(role)) continue;
    Reals out(Product(z.All()));
    std::vector<int64_t> scale_at(static_cast<size_t>(Product(z.All())));
    ForAll(z, scale, role, z.group, [&](int64_t i, int64_t at) { scale_at[i] = at; });
    ForAll(z, cache, role, 1, [&](int64_t i, int64_t at) {
      const Number whole = {static_cast<double>(cache.integers()[at]), 0, 0};
      const Number read = Rounded(Times(whole, scale.reals().At(scale_at[i])), scale.type());
      out.Set(i, type == scale.type() ? read : Rounded(read, type));
    });
    (*c.out)[role] = Value::FromReals(type, z.All(), std::move(out));
    (*c.out)[role].doubtful = cache.doubtful || scale.doubtful;
  }
  if (c.wants(kPresentCache)) (*c.out)[kPresentCache] = std::move(cache);
  if (c.wants(kPresentScale)) (*c.out)[kPresentScale] = std::move(scale);
  return absl::OkStatus();
}

}  // namespace

absl::Status KeyValueCache(OpContext& c) {
  if (c.in.size() <= kCache) return Wrong(c, "inputs");
  Sizes z;
  KV_RETURN_IF_ERROR(ReadSizes(c, &z));
  KV_RETURN_IF_ERROR(c.Spend(8 * (Product(z.All()) + c.in[kCache].size())));
  if (z.group > 0) return RunQuantized(c, z);
  if (c.in[kCache].type() != c.in[kKey].type()) return NoMeaning(c, "a cache of another type");
  Value cache = Written(z, c.in[kCache], c.in[kKey], c.in[kValue], z.D);
  cache.doubtful = c.in[kCache].doubtful || c.in[kKey].doubtful || c.in[kValue].doubtful;
  for (int role = 0; role < 2; ++role) {
    if (!c.wants(role)) continue;
    std::vector<int64_t> from(static_cast<size_t>(Product(z.All())));
    ForAll(z, cache, role, 1, [&](int64_t i, int64_t at) { from[i] = at; });
    (*c.out)[role] = Take(cache, z.All(), from);
    (*c.out)[role].doubtful = cache.doubtful;
  }
  if (c.wants(kPresentCache)) (*c.out)[kPresentCache] = std::move(cache);
  if (c.wants(kPresentScale)) (*c.out)[kPresentScale] = c.in[kScale];
  return absl::OkStatus();
}

}  // namespace kvlift::oracle
