// What pads can do to a conversion: a query that sees no key comes out of Attention-24 as 0 and not
// as an average, and tokens of a prompt must not see the pads behind it.
#pragma once

#include <optional>
#include <string>

#include "rewrite/plan_state.h"

namespace kvlift::internal {

// keep(b, h, s, t) and start name the past's length alike.
struct MaskOfSite {
  const AttentionSite& site;
  const CacheUpdate& key;
  sym::Expr keep;
  sym::Expr start;
};

// keep implies that t <= bound.
bool Implies(PlanState& s, const MaskOfSite& mask, sym::Expr bound);

// Some part of e reads an input at the key's index: the host tells which keys are there.
bool ReadsHostMask(const PlanState& s, sym::Expr e);

// Each query sees one key at least, but for what the host hides.
bool SeesSomeKey(PlanState& s, const MaskOfSite& mask);

// Later tokens are hidden from each query, by the mask or by the host.
bool HidesLater(PlanState& s, const MaskOfSite& mask);

// The same of an attention that no rule could read: something that is added to its scores, or
// selected instead of them, hides later tokens; or the host gives a mask; or a step has one token.
bool MayHideLater(PlanState& s, NodeId attention);

// A query that sees no key may come out otherwise in one layer, and the row that is computed from
// it is seen by another layer, which does not hide the same keys, or by what takes in all tokens.
bool PadsLeak(PlanState& s);

}  // namespace kvlift::internal
