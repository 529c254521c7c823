#include "oracle/core/sums.h"

#include <algorithm>
#include <limits>

#include "oracle/core/op.h"

namespace kvlift::oracle {

Number Sum::Carried(int32_t type, double more) const {
  const double u = SumUnitOf(type);
  if (!std::isfinite(value_)) return {value_, 0, 0};
  // A sum of whole numbers with few enough digits is the same in every order.
  if (exact_ && more == 0 && sizes_ * u < 1) return {value_, 0, 0};
  const double roundings = static_cast<double>(std::max<int64_t>(0, count_ - 1)) + more;
  if (roundings == 0) return {value_, worst_, std::sqrt(variance_)};
  const double carried = u * std::sqrt(roundings) * sizes_near_;
  return {value_, worst_ + Gamma(roundings, u) * sizes_, std::sqrt(variance_ + carried * carried)};
}

Number Sum::Result(int32_t type, double more) const {
  const Number n = Carried(type, more);
  if (UnitOf(type) >= SumUnitOf(type) * 2 || n.exact()) return Rounded(n, type);
  return Limited(n, type);
}

namespace {

// Returns how far each weight may be off, with all scores off by kDeviations at once, where the
// scores are off by more than a derivative can describe. Empty if no score is.
std::vector<double> FarSpreads(const std::vector<Number>& row, const std::vector<double>& chance,
                               double top, double u) {
  constexpr double kLinear = 0.5;
  std::vector<double> moved(row.size());
  double largest = 0, low = 0, high = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double below = row[i].value - top;
    if (!std::isfinite(below)) continue;
    moved[i] = kDeviations * std::hypot(row[i].spread, u * below);
    if (chance[i] > 0 || std::exp(below + moved[i]) > 0) largest = std::max(largest, moved[i]);
    low += std::exp(below - moved[i]);
    high += std::exp(below + moved[i]);
  }
  if (!(largest > kLinear)) return {};
  std::vector<double> spreads(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    const double below = row[i].value - top;
    if (!std::isfinite(below)) continue;
    const double most = low > 0 ? std::min(1.0, std::exp(below + moved[i]) / low) : 1.0;
    const double least = std::isfinite(high) ? std::exp(below - moved[i]) / high : 0;
    spreads[i] = std::max(most - chance[i], chance[i] - least);
  }
  return spreads;
}

}  // namespace

void SoftmaxRow(std::vector<Number>& row, int32_t type) {
  const double u = SumUnitOf(type), n = static_cast<double>(row.size());
  double top = -HUGE_VAL;
  for (const Number& x : row) top = std::max(top, x.value);
  double sum = 0, low = 0, high = 0, mixed = 0;
  // Masked keys (-inf) have no part in the sum.
  const auto hidden = [&](const Number& x) { return std::isinf(x.value) && x.value < top; };
  for (const Number& x : row) {
    if (hidden(x)) continue;
    sum += std::exp(x.value - top);
    // The difference to the largest score is rounded too.
    const double moved = x.worst + u * (std::fabs(x.value - top) + x.worst);
    low += std::isinf(moved) ? 0 : std::exp(x.value - top - moved);
    high += std::exp(x.value - top + moved);
  }
  const double relative = Gamma(n + 8, u), spread = u * std::sqrt(n + 8);
  std::vector<double> chance(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    chance[i] = std::exp(row[i].value - top) / sum;
    const double moved =
        std::hypot(row[i].spread, chance[i] == 0 ? 0 : u * std::fabs(row[i].value - top));
    const double part = chance[i] == 0 ? 0 : chance[i] * moved;
    mixed += part * part;
  }
  const std::vector<double> wide = FarSpreads(row, chance, top, u);
  for (size_t i = 0; i < row.size(); ++i) {
    const double p = chance[i];
    Number& x = row[i];
    if (std::isnan(p) || hidden(x)) {
      x = {p, 0, 0};
      continue;
    }
    const double moved = x.worst + u * (std::fabs(x.value - top) + x.worst);
    const double most = low > 0 ? std::min(1.0, std::exp(x.value - top + moved) / low) : 1.0;
    const double least =
        std::isinf(moved) || std::isinf(high) ? 0 : std::exp(x.value - top - moved) / high;
    double worst = std::max(most - p, p - least);
    if (std::isnan(worst)) worst = 1;
    const double far = p == 0 ? 0 : std::hypot(x.spread, u * std::fabs(x.value - top));
    const double own = p == 0 ? 0 : p * (1 - p) * far;
    const double others = std::max(0.0, mixed - (p * far) * (p * far));
    const double tiny = TinyOf(type);
    Number y{p, worst + relative * (p + worst) + tiny,
             std::sqrt(own * own + p * p * others + p * spread * p * spread) + tiny};
    if (!wide.empty()) y.spread = std::max(y.spread, wide[i]);
    y.spread = std::min(y.spread, 1.0);
    // A weight that underflows in every case is 0.
    if (p == 0 && most == 0) y = {0, 0, 0};
    x = UnitOf(type) >= 2 * SumUnitOf(type) ? Rounded(y, type) : y;
  }
}

}  // namespace kvlift::oracle
