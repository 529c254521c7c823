#include "verify/report/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Returns c of the fixed bound. Half types round so often that errors cancel; with a factor of 8
// their bound would detect nothing.
double FactorOf(int32_t type) { return IsHalfType(type) ? 2.0 : 8.0; }

// Returns the fixed bound of a float tensor whose largest number is `largest`.
double FixedBound(int32_t type, int source_nodes, double largest) {
  const double eps = EpsilonOf(type);
  return FactorOf(type) * eps * std::sqrt(std::max(1, source_nodes)) *
         std::max(largest, std::numeric_limits<float>::min() / eps);
}

// Returns the largest absolute value of the finite elements; 0 if no element is finite.
double LargestOf(const exec::View& view) {
  double largest = 0;
  for (int64_t i = 0; i < view.size(); ++i) {
    const double x = exec::ElementAsDouble(view, i);
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

// Returns the bound of an element r of the type, for which the oracle computed `slack`. Numbers
// that arithmetic made of exact ones are exact for the oracle, but a graph that does the arithmetic
// in another order, or with folded constants, rounds elsewhere: some units in the last place are
// no difference.
double ComputedBound(int32_t type, double r, double slack) {
  const double units = IsHalfType(type) ? 2.0 : 4.0;
  return std::isfinite(r) ? std::max(slack, units * EpsilonOf(type) * std::fabs(r)) : slack;
}

}  // namespace

std::vector<int64_t> ElementAt(const exec::Shape& shape, int64_t flat) {
  std::vector<int64_t> element(shape.size());
  for (int k = static_cast<int>(shape.size()) - 1; k >= 0; --k) {
    element[k] = flat % shape[k];
    flat /= shape[k];
  }
  return element;
}

double EpsilonOf(int32_t type) {
  switch (type) {
    case TensorProto::DOUBLE:
      return std::ldexp(1.0, -52);
    case TensorProto::FLOAT16:
      return std::ldexp(1.0, -10);
    case TensorProto::BFLOAT16:
      return std::ldexp(1.0, -7);
    default:
      return std::ldexp(1.0, -23);
  }
}

bool SameBytes(const exec::View& a, const exec::View& b) {
  return a.type == b.type && a.shape == b.shape &&
         (a.bytes() <= 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0);
}

bool SameNumbers(const exec::View& a, const exec::View& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  if (SameBytes(a, b)) return true;
  for (int64_t i = 0; i < a.size(); ++i) {
    if (exec::ElementAsDouble(a, i) != exec::ElementAsDouble(b, i)) return false;
  }
  return true;
}

Comparison Compare(const exec::View& reference, const exec::View& actual, int source_nodes,
                   const exec::View& slack) {
  Comparison c;
  if (reference.type != actual.type || reference.shape != actual.shape) {
    c.bitwise = false;
    c.difference =
        Difference{{},
                   0,
                   0,
                   fmt::format("{} {} instead of {} {}", ElementTypeName(actual.type),
                               exec::ShapeString(actual.shape), ElementTypeName(reference.type),
                               exec::ShapeString(reference.shape))};
    return c;
  }
  if (SameBytes(reference, actual)) {
    if (!IsFloatType(reference.type)) return c;
  }
  const int64_t size = reference.size();
  const bool real = IsFloatType(reference.type);
  int64_t nans = 0;
  for (int64_t i = 0; real && i < size; ++i) {
    if (!std::isnan(exec::ElementAsDouble(reference, i))) continue;
    ++nans;
    if (!std::isnan(exec::ElementAsDouble(actual, i))) {
      c.source_not_finite = true;
      return c;
    }
  }
  c.judged = nans < size || size == 0;
  const double eps = EpsilonOf(reference.type);
  c.bound = real ? FixedBound(reference.type, source_nodes, LargestOf(reference)) : 0;
  const bool computed = real && slack.shape == reference.shape && !slack.absent();
  double worst = -1;  // the largest |difference| / bound
  int64_t worst_at = 0;
  double worst_bound = c.bound;
  for (int64_t i = 0; i < size; ++i) {
    const double r = exec::ElementAsDouble(reference, i), a = exec::ElementAsDouble(actual, i);
    if (std::isnan(r)) continue;
    const double delta = r == a ? 0 : std::isfinite(a) ? std::fabs(r - a) : HUGE_VAL;
    if (delta == 0) continue;
    c.bitwise = false;
    c.max_abs = std::max(c.max_abs, delta);
    if (r != 0 && std::isfinite(r)) c.max_rel = std::max(c.max_rel, delta / std::fabs(r));
    const double ulp = std::ldexp(eps, std::ilogb(std::clamp(std::fabs(r), 1e-30, 1e300)));
    c.max_ulp = std::max(c.max_ulp, delta / ulp);
    const bool known = computed && std::isfinite(slack.as<double>()[i]);
    const double bound = known ? ComputedBound(reference.type, r, slack.as<double>()[i]) : c.bound;
    const double ratio = bound > 0 ? delta / bound : HUGE_VAL;
    if (known) {
      c.ratio = std::max(c.ratio, ratio);
    } else {
      c.fixed = true;
    }
    if (ratio > worst) {
      worst = ratio;
      worst_at = i;
      worst_bound = bound;
    }
  }
  c.bound = worst_bound;
  if (worst > 1) {
    const double r = exec::ElementAsDouble(reference, worst_at);
    const double a = exec::ElementAsDouble(actual, worst_at);
    c.difference = Difference{ElementAt(reference.shape, worst_at), r, a,
                              fmt::format("{:.9g} instead of {:.9g}", a, r)};
  }
  return c;
}

Comparison CompareNarrowly(const exec::View& reference, const exec::View& actual, int source_nodes,
                           const exec::View& /*slack*/) {
  const exec::Tensor none = exec::Tensor::Zeros(onnx::TensorProto::DOUBLE, reference.shape);
  return Compare(reference, actual, source_nodes, none.view());
}

exec::Tensor BoundsOf(const exec::View& reference, int source_nodes, const exec::View& slack) {
  exec::Tensor bounds = exec::Tensor::Zeros(TensorProto::DOUBLE, reference.shape);
  if (!IsFloatType(reference.type)) return bounds;
  const double fixed = FixedBound(reference.type, source_nodes, LargestOf(reference));
  const bool computed = slack.shape == reference.shape && !slack.absent();
  for (int64_t i = 0; i < reference.size(); ++i) {
    const double r = exec::ElementAsDouble(reference, i);
    const bool known = computed && std::isfinite(slack.as<double>()[i]);
    bounds.span<double>()[i] = std::isnan(r) ? std::numeric_limits<double>::quiet_NaN()
                               : known ? ComputedBound(reference.type, r, slack.as<double>()[i])
                                       : fixed;
  }
  return bounds;
}

}  // namespace kvlift
