// Finds operators of the converted model that might refuse to run, or might broadcast, where the
// source runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/attention_reading.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// The name of each value whose operator may not run as expected, and the condition that is not
// shown.
using UnmetConditions = std::vector<std::pair<std::string, std::string>>;

// Returns the conditions of the converted model's own operators that are not shown: sizes that must
// be equal, writes that must lie inside a buffer, axes that must not be empty, integers that must
// be small. The conditions that data is finite (kFinite) and that a declared size is right
// (kDeclared) are never among them. That indices which differ by element lie inside is among them
// only if they are read from a tensor. A condition is shown if it follows from the conditions of
// the source's operators, from the manifest, and from P + S rows fitting into the slots.
UnmetConditions UnmetConditionsOf(const GraphPair& pair, const Correspondence& twins,
                                  Equality& equality);
// Returns true if the assumption enters the ledger wherever it is made. Such assumptions say that
// data is finite, that declared sizes are right, or that indices which differ by element lie inside
// (proof/facts/lookups.h).
bool EntersLedger(const sym::FormAssumption& assumption);
// Returns true if the condition says that a size of an input is at least 1, which holds because a
// step has at least one sequence and one token.
bool HoldsForNonEmptyStep(sym::Forms& forms, sym::Expr condition);
// Returns true if the condition is about sizes and holds in every step with at least one sequence
// and one token. `past`: the length that may be 0; null if there is none.
bool HoldsInEveryStep(sym::Forms& forms, sym::Expr condition, sym::Expr past);
// Returns true if an attention always gets more valid keys (nonpad_kv_seqlen) than it has.
bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after);

// Returns true if two extents that an attention needs to be equal (AttentionReading::equal_extents)
// may differ. The relation says of some inputs that an axis holds the same for all indices (the
// heads of a tree mask), or that they have one number for each sequence (the valid lengths).
bool MayDiffer(const GraphPair& pair, const Correspondence& twins, Equality& equality,
               const AttentionReading& after, sym::Expr x, sym::Expr y);

}  // namespace kvlift
