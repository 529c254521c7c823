// OpenPPL's KeyValueCache in its functional form (onnxio/model/functional_form.h): present_cache is
// the cache with the new rows in the layer's part; key and value are the rows of that part up to
// the new ones.
//
// Rows are numbered across all sequences, in both forms; a table says where each row is in the
// packed tensor.
#include "oracle/ops/ops_key_value.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

enum Output { kPresentCache = 2, kPresentScale = 3 };

// The place of a row: its sequence, where the packed tensor has an axis of sequences, and its slot.
struct Spot {
  int64_t b = 0, t = 0;
};

struct Sizes {
  bool joins = false;        // the tokens of all sequences are on one axis
  int cache = 3, scale = 4;  // indices of the operands
  int64_t Nk = 0, D = 0, repeat = 1, group = 0;
  int64_t layer = 0, layout = 0;
  std::vector<Spot> added, all;  // places of the new rows, and of all rows
  Dims outer;                    // axes of the results in front of the heads

  // Returns the index in the packed tensor of an element of a row.
  Dims Place(const Spot& row, int64_t role, int64_t h, int64_t d) const {
    if (joins) {
      if (layout == 0) return {row.t, layer, role, h, d};
      if (layout == 1) return {layer, row.t, role, h, d};
      if (layout == 2) return {layer, role, row.t, h, d};
      return {layer, role, h, row.t, d};
    }
    if (layout == 0) return {row.b, layer, role, row.t, h, d};
    return {layer, row.b, role, h, row.t, d};
  }
  Dims Added(int64_t width) const { return {static_cast<int64_t>(added.size()), Nk, width}; }
  Dims Results() const {
    Dims dims = outer;
    dims.insert(dims.end(), {Nk * repeat, D});
    return dims;
  }
};

absl::Status ReadAttributes(const OpContext& c, Sizes* z) {
  const Dims& rows = c.in[0].dims();
  if (rows.size() != (z->joins ? 3 : 4) || c.in[1].dims() != rows ||
      c.in[z->cache].rank() != (z->joins ? 5 : 6)) {
    return Wrong(c, "shapes");
  }
  z->Nk = rows[rows.size() - 2];
  z->D = rows.back();
  z->repeat = c.Int("num_repeat", 1);
  z->layer = c.Int("layer_idx", 0);
  z->layout = c.Int("cache_layout", 0);
  const int64_t bits = c.Int("quant_bit", 0);
  if (bits == 8) z->group = c.Int("quant_group", 8);
  if ((bits != 0 && bits != 8) || (bits == 8 && !c.has(z->scale))) return NoMeaning(c, "such bits");
  if (z->layout < 0 || z->layout > (z->joins ? 3 : 1)) return Wrong(c, "cache_layout");
  if (rows[0] < 1 || rows[1] < 1 || z->repeat < 1 || z->layer < 0) return NoMeaning(c, "no rows");
  if (z->group < 0 || (z->group > 0 && z->D % z->group != 0)) return Wrong(c, "quant_group");
  return absl::OkStatus();
}

absl::Status ReadApart(const OpContext& c, Sizes* z) {
  if (c.in[2].size() != 1) return Wrong(c, "start_pos");
  const int64_t start = c.in[2].integers()[0], B = c.in[0].dims()[0], S = c.in[0].dims()[1];
  if (start < 0 || start > c.in[z->cache].size()) return NoMeaning(c, "such a start");
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < start + S; ++t) z->all.push_back({b, t});
    for (int64_t t = start; t < start + S; ++t) z->added.push_back({b, t});
  }
  z->outer = {B, start + S};
  return absl::OkStatus();
}

absl::Status ReadJoined(const OpContext& c, Sizes* z) {
  const auto numbers = [&](int k) { return c.in[k].integers(); };
  const bool paged = c.Int("cache_mode", 0) == 1;
  const int64_t B = c.in[5].size(), page_size = c.Int("page_size", 128);
  const int64_t most = c.in[z->cache].size();
  const Dims& table = c.in[4].dims();
  if (c.in[2].size() != B + 1 || c.in[3].size() != B + 1 || page_size < 1) {
    return Wrong(c, "sequences");
  }
  if (table.size() != (paged ? 2 : 1) || table[0] != B || c.Int("cache_mode", 0) > 1) {
    return Wrong(c, "cachestarts");
  }
  std::set<int64_t> taken;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t first = numbers(5)[b], S = numbers(2)[b + 1] - numbers(2)[b];
    const int64_t T = numbers(3)[b + 1] - numbers(3)[b];
    if (numbers(2)[b] != static_cast<int64_t>(z->added.size()) ||
        numbers(3)[b] != static_cast<int64_t>(z->all.size()) || S < 0 || first < 0 ||
        first > most || T != first + S || T > most) {
      return NoMeaning(c, "such starts");
    }
    for (int64_t t = 0; t < T; ++t) {
      const int64_t page = paged ? t / page_size : 0;
      if (paged && page >= table[1]) return NoMeaning(c, "so few pages");
      const int64_t start = paged ? numbers(4)[b * table[1] + page] : numbers(4)[b];
      if (start < 0 || start > most) return NoMeaning(c, "such slots");
      z->all.push_back({0, start + (paged ? t % page_size : t)});
      if (!taken.insert(z->all.back().t).second) return NoMeaning(c, "sequences that overlap");
      if (t >= first) z->added.push_back(z->all.back());
    }
  }
  if (static_cast<int64_t>(z->added.size()) != c.in[0].dims()[0]) return Wrong(c, "seqstarts");
  z->outer = {static_cast<int64_t>(z->all.size())};
  return absl::OkStatus();
}

absl::Status ReadSizes(const OpContext& c, Sizes* z) {
  KV_RETURN_IF_ERROR(ReadAttributes(c, z));
  KV_RETURN_IF_ERROR(z->joins ? ReadJoined(c, z) : ReadApart(c, z));
  const Dims& cache = c.in[z->cache].dims();
  for (const Spot& row : z->all) {
    const Dims last = z->Place(row, 1, z->Nk - 1, z->D - 1);
    for (size_t k = 0; k < last.size(); ++k) {
      if (last[k] >= cache[k]) return Wrong(c, "a cache that is too small");
    }
  }
  return absl::OkStatus();
}

// Returns the packed tensor with the new keys and values written into it; `width` elements per
// head.
Value Written(const Sizes& z, const Value& packed, const Value& keys, const Value& values,
              int64_t width) {
  std::vector<Pick> picks(static_cast<size_t>(packed.size()));
  for (int64_t i = 0; i < packed.size(); ++i) picks[i] = {0, i};
  const Dims strides = StridesOf(packed.dims());
  ForEach(z.Added(width), [&](int64_t i, const Dims& at) {
    for (int role = 0; role < 2; ++role) {
      picks[Flat(z.Place(z.added[at[0]], role, at[1], at[2]), strides)] = {1 + role, i};
    }
  });
  return Collect({&packed, &keys, &values}, packed.dims(), picks);
}

// Calls f for element [row, h, d] of all rows of keys or values in the packed tensor.
template <typename F>
void ForAll(const Sizes& z, const Value& packed, int64_t role, int64_t group, F f) {
  const Dims strides = StridesOf(packed.dims());
  const Dims all = {static_cast<int64_t>(z.all.size()), z.Nk * z.repeat, z.D};
  ForEach(all, [&](int64_t i, const Dims& at) {
    f(i, Flat(z.Place(z.all[at[0]], role, at[1] / z.repeat, at[2] / group), strides));
  });
}

struct Quantized {
  Value values, scales;
};

Quantized Quantize(const OpContext& c, const Sizes& z, const Value& x) {
  const int32_t type = x.type(), kept = c.in[z.scale].type();
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
                   Value::FromReals(kept, z.Added(z.D / z.group), std::move(scales))};
  result.values.doubtful = doubtful;
  return result;
}

absl::Status RunQuantized(OpContext& c, const Sizes& z) {
  const Quantized keys = Quantize(c, z, c.in[0]), values = Quantize(c, z, c.in[1]);
  Value cache = Written(z, c.in[z.cache], keys.values, values.values, z.D);
  Value scale = Written(z, c.in[z.scale], keys.scales, values.scales, z.D / z.group);
  cache.doubtful = keys.values.doubtful || values.values.doubtful || c.in[z.cache].doubtful;
  scale.doubtful = keys.scales.doubtful || values.scales.doubtful || c.in[z.scale].doubtful;
  const int32_t type = c.in[0].type();
  for (int role = 0; role < 2; ++role) {
    if (!c.wants(role)) continue;
    Reals out(Product(z.Results()));
    std::vector<int64_t> scale_at(static_cast<size_t>(Product(z.Results())));
    ForAll(z, scale, role, z.group, [&](int64_t i, int64_t at) { scale_at[i] = at; });
    ForAll(z, cache, role, 1, [&](int64_t i, int64_t at) {
      const Number whole = {static_cast<double>(cache.integers()[at]), 0, 0};
      const Number read = Rounded(Times(whole, scale.reals().At(scale_at[i])), scale.type());
      out.Set(i, type == scale.type() ? read : Rounded(read, type));
    });
    (*c.out)[role] = Value::FromReals(type, z.Results(), std::move(out));
    (*c.out)[role].doubtful = cache.doubtful || scale.doubtful;
  }
  if (c.wants(kPresentCache)) (*c.out)[kPresentCache] = std::move(cache);
  if (c.wants(kPresentScale)) (*c.out)[kPresentScale] = std::move(scale);
  return absl::OkStatus();
}

absl::Status Run(OpContext& c, Sizes z) {
  if (static_cast<int>(c.in.size()) <= z.cache) return Wrong(c, "inputs");
  KV_RETURN_IF_ERROR(ReadSizes(c, &z));
  KV_RETURN_IF_ERROR(c.Spend(8 * (Product(z.Results()) + c.in[z.cache].size())));
  if (z.group > 0) return RunQuantized(c, z);
  if (c.in[z.cache].type() != c.in[0].type()) return NoMeaning(c, "a cache of another type");
  Value cache = Written(z, c.in[z.cache], c.in[0], c.in[1], z.D);
  cache.doubtful = c.in[z.cache].doubtful || c.in[0].doubtful || c.in[1].doubtful;
  for (int role = 0; role < 2; ++role) {
    if (!c.wants(role)) continue;
    std::vector<int64_t> from(static_cast<size_t>(Product(z.Results())));
    ForAll(z, cache, role, 1, [&](int64_t i, int64_t at) { from[i] = at; });
    (*c.out)[role] = Take(cache, z.Results(), from);
    (*c.out)[role].doubtful = cache.doubtful;
  }
  if (c.wants(kPresentCache)) (*c.out)[kPresentCache] = std::move(cache);
  if (c.wants(kPresentScale)) (*c.out)[kPresentScale] = c.in[z.scale];
  return absl::OkStatus();
}

}  // namespace

absl::Status KeyValueCache(OpContext& c) { return Run(c, Sizes()); }

absl::Status JoinedKeyValueCache(OpContext& c) {
  Sizes z;
  z.joins = true;
  z.cache = 8;
  z.scale = 9;
  return Run(c, std::move(z));
}

}  // namespace kvlift::oracle
