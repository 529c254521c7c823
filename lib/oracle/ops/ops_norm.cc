// Normalisations of rows.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "oracle/core/sums.h"
#include "oracle/ops/norm.h"

namespace kvlift::oracle {

RowNorm NormalizeRow(std::vector<Number>& row, double epsilon, bool centred, int32_t type) {
  const double u = SumUnitOf(type), n = static_cast<double>(row.size());
  RowNorm norm;
  if (centred) {
    Sum sum;
    for (const Number& x : row) sum.Add(x);
    norm.mean = Over(sum.Carried(type), {n, 0, 0});
    norm.mean.worst += 2 * u * std::fabs(norm.mean.value);
    norm.mean.spread = std::hypot(norm.mean.spread, 2 * u * std::fabs(norm.mean.value));
    for (Number& x : row) {
      x = Minus(x, norm.mean);
      x.worst += u * std::fabs(x.value);
      x.spread = std::hypot(x.spread, u * std::fabs(x.value));
    }
  }
  Sum squares;
  for (const Number& x : row) {
    const double size = std::fabs(x.value);
    squares.Add({x.value * x.value, 2 * size * x.worst + x.worst * x.worst,
                 2 * size * x.spread + x.spread * x.spread});
  }
  const Number variance = Over(squares.Carried(type, 4), {n, 0, 0});
  const double base = variance.value + epsilon;
  const auto inverse = [epsilon](double v) { return 1 / std::sqrt(std::max(v, 0.0) + epsilon); };
  norm.scale.value = 1 / std::sqrt(base);
  norm.scale.worst = std::max(inverse(variance.value - variance.worst) - norm.scale.value,
                              norm.scale.value - inverse(variance.value + variance.worst)) +
                     4 * u * norm.scale.value;
  norm.scale.spread = std::hypot(0.5 * variance.spread / base, 4 * u) * norm.scale.value;
  for (Number& x : row) {
    x = Times(x, norm.scale);
    x.worst += u * std::fabs(x.value);
    x.spread = std::hypot(x.spread, u * std::fabs(x.value));
  }
  return norm;
}

namespace {

using onnx::TensorProto;

absl::Status Normalize(OpContext& c, bool centred, const Value& x) {
  const int64_t axis = AxisOf(c.Int("axis", -1), x.rank());
  if (axis < 0 || !x.real()) return Wrong(c, "axis or type");
  const Dims normalized(x.dims().begin() + axis, x.dims().end());
  const int64_t width = Product(normalized), rows = width == 0 ? 0 : x.size() / width;
  const auto epsilon = static_cast<double>(c.Float("epsilon", 1e-5F));
  // A stash_type of lower precision rounds the statistics.
  const auto stash = static_cast<int32_t>(c.Int("stash_type", TensorProto::FLOAT));
  const bool narrow = SumUnitOf(stash) > SumUnitOf(x.type()) || UnitOf(stash) > SumUnitOf(x.type());
  const int32_t inner = narrow ? stash : x.type();
  std::vector<int64_t> scale_at(static_cast<size_t>(width), 0), bias_at = scale_at;
  Dims fit;
  const auto index = [&](size_t k, std::vector<int64_t>* at) {
    if (!c.has(k)) return true;
    if (!Broadcast(c.in[k].dims(), normalized, &fit) || fit != normalized) return false;
    *at = BroadcastIndex(c.in[k].dims(), normalized);
    return true;
  };
  if (!index(1, &scale_at) || (centred && !index(2, &bias_at))) return NoMeaning(c, "wide scales");
  Reals out(x.size()), means(rows), scales(rows);
  std::vector<Number> row(static_cast<size_t>(width));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) row[k] = x.reals().At(r * width + k);
    const RowNorm norm = NormalizeRow(row, epsilon, centred, inner);
    means.Set(r, norm.mean);
    scales.Set(r, norm.scale);
    for (int64_t k = 0; k < width; ++k) {
      Number y = row[k];
      // The normalised value may be rounded before it is scaled.
      if (UnitOf(x.type()) > SumUnitOf(x.type()) * 2 || narrow) y = Approximated(y, x.type(), 1);
      if (c.has(1)) y = Approximated(Times(y, c.in[1].reals().At(scale_at[k])), x.type(), 1);
      if (centred && c.has(2)) y = Plus(y, c.in[2].reals().At(bias_at[k]));
      out.Set(r * width + k, Approximated(y, x.type(), 1));
    }
  }
  c.work += 30 * x.size();
  (*c.out)[0] = Value::FromReals(x.type(), x.dims(), std::move(out));
  Dims kept = x.dims();
  for (size_t k = static_cast<size_t>(axis); k < kept.size(); ++k) kept[k] = 1;
  if (c.wants(1)) (*c.out)[1] = Value::FromReals(stash, kept, centred ? means : scales);
  if (c.wants(2)) (*c.out)[2] = Value::FromReals(stash, kept, std::move(scales));
  return absl::OkStatus();
}

absl::Status LayerNorm(OpContext& c) { return Normalize(c, true, c.in[0]); }
absl::Status RmsNorm(OpContext& c) { return Normalize(c, false, c.in[0]); }

// Sets output 0 to the normalised `total` of an operator of com.microsoft. weights: the scale, and
// the bias if there is one.
absl::Status NormalizeTotal(OpContext& c, bool centred, const Value& total,
                            const std::vector<Value>& weights) {
  std::vector<Value> in = {total}, out(1);
  in.insert(in.end(), weights.begin(), weights.end());
  onnx::NodeProto node = c.node;
  while (node.output_size() > 1) node.mutable_output()->RemoveLast();
  if (!c.HasAttribute("epsilon")) {
    auto* a = node.add_attribute();
    a->set_name("epsilon");
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(1e-12F);
  }
  OpContext inner{node, c.opset, in, &out, c.budget};
  KV_RETURN_IF_ERROR(Normalize(inner, centred, total));
  (*c.out)[0] = out[0];
  return absl::OkStatus();
}

// Normalises x + skip + bias.
absl::Status SkipNorm(OpContext& c, bool centred) {
  const Value& x = c.in[0];
  const size_t gamma = 2, bias_at = centred ? 4 : 3;
  const auto skip = BroadcastIndex(c.in[1].dims(), x.dims());
  Reals sum(x.size());
  const int64_t width = x.dims().back();
  for (int64_t i = 0; i < x.size(); ++i) {
    Number v = Rounded(Plus(x.reals().At(i), c.in[1].reals().At(skip[i])), x.type());
    if (c.has(bias_at)) v = Approximated(Plus(v, c.in[bias_at].reals().At(i % width)), x.type(), 1);
    sum.Set(i, v);
  }
  const Value total = Value::FromReals(x.type(), x.dims(), std::move(sum));
  std::vector<Value> weights = {c.in[gamma]};
  if (centred && c.has(3)) weights.push_back(c.in[3]);
  KV_RETURN_IF_ERROR(NormalizeTotal(c, centred, total, weights));
  if (c.wants(1) || c.wants(2)) return NoMeaning(c, "statistics");
  if (c.wants(3)) (*c.out)[3] = total;
  return absl::OkStatus();
}

absl::Status SkipLayerNorm(OpContext& c) { return SkipNorm(c, true); }
absl::Status SkipRmsNorm(OpContext& c) { return SkipNorm(c, false); }

// The sum of the embeddings of a token's word, its place and its segment, normalised.
absl::Status EmbedLayerNorm(OpContext& c) {
  constexpr size_t kWords = 0, kSegments = 1, kWordTable = 2, kPlaceTable = 3, kSegmentTable = 4,
                   kGamma = 5, kBeta = 6, kMask = 7, kPlaces = 8;
  for (const size_t k : {kWords, kWordTable, kPlaceTable, kGamma, kBeta}) {
    if (!c.has(k)) return NoMeaning(c, "this form");
  }
  const Dims ids = c.in[kWords].dims();
  if (ids.size() != 2 || c.in[kWordTable].rank() != 2) return Wrong(c, "shape");
  const int64_t width = c.in[kWordTable].dims().back(), tokens = ids[0] * ids[1];
  for (const size_t k : {kPlaceTable, kSegmentTable}) {
    const bool fits = !c.has(k) || (c.in[k].rank() == 2 && c.in[k].dims().back() == width);
    if (!fits) return Wrong(c, "table");
  }
  for (const size_t k : {kGamma, kBeta}) {
    if (c.in[k].dims() != Dims{width}) return Wrong(c, "shape");
  }
  for (const size_t k : {kSegments, kMask, kPlaces}) {
    const bool shared = c.has(k) && k == kPlaces && c.in[k].dims() == Dims{1, ids[1]};
    if (c.has(k) && !shared && c.in[k].dims() != ids) return Wrong(c, "ids");
  }
  if (c.has(kSegments) != c.has(kSegmentTable)) return Wrong(c, "segments");
  const int32_t type = c.in[kWordTable].type();
  KV_RETURN_IF_ERROR(c.Spend(30 * tokens * width));
  std::vector<std::vector<Number>> sums(static_cast<size_t>(tokens),
                                        std::vector<Number>(static_cast<size_t>(width)));
  // Adds row at(token) of a table to the sum of each token; returns false if there is no such row.
  const auto add = [&](size_t table, const auto& at) {
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t row = at(i);
      if (row < 0 || row >= c.in[table].dims()[0]) return false;
      for (int64_t k = 0; k < width; ++k) {
        sums[i][k] = Plus(sums[i][k], c.in[table].reals().At(row * width + k));
      }
    }
    return true;
  };
  const auto id_of = [&](size_t k) {
    return [&c, k](int64_t i) { return c.in[k].integers()[i % c.in[k].size()]; };
  };
  const auto own = [&](int64_t i) { return i % ids[1]; };
  bool fits = add(kWordTable, id_of(kWords));
  fits = fits && (c.has(kPlaces) ? add(kPlaceTable, id_of(kPlaces)) : add(kPlaceTable, own));
  if (c.has(kSegments)) fits = fits && add(kSegmentTable, id_of(kSegments));
  if (!fits) return Wrong(c, "an index");
  Reals sum(tokens * width);
  for (int64_t i = 0; i < tokens * width; ++i) {
    sum.Set(i, Approximated(sums[i / width][i % width], type, 2));
  }
  const Value total = Value::FromReals(type, {ids[0], ids[1], width}, std::move(sum));
  KV_RETURN_IF_ERROR(NormalizeTotal(c, true, total, {c.in[kGamma], c.in[kBeta]}));
  if (c.wants(1)) {
    std::vector<int64_t> kept(static_cast<size_t>(ids[0]), 0);
    for (int64_t i = 0; i < tokens && c.has(kMask); ++i) {
      kept[i / ids[1]] += c.in[kMask].integers()[i] == 1 ? 1 : 0;
    }
    (*c.out)[1] = Value::FromIntegers(onnx::TensorProto::INT32, {ids[0]}, std::move(kept));
  }
  if (c.wants(2)) (*c.out)[2] = total;
  return absl::OkStatus();
}

constexpr OpEntry kNormOps[] = {
    {"", "LayerNormalization", LayerNorm},
    {"", "RMSNormalization", RmsNorm},
    {"", "SimplifiedLayerNormalization", RmsNorm},
    {"com.microsoft", "SimplifiedLayerNormalization", RmsNorm},
    {"com.microsoft", "EmbedLayerNormalization", EmbedLayerNorm},
    {"com.microsoft", "SkipLayerNormalization", SkipLayerNorm},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", SkipRmsNorm},
};

}  // namespace

absl::Span<const OpEntry> NormOps() { return kNormOps; }

}  // namespace kvlift::oracle
