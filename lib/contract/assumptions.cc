#include "contract/assumptions.h"

#include <algorithm>
#include <utility>

namespace kvlift {

std::string_view WordOf(AssumptionKind kind) {
  switch (kind) {
    case AssumptionKind::kMaskValues:
      return "mask_values";
    case AssumptionKind::kAllOnes:
      return "ones";
    case AssumptionKind::kAllZeros:
      return "zeros";
    case AssumptionKind::kPositions:
      return "positions";
    case AssumptionKind::kOneLength:
      return "uniform";
    case AssumptionKind::kMaskWidth:
      return "mask_width";
    case AssumptionKind::kDimension:
      return "dimension";
    case AssumptionKind::kTreeMask:
      return "tree_mask";
    case AssumptionKind::kCapacity:
      return "capacity";
    case AssumptionKind::kNewTokens:
      return "new_tokens";
    case AssumptionKind::kIntegerRange:
      return "integer_range";
    case AssumptionKind::kIndexRange:
      return "index_range";
    case AssumptionKind::kFinite:
      return "finite";
    case AssumptionKind::kScoreRange:
      return "score_range";
    case AssumptionKind::kVisibleKey:
      return "visible_key";
    case AssumptionKind::kPadding:
      return "padding";
    case AssumptionKind::kAlias:
      return "alias";
    case AssumptionKind::kSequences:
      return "sequences";
    case AssumptionKind::kPastFlag:
      return "past_flag";
    case AssumptionKind::kOther:
      break;
  }
  return "other";
}

std::string_view WordOf(AssumptionSource source) {
  switch (source) {
    case AssumptionSource::kManifest:
      return "manifest";
    case AssumptionSource::kPlan:
      return "plan";
    case AssumptionSource::kOperator:
      return "operator";
    case AssumptionSource::kHost:
      break;
  }
  return "host";
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
