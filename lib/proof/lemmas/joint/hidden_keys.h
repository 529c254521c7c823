// Lemma hidden-keys. If query s sees no key t with t >= T,
//
//   attention over the keys t < M of (q, k, v)[s] = attention over the keys t < T of (q, k, v)[s]
//
// because a hidden key has weight 0. Side conditions: no key in [T, M) is visible, nor one in [M,
// T) where M may be smaller; the values that the weight 0 is multiplied by are finite (KV302 in the
// ledger), and so are products of queries and keys (proof/lemmas/scale_moved.h), because -inf added
// to infinity or NaN hides nothing. Source: ONNX Softmax and Attention-24.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/attention_reading.h"

namespace kvlift {

// Restricts the translated predicate `visible` to the keys that the converted model has: the
// source's keys behind its last one must not be visible. The extent of i3 in `facts` is the
// source's number of keys. Returns null if either number of keys is not known.
sym::Expr VisibleWhereThereAreKeys(const Correspondence& twins, Equality& equality, sym::Pool& pool,
                                   sym::Expr visible, const AttentionReading& after,
                                   const sym::Facts& facts);
// Rewrites the visible predicate of the converted model so that i3 = 0 is key number `first`.
// `behind`: the extents of the indices of the rewritten predicate. Returns null if the predicate
// has no translation.
sym::Expr VisibleBehind(const Correspondence& twins, sym::Pool& pool, const AttentionReading& after,
                        sym::Expr first, const sym::Facts& behind);

}  // namespace kvlift
