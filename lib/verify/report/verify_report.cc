#include "verify/report/verify_report.h"

namespace kvlift {

namespace {

// Returns the rank of a verdict, 0 for the best.
int RankOf(VerdictKind verdict) {
  switch (verdict) {
    case VerdictKind::kEqual:
      return 0;
    case VerdictKind::kEqualWithinQuantization:
      return 1;
    case VerdictKind::kEqualAsTested:
      return 2;
    case VerdictKind::kInconclusive:
      return 3;
    default:
      return 4;
  }
}

}  // namespace

bool IsWorse(VerdictKind a, VerdictKind b) { return RankOf(a) > RankOf(b); }

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

void OutputResult::Merge(const OutputResult& other) {
  const int all = bitwise + other.bitwise, bounded = by_bound + other.by_bound;
  const int fixed = by_fixed_bound + other.by_fixed_bound;
  const double largest = std::max(ratio, other.ratio);
  if (name.empty() || other.max_abs > max_abs) *this = other;
  bitwise = all;
  by_bound = bounded;
  by_fixed_bound = fixed;
  ratio = largest;
}

}  // namespace kvlift
