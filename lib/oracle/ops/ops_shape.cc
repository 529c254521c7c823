// Constants, shapes and ranges.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "ir/graph.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

absl::Status Constant(OpContext& c) {
  for (const onnx::AttributeProto& a : c.node.attribute()) {
    Reals reals;
    if (a.name() == "value") {
      KV_ASSIGN_OR_RETURN((*c.out)[0], Value::FromProto(a.t(), ""));
    } else if (a.name() == "value_int") {
      (*c.out)[0] = Value::FromIntegers(TensorProto::INT64, {}, {a.i()});
    } else if (a.name() == "value_ints") {
      (*c.out)[0] = Value::FromIntegers(TensorProto::INT64, {a.ints_size()},
                                        {a.ints().begin(), a.ints().end()});
    } else if (a.name() == "value_float") {
      reals.value = {static_cast<double>(a.f())};
      (*c.out)[0] = Value::FromReals(TensorProto::FLOAT, {}, std::move(reals));
    } else if (a.name() == "value_floats") {
      reals.value.assign(a.floats().begin(), a.floats().end());
      (*c.out)[0] = Value::FromReals(TensorProto::FLOAT, {a.floats_size()}, std::move(reals));
    } else {
      return NoMeaning(c, a.name());
    }
  }
  return absl::OkStatus();
}

absl::Status Shape(OpContext& c) {
  const int64_t rank = c.in[0].rank();
  int64_t start = c.Int("start", 0), end = c.HasAttribute("end") ? c.Int("end", 0) : rank;
  start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
  end = std::clamp<int64_t>(end < 0 ? end + rank : end, start, rank);
  const Dims& dims = c.in[0].dims();
  (*c.out)[0] = Value::FromIntegers(TensorProto::INT64, {end - start},
                                    {dims.begin() + start, dims.begin() + end});
  return absl::OkStatus();
}

absl::Status Size(OpContext& c) {
  (*c.out)[0] = Value::FromIntegers(TensorProto::INT64, {}, {c.in[0].size()});
  return absl::OkStatus();
}

absl::Status ConstantOfShape(OpContext& c) {
  Value fill = ZeroOf(TensorProto::FLOAT);
  if (const auto* a = FindAttribute(c.node, "value"); a != nullptr) {
    KV_ASSIGN_OR_RETURN(fill, Value::FromProto(a->t(), ""));
  }
  const Dims& dims = c.in[0].integers();
  if (!IsExtent(dims)) return Wrong(c, "shape");
  (*c.out)[0] = Take(fill, dims, std::vector<int64_t>(static_cast<size_t>(Product(dims)), 0));
  return absl::OkStatus();
}

absl::Status Range(OpContext& c) {
  if (!AreScalars(c, 0, 2)) return Wrong(c, "a bound that is no number");
  const int32_t type = c.in[0].type();
  if (!IsReal(type)) {
    const int64_t start = c.in[0].integers()[0], limit = c.in[1].integers()[0],
                  delta = c.in[2].integers()[0];
    if (delta == 0) return Wrong(c, "a step of 0");
    const double length =
        (static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta);
    if (length > kMostElements) return Wrong(c, "length");
    std::vector<int64_t> out;
    for (int64_t v = start; delta > 0 ? v < limit : v > limit; v += delta) out.push_back(v);
    const auto count = static_cast<int64_t>(out.size());
    (*c.out)[0] = Value::FromIntegers(type, {count}, std::move(out));
    return absl::OkStatus();
  }
  const double start = ScalarOf(c.in[0]), limit = ScalarOf(c.in[1]), delta = ScalarOf(c.in[2]);
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil((limit - start) / delta)));
  Reals out(count);
  for (int64_t i = 0; i < count; ++i) {
    const Number step = Rounded({static_cast<double>(i) * delta, 0, 0}, type);
    Number v = Plus({start, 0, 0}, step);
    // The operator text does not say whether the sum is accumulated or multiplied.
    const bool whole =
        v.value == std::floor(v.value) && std::fabs(v.value) < 1e6 && delta == std::floor(delta);
    v = whole && UnitOf(type) < 1e-6 ? v : Approximated(v, type, static_cast<double>(i));
    out.Set(i, v);
  }
  (*c.out)[0] = Value::FromReals(type, {count}, std::move(out));
  (*c.out)[0].doubtful = !(c.in[0].exact() && c.in[1].exact() && c.in[2].exact());
  return absl::OkStatus();
}

absl::Status EyeLike(OpContext& c) {
  const Value& x = c.in[0];
  if (x.rank() != 2) return Wrong(c, "rank");
  const int64_t k = c.Int("k", 0);
  const auto type = static_cast<int32_t>(c.Int("dtype", x.type()));
  std::vector<int64_t> ones(static_cast<size_t>(x.size()));
  ForEach(x.dims(), [&](int64_t i, const Dims& at) { ones[i] = at[1] - at[0] == k ? 1 : 0; });
  if (IsReal(type)) {
    Reals out;
    out.value.assign(ones.begin(), ones.end());
    (*c.out)[0] = Value::FromReals(type, x.dims(), std::move(out));
  } else {
    (*c.out)[0] = Value::FromIntegers(type, x.dims(), std::move(ones));
  }
  return absl::OkStatus();
}

constexpr OpEntry kShapeOps[] = {
    {"", "Constant", Constant}, {"", "Shape", Shape},
    {"", "Size", Size},         {"", "ConstantOfShape", ConstantOfShape},
    {"", "Range", Range},       {"", "EyeLike", EyeLike},
};

}  // namespace

absl::Span<const OpEntry> ShapeOps() { return kShapeOps; }

}  // namespace kvlift::oracle
