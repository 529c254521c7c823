#include "verify/judge/prove_alone.h"

#include <string>
#include <utility>

#include "base/status.h"
#include "proof/prove/prove_conversion.h"
#include "verify/inputs/adapted_layouts.h"
#include "verify/inputs/added_sequences.h"
#include "verify/variants/quantized.h"

namespace kvlift {
namespace {

Proof NotTried(const absl::Status& status) {
  Proof proof;
  proof.not_tried = std::string(status.message());
  return proof;
}

// Proves the model without quantisation against the source, and the values and scales that the
// model stores against their definition.
absl::StatusOr<Proof> ProveQuantized(const Model& before, const Model& after,
                                     const Manifest& relation) {
  const DeclaredSizes sizes(*before.proto, *after.proto);
  const auto parts = TakeApart(after, relation);
  if (!parts.ok()) return NotTried(parts.status());
  KV_ASSIGN_OR_RETURN(Proof proof, ProveAlone(before, parts->plain, parts->plain_relation));
  const Proof stored =
      ProveConversion(*parts->defined_operators.proto, *after.proto, parts->stored_relation);
  for (ProofFact fact : stored.facts) {
    fact.text = "values and scales: " + fact.text;
    proof.facts.push_back(std::move(fact));
  }
  if (proof.not_tried.empty()) proof.not_tried = stored.not_tried;
  proof.assumptions.Add(stored.assumptions);
  return proof;
}

}  // namespace

absl::StatusOr<Proof> ProveAlone(const Model& before, const Model& after,
                                 const Manifest& relation) {
  if (LacksSequences(relation)) {
    const auto adapted = AddSequences(before, relation);
    if (!adapted.ok()) return NotTried(adapted.status());
    return ProveAlone(adapted->before, after, adapted->relation);
  }
  if (HasQuantizedCaches(relation)) return ProveQuantized(before, after, relation);
  if (HasGroups(relation)) {
    const auto adapted = AdaptSource(before, after, relation);
    if (!adapted.ok()) return NotTried(adapted.status());
    return ProveAlone(adapted->before, after, adapted->relation);
  }
  return ProveConversion(*before.proto, *after.proto, relation);
}

}  // namespace kvlift
