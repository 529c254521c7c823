// Checks that a mask is safe to take over with padding tokens in the batch: Attention-24 gives 0
// for a query that sees no key, where the source may give an average, and the tokens of a prompt
// must not see the padding tokens behind it.
#pragma once

#include <optional>
#include <string>

#include "rewrite/judge/plan_basis.h"

namespace kvlift::internal {

// The mask of an attention. `keep` (see AttentionMask) and `start`, the slot of the first new
// token, use the same expression for the past length.
struct MaskOfSite {
  const AttentionSite& site;
  const PlannedCache& key;
  sym::Expr keep;
  sym::Expr start;
};

// Returns true if a conjunct of `keep` implies t <= start + offset, in each case of the start.
bool Implies(const PlanBasis& s, const MaskOfSite& mask, sym::Expr offset);

// Returns true if e reads a mask of the host at the index of the key: a graph input, or a value
// that is computed from graph inputs other than caches, element by element.
bool ReadsHostMask(const Analysis& a, sym::Expr e);

// Returns the value that e reads at the index of the key and that is computed from masks of the
// host element by element; kNoValue if e reads no such value. A mask of this kind stays as wide as
// the source's keys, which is one width for all sequences.
ValueId ComputedHostMask(const Analysis& a, sym::Expr e);

// Returns true if Attention-24 and the source both give 0 for a query without visible keys. With
// MaskForm::kAdditive Attention-24 gives an average of values instead, unless there is a sink.
bool KeepsRowsWithoutKeys(const AttentionSite& site, const ResolvedOptions& options);

// Returns true if each query sees at least one key, apart from keys that the host hides.
bool SeesSomeKey(const PlanBasis& s, const MaskOfSite& mask);

// Returns true if the mask, or the host, hides later tokens from each query, or if a step has one
// token.
bool HidesLater(const PlanBasis& s, const MaskOfSite& mask);

// Returns true if an attention that no rule reads may hide later tokens: by a value that is added
// to its scores or selected instead of them, by a mask of the host, or because a step has one
// token.
bool MayHideLater(const PlanBasis& s, NodeId attention);

// Returns true if a query without visible keys may differ from the source in one layer, and the row
// that is computed from it is visible to another layer, which hides other keys. Returns false if no
// step has padding tokens, since a state, or an operator that combines all tokens, reads every
// token.
bool PadsLeak(const PlanBasis& s);

}  // namespace kvlift::internal
