#include "verify/verify.h"

namespace kvlift {

bool Accepts(VerdictKind verdict, Accept accept) {
  switch (verdict) {
    case VerdictKind::kEqual:
    case VerdictKind::kEqualWithinQuantization:
      return true;
    case VerdictKind::kEqualAsTested:
      return accept == Accept::kTested;
    default:
      return false;
  }
}

const ProofFact* FirstThatFails(const Proof& proof) {
  const ProofFact* open = nullptr;
  for (const ProofFact& fact : proof.facts) {
    if (fact.status == FactStatus::kRefuted) return &fact;
    if (!fact.holds() && open == nullptr) open = &fact;
  }
  return open;
}

}  // namespace kvlift
