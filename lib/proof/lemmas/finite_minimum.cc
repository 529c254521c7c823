#include "proof/lemmas/finite_minimum.h"

#include "fmt/format.h"

namespace kvlift {

Assumption ScoresAreNear(const std::string& attention, const std::set<double>& numbers) {
  constexpr double kNothing = 745;     // exp(-745) is the last number above 0, in float64
  constexpr double kBeyondAll = 1e30;  // no score of a model that works
  const double distance = -*numbers.rbegin() - kNothing;
  const bool finite = distance > kBeyondAll;
  return {finite ? AssumptionKind::kFinite : AssumptionKind::kScoreRange, attention,
          fmt::format("the scores of a query of {} differ by less than {}", attention,
                      finite ? kBeyondAll : distance),
          AssumptionSource::kHost};
}

}  // namespace kvlift
