#include <algorithm>
#include <cmath>

#include "oracle/core/op.h"
#include "oracle/ops/rounded_rows.h"

namespace kvlift::oracle {
namespace {

// Half a step, relative to the scale for integers and to the value for float8e4m3fn, which has
// three digits behind the leading one; and half of its smallest step.
constexpr double kHalfInteger = 0.5, kHalfDigit = 0x1p-4, kHalfLeast = 0x1p-10;
constexpr double kReachInt8 = 127, kReachFloat8 = 448, kSmallestScale = 0x1p-126;
// The factor for the roundings of the scale, the quotient and the product.
constexpr double kRest = 1 + 0x1p-18;

// Half a step for the elements of a group, if element i is at most size(i).
class Steps {
 public:
  template <typename Size>
  Steps(int64_t first, int64_t group, bool float8, Size size) : float8_(float8) {
    double largest = 0;
    for (int64_t i = first; i < first + group; ++i) largest = std::max(largest, size(i));
    scale_ = std::max(largest / (float8 ? kReachFloat8 : kReachInt8), kSmallestScale) * kRest;
  }
  double Half(double size) const {
    const double half =
        float8_ ? std::max(size * kHalfDigit, scale_ * kHalfLeast) : scale_ * kHalfInteger;
    return half * kRest;
  }

 private:
  bool float8_;
  double scale_ = 0;
};

absl::Status RoundedRows(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t group = c.Int("group", 0);
  const bool float8 = c.Int("to", 0) == onnx::TensorProto::FLOAT8E4M3FN;
  if (!x.real() || group <= 0 || x.rank() == 0 || x.dims().back() % group != 0) {
    return Wrong(c, "groups");
  }
  const auto largest = [&](int64_t i) {
    const Number n = x.reals().At(i);
    return std::fabs(n.value) + n.worst;
  };
  // Used instead where the worst case has no bound.
  const auto likely = [&](int64_t i) {
    const Number n = x.reals().At(i);
    return std::fabs(n.value) + BoundOf(n.worst, n.spread);
  };
  Reals out(x.size());
  for (int64_t first = 0; first < x.size(); first += group) {
    const Steps worst(first, group, float8, largest), usual(first, group, float8, likely);
    for (int64_t i = first; i < first + group; ++i) {
      Number n = x.reals().At(i);
      n.worst += worst.Half(largest(i));
      // The error is uniformly distributed within half a step.
      n.spread = std::hypot(n.spread, usual.Half(likely(i)) / std::sqrt(3.0));
      out.Set(i, n);
    }
  }
  (*c.out)[0] = Value::FromReals(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

constexpr OpEntry kRoundedOps[] = {{kRoundedRowsDomain, kRoundedRows, RoundedRows}};

}  // namespace

absl::Span<const OpEntry> RoundedOps() { return kRoundedOps; }

}  // namespace kvlift::oracle
