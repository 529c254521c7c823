// Entries of the ledger of assumptions that verify makes: what the relation claims, and how the
// inputs of the source are fed.
#pragma once

#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "verify/readings.h"

namespace kvlift {

// What the relation says of hosts and models. Claims that the two graphs show to be true are
// checked.
Assumptions ClaimsOf(const Manifest& relation, const Graph& source, const Graph& after);

// A claim of the relation that the graphs contradict, in words; empty: none.
std::string Contradiction(const Manifest& relation, const Graph& after);

// What is fed to inputs that cannot be fed freely. An input of `free` was fed all that it can hold.
Assumptions RestrictionsOf(const SourceInterface& interface, const std::vector<std::string>& free);

// An entry for steps that no plan has.
Assumption NotRun(AssumptionKind kind, std::string subject, std::string condition);

}  // namespace kvlift
