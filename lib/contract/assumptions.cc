#include "contract/assumptions.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace kvlift {

Assumption NumbersOfCache(const std::string& input, std::string_view numbers) {
  return {AssumptionKind::kNumberType, input, fmt::format("{} holds {}", input, numbers),
          AssumptionSource::kHost, false};
}

void Assumptions::Add(Assumption assumption) {
  if (std::find(all_.begin(), all_.end(), assumption) != all_.end()) return;
  all_.push_back(std::move(assumption));
}

void Assumptions::Add(const Assumptions& others) {
  for (const Assumption& other : others.all()) Add(other);
}

bool Assumptions::Has(AssumptionKind kind, std::string_view subject) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Assumption& a) { return a.kind == kind && a.subject == subject; });
}

}  // namespace kvlift
