#include "proof/facts/required_inputs.h"

#include <vector>

#include "fmt/format.h"

namespace kvlift {

Grounds RequiredInputs::GroundsOf(ValueId of_source) {
  Grounds grounds;
  for (const auto& [value, input, all] : pair_.required()) {
    if (value == kNoValue || !DependsOn(of_source, value)) continue;
    const bool zeros = all == AllElements::kZeros;
    grounds.given.Add({zeros ? AssumptionKind::kAllZeros : AssumptionKind::kAllOnes, input,
                       fmt::format("{} is all {}", input, zeros ? "zeros" : "ones"),
                       AssumptionSource::kManifest});
  }
  return grounds;
}

bool RequiredInputs::DependsOn(ValueId value, ValueId input) {
  auto& behind = behind_[input];
  if (behind.empty()) {
    behind.insert(input);
    std::vector<ValueId> open = {input};
    while (!open.empty()) {
      const ValueId next = open.back();
      open.pop_back();
      for (const Use& use : graph_.uses(next)) {
        if (use.kind != Use::Kind::kNodeInput) continue;
        for (ValueId output : graph_.outputs(use.node)) {
          if (output != kNoValue && behind.insert(output).second) open.push_back(output);
        }
      }
    }
  }
  return behind.contains(value);
}

}  // namespace kvlift
