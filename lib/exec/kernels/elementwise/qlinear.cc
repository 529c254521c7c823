// Operators of com.microsoft over quantised numbers that onnxruntime.quantization writes for the
// format QOperator, besides matrix products. Each computes what the operator in its name computes
// of the real numbers, and quantises the result. Source: ONNX Runtime, contrib operators; where a
// sum lies half way between two codes, the zero point is added before rounding, as MLAS does.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/memory/small_types.h"
#include "ir/operators/quantizer.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

// A scale and a zero point: the operands `first` and `first` + 1 of a node.
struct Grid {
  float scale = 0;
  int64_t zero = 0;

  float Real(int64_t code) const { return static_cast<float>(code - zero) * scale; }
};

Grid GridAt(const KernelContext& context, size_t first) {
  Grid grid;
  grid.scale = context.inputs[first].as<float>()[0];
  if (HasInput(context, first + 1)) grid.zero = SmallIntegerAt(context.inputs[first + 1], 0);
  return grid;
}

bool IsByte(int32_t type) { return type == TensorProto::INT8 || type == TensorProto::UINT8; }

// Fails unless operand `codes` holds bytes, and the operands from `grid` on are a scale, and a zero
// point of the same type as the codes or none.
absl::Status CheckGrid(const KernelContext& context, size_t codes, size_t grid) {
  const auto invalid = [&] {
    return Invalid(context, "bytes, a scale and a zero point are needed");
  };
  if (!HasInput(context, codes) || !HasInput(context, grid)) return invalid();
  const View& scale = context.inputs[grid];
  const int32_t type = context.inputs[codes].type;
  if (!IsByte(type) || scale.type != TensorProto::FLOAT || scale.size() != 1) return invalid();
  if (!HasInput(context, grid + 1)) return absl::OkStatus();
  const View& zero = context.inputs[grid + 1];
  return zero.type == type && zero.size() == 1 ? absl::OkStatus() : invalid();
}

// Sets a code to `value`, which has the zero point in it.
void SetCode(const View& out, int64_t i, double value) {
  const IntegerRange range = RangeOf(out.type);
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  const double code = std::clamp(std::nearbyint(value), low, high);
  SetSmallInteger(out, i, std::isnan(value) ? 0 : static_cast<int64_t>(code));
}

// Quantises a real number, as QuantizeLinear does.
void Quantise(const View& out, int64_t i, float real, const Grid& grid) {
  SetCode(out, i,
          static_cast<double>(std::nearbyint(real / grid.scale)) + static_cast<double>(grid.zero));
}

// The index of each element of an operand that is broadcast.
class Broadcasting {
 public:
  Broadcasting(const Shape& from, const Shape& to)
      : to_(to), strides_(BroadcastStrides(from, to)) {}

  int64_t At(int64_t flat) const {
    int64_t at = 0;
    for (size_t d = to_.size(); d-- > 0;) {
      at += flat % to_[d] * strides_[d];
      flat /= to_[d];
    }
    return at;
  }

 private:
  const Shape& to_;
  absl::InlinedVector<int64_t, 6> strides_;
};

// QLinearAdd and QLinearMul: codes 0 and 3, and the grid of the result at 6.
constexpr size_t kRight = 3, kSum = 6;

absl::Status QBinaryShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckGrid(context, 0, 1));
  KV_RETURN_IF_ERROR(CheckGrid(context, kRight, kRight + 1));
  KV_RETURN_IF_ERROR(CheckGrid(context, 0, kSum));
  Shape out;
  const bool fit = BroadcastShapes(context.inputs[0].shape, context.inputs[kRight].shape, &out);
  if (!fit || context.inputs[kRight].type != context.inputs[0].type) {
    return Invalid(context, "operands do not fit");
  }
  SetSpec(context, 0, context.inputs[0].type, std::move(out));
  return absl::OkStatus();
}

template <bool kProduct>
absl::Status QBinary(KernelContext& context) {
  const View &a = context.inputs[0], &b = context.inputs[kRight], &out = context.outputs[0];
  const Grid x = GridAt(context, 1), y = GridAt(context, kRight + 1), z = GridAt(context, kSum);
  const auto ratio = [](double factor, float scale) { return factor / static_cast<double>(scale); };
  const double left = ratio(x.scale, z.scale), right = ratio(y.scale, z.scale);
  const Broadcasting at_a(a.shape, out.shape), at_b(b.shape, out.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto p = static_cast<double>(SmallIntegerAt(a, at_a.At(i)) - x.zero);
    const auto q = static_cast<double>(SmallIntegerAt(b, at_b.At(i)) - y.zero);
    const double value =
        kProduct ? p * q * (left * static_cast<double>(y.scale)) : p * left + q * right;
    SetCode(out, i, value + static_cast<double>(z.zero));
  }
  return absl::OkStatus();
}

// One operand, with the grid of the result at 3.
constexpr size_t kResult = 3;

absl::Status QUnaryShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckGrid(context, 0, 1));
  KV_RETURN_IF_ERROR(CheckGrid(context, 0, kResult));
  return SameAsInput(context);
}

template <typename F>
absl::Status QUnary(KernelContext& context, F f) {
  const Grid x = GridAt(context, 1), y = GridAt(context, kResult);
  const View& out = context.outputs[0];
  for (int64_t i = 0; i < out.size(); ++i) {
    Quantise(out, i, f(x.Real(SmallIntegerAt(context.inputs[0], i))), y);
  }
  return absl::OkStatus();
}

absl::Status QSigmoid(KernelContext& context) {
  return QUnary(context, [](float x) { return 1.0F / (1.0F + std::exp(-x)); });
}

absl::Status QLeakyRelu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 0.01F);
  return QUnary(context, [alpha](float x) { return x >= 0 ? x : alpha * x; });
}

// Over one axis, or, before opset 13, over all axes from `axis` on. ONNX Runtime multiplies by the
// scale's reciprocal, rounded down to a whole number.
absl::Status QSoftmax(KernelContext& context) {
  constexpr int64_t kOneAxis = 13;
  const Shape& shape = context.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, rank));
  const bool coerced = IntAttribute(context, "opset", 0) < kOneAxis;
  const auto first = static_cast<size_t>(axis), behind = coerced ? shape.size() : first + 1;
  const int64_t n = move::Product(shape, first, behind);
  const int64_t inner = move::Product(shape, behind, shape.size());
  const View &x = context.inputs[0], &out = context.outputs[0];
  const Grid in = GridAt(context, 1), grid = GridAt(context, kResult);
  const auto steps = static_cast<double>(std::floor(1.0F / grid.scale));
  for (int64_t row = 0; n > 0 && row < out.size() / n; ++row) {
    const int64_t start = row / inner * n * inner + row % inner;
    int64_t most = SmallIntegerAt(x, start);
    for (int64_t i = 1; i < n; ++i) most = std::max(most, SmallIntegerAt(x, start + i * inner));
    const auto weight = [&](int64_t i) {
      const auto behind_most = static_cast<double>(SmallIntegerAt(x, start + i * inner) - most);
      return std::exp(behind_most * static_cast<double>(in.scale));
    };
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += weight(i);
    for (int64_t i = 0; i < n; ++i) {
      const double quotient = std::nearbyint(weight(i) * steps / sum);
      SetCode(out, start + i * inner, quotient + static_cast<double>(grid.zero));
    }
  }
  return absl::OkStatus();
}

// Returns code i of `codes` on another grid.
void Requantise(const View& codes, int64_t i, const Grid& from, const Grid& to, const View& out,
                int64_t at) {
  const int64_t code = SmallIntegerAt(codes, i);
  if (codes.type == out.type && from.scale == to.scale && from.zero == to.zero) {
    return SetSmallInteger(out, at, code);
  }
  Quantise(out, at, from.Real(code), to);
}

absl::Status QConcatShape(KernelContext& context) {
  const std::vector<int> parts = RequantizedOperands(context.node);
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  if (parts.empty()) return Invalid(context, "parts are needed");
  for (int k : parts) {
    const auto part = static_cast<size_t>(k);
    KV_RETURN_IF_ERROR(CheckGrid(context, part, part + 1));
    KV_RETURN_IF_ERROR(CheckGrid(context, part, 0));
  }
  Shape out = context.inputs[static_cast<size_t>(parts[0])].shape;
  KV_ASSIGN_OR_RETURN(const int64_t axis,
                      move::Axis(context, "axis", 0, static_cast<int64_t>(out.size())));
  const auto along = static_cast<size_t>(axis);
  for (size_t k = 1; k < parts.size(); ++k) {
    const Shape& next = context.inputs[static_cast<size_t>(parts[k])].shape;
    bool fits = next.size() == out.size();
    for (size_t d = 0; fits && d < out.size(); ++d) fits = d == along || next[d] == out[d];
    if (!fits) return Invalid(context, "parts do not fit");
    out[along] += next[along];
  }
  SetSpec(context, 0, context.inputs[1].type, std::move(out));
  return absl::OkStatus();
}

absl::Status QConcat(KernelContext& context) {
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis,
                      move::Axis(context, "axis", 0, static_cast<int64_t>(out.shape.size())));
  const auto along = static_cast<size_t>(axis);
  const int64_t inner = move::Product(out.shape, along + 1, out.shape.size());
  const int64_t whole = out.shape[along] * inner;
  const Grid grid = GridAt(context, 0);
  int64_t first = 0;
  for (int k : RequantizedOperands(context.node)) {
    const View& part = context.inputs[static_cast<size_t>(k)];
    const Grid from = GridAt(context, static_cast<size_t>(k) + 1);
    const int64_t rows = part.shape[along] * inner;
    for (int64_t i = 0; i < part.size(); ++i) {
      Requantise(part, i, from, grid, out, i / rows * whole + first + i % rows);
    }
    first += rows;
  }
  return absl::OkStatus();
}

// QLinearWhere: the condition, codes 1 and 4, and the grid of the result at 7.
constexpr size_t kYes = 1, kNo = 4, kChosen = 7;

absl::Status QWhereShape(KernelContext& context) {
  for (const size_t part : {kYes, kNo}) {
    KV_RETURN_IF_ERROR(CheckGrid(context, part, part + 1));
    KV_RETURN_IF_ERROR(CheckGrid(context, part, kChosen));
  }
  Shape both, out;
  const bool fit = BroadcastShapes(context.inputs[kYes].shape, context.inputs[kNo].shape, &both) &&
                   BroadcastShapes(context.inputs[0].shape, both, &out);
  if (!fit || context.inputs[0].type != TensorProto::BOOL) {
    return Invalid(context, "operands do not fit");
  }
  SetSpec(context, 0, context.inputs[kYes].type, std::move(out));
  return absl::OkStatus();
}

absl::Status QWhere(KernelContext& context) {
  const View& out = context.outputs[0];
  const Grid grid = GridAt(context, kChosen);
  const std::array<Grid, 2> from = {GridAt(context, kNo + 1), GridAt(context, kYes + 1)};
  const Broadcasting condition(context.inputs[0].shape, out.shape);
  const std::array<Broadcasting, 2> places = {Broadcasting(context.inputs[kNo].shape, out.shape),
                                              Broadcasting(context.inputs[kYes].shape, out.shape)};
  for (int64_t i = 0; i < out.size(); ++i) {
    const size_t yes = context.inputs[0].as<bool>()[condition.At(i)] ? 1 : 0;
    Requantise(context.inputs[yes == 1 ? kYes : kNo], places[yes].At(i), from[yes], grid, out, i);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> QLinearOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "QLinearAdd", 1, QBinaryShape, QBinary<false>},
      {"com.microsoft", "QLinearConcat", 1, QConcatShape, QConcat},
      {"com.microsoft", "QLinearLeakyRelu", 1, QUnaryShape, QLeakyRelu},
      {"com.microsoft", "QLinearMul", 1, QBinaryShape, QBinary<true>},
      {"com.microsoft", "QLinearSigmoid", 1, QUnaryShape, QSigmoid},
      {"com.microsoft", "QLinearSoftmax", 1, QUnaryShape, QSoftmax},
      {"com.microsoft", "QLinearWhere", 1, QWhereShape, QWhere},
  };
  return ops;
}

}  // namespace kvlift::exec
