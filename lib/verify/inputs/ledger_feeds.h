// Feeds of the source that keep to what the ledger of assumptions says of its inputs
// (proof/graphs/fed_rules.h).
#pragma once

#include <cstdint>
#include <string>

#include "contract/manifest.h"
#include "exec/session/session.h"
#include "ir/graph.h"
#include "proof/graphs/fed_rules.h"
#include "verify/inputs/input_meanings.h"
#include "verify/inputs/step.h"

namespace kvlift {

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
