// Lemma hidden-keys. Where a query s sees no key t with t >= T
//
//   attention over the keys t < M of (q, k, v)[s] = attention over the keys t < T of (q, k, v)[s]
//
// for a key that is not seen has the weight 0. Side conditions: no key in [T, M) is seen, and none
// in [M, T) either where M may be smaller; what the weight 0 is multiplied by is finite (KV302 in
// the ledger), and so are products of queries and keys (proof/lemmas/scale_moved.h), for -inf that
// is added to infinity or NaN hides nothing. Source: ONNX's texts of Softmax and of Attention-24.
#pragma once

#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/equality.h"

namespace kvlift {

// `visible`, translated, of the keys that the conversion has: the source's keys behind its last are
// not seen. facts: with the source's number of keys. Null if it is not known how many it has.
sym::Expr VisibleWhereThereAreKeys(const Correspondence& twins, Equality& equality, sym::Pool& pool,
                                   sym::Expr visible, const AttentionReading& after,
                                   const sym::Facts& facts);
// Which keys of the conversion are seen from number `first` on, i3 being 0 there. behind: the facts
// of the indices in it. Null if that is not known.
sym::Expr VisibleBehind(const Correspondence& twins, sym::Pool& pool, const AttentionReading& after,
                        sym::Expr first, const sym::Facts& behind);

}  // namespace kvlift
