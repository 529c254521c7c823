#include "proof/graphs/proof.h"

#include <algorithm>

namespace kvlift {

std::string_view WordOf(FactStatus status) {
  switch (status) {
    case FactStatus::kProved:
      return "proved";
    case FactStatus::kGiven:
      return "given";
    case FactStatus::kRefuted:
      return "refuted";
    case FactStatus::kOpen:
      break;
  }
  return "open";
}

bool HoldsWhole(const Proof& proof) {
  return proof.not_tried.empty() && !proof.facts.empty() &&
         std::all_of(proof.facts.begin(), proof.facts.end(),
                     [](const ProofFact& fact) { return fact.holds(); });
}

}  // namespace kvlift
