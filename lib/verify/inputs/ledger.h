// Makes the entries that `verify` adds to the ledger of assumptions (contract/assumptions.h):
// claims of the relation, and restrictions of the source's feeds.
// Also keeps feeds to what the ledger says of the source's inputs (contract/fed_rules.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "contract/fed_rules.h"
#include "contract/manifest.h"
#include "exec/session/session.h"
#include "ir/graph.h"
#include "verify/inputs/input_meanings.h"
#include "verify/inputs/step.h"

namespace kvlift {

// Returns the relation's claims about hosts and models. A claim that the two graphs show to be true
// is marked as checked.
Assumptions ClaimsOf(const Manifest& relation, const Graph& source, const Graph& after);

// Returns a sentence about the first claim of the relation that the converted model contradicts (a
// capacity, or linear and circular writes), or empty.
std::string Contradiction(const Manifest& relation, const Graph& after);

// Returns the inputs of which neither model reads more than the shape, by the source's names.
std::vector<std::string> InputsReadForShapes(const Manifest& relation, const Graph& source,
                                             const Graph& after);
// Returns the restrictions of what the source was fed: mask widths and values, positions, flags,
// finite numbers. free: inputs that were fed any values, or whose values no node reads; these have
// no entry for values.
Assumptions RestrictionsOf(const SourceInterface& interface, const std::vector<std::string>& free);

// Returns an unchecked entry with the source kPlan, for a condition that no plan runs.
Assumption NotRun(AssumptionKind kind, std::string subject, std::string condition);

// Returns the condition of the ledger that the feeds of a step break; empty if they are not seen to
// break any.
std::string RuleBrokenBy(const StepSpec& step, const exec::Feeds& feeds, const FedRules& rules);

// Adds readings that keep to the rules where a guessed one does not: an axis that has one size for
// all sequences is no axis of sequences or tokens, and numbers that would leave their bounds in a
// cache of `capacity` slots are any numbers within these bounds. Such readings come first; whether
// the source runs with them is left to source_probe.h. `source`: the graph whose inputs these are.
void AddReadingsWithinRules(const FedRules& rules, const Graph& source, const Manifest& relation,
                            int64_t capacity, SourceInterface* interface);

}  // namespace kvlift
