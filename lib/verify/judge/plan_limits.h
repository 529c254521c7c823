// Finds the limits of the steps of plans: the capacity of the caches, and what the source and the
// relation allow.
#pragma once

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "verify/inputs/stimulus.h"
#include "verify/steps/drive.h"
#include "verify/steps/plans.h"
#include "verify/steps/source_probe.h"

namespace kvlift {

// Sets the limits that follow from the caches of the relation and from the converted model, whose
// caches have the axes that the relation says (verify/inputs/relation_check.h). Also sets
// the number of slots of caches of a fixed size in the driver (Driver::FixSlots).
void LimitByCaches(const Manifest& relation, const Graph& after, Driver* driver,
                   PlanLimits* limits);

// Sets the limits that follow from the source's inputs, from the steps that it runs, and from the
// relation's preconditions.
void LimitBySource(const Manifest& relation, const Stimulus& stimulus, const SourceFacts& facts,
                   PlanLimits* limits);

// Sets the limits that follow from what a proof says of padding tokens. Returns true if, by the
// proof, no step has padding tokens.
bool LimitByProof(const Assumptions& ledger, PlanLimits* limits);

}  // namespace kvlift
