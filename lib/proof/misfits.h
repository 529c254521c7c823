// What the conversion's operators would refuse, or do otherwise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"

namespace kvlift {

// Names of values, and what is not so of each.
using Misfits = std::vector<std::pair<std::string, std::string>>;

// Conditions of the conversion's own operators that do not follow from those of the source's, from
// the relation and from P + S rows fitting into the slots: sizes that have to be equal, places that
// have to be inside, axes that may not be empty. The conversion would stop, or broadcast, where the
// source runs.
Misfits MisfitsOf(const GraphPair& pair, const Correspondence& twins, Equality& equality);
// Whether a condition of the conversion's forms is one that misfits tell of: what an operator
// refuses, or does otherwise. The ledger has what is left: that data is finite, and places that
// differ by element, which are looked up.
bool MustFit(sym::Expr condition, sym::AssumptionReason reason);
// Whether the condition says that a size of an input is not 0: a step has a sequence and a token.
bool IsOfNoEmptyStep(sym::Forms& forms, sym::Expr condition);
// Whether the condition is one about sizes that every step with a sequence and a token satisfies.
// past: the length that may be 0; null if there is none.
bool HoldsInEveryStep(sym::Forms& forms, sym::Expr condition, sym::Expr past);
// Whether an attention of the conversion is told of more valid keys than it has.
bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after);

}  // namespace kvlift
