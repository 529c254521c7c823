// Lemma sink-key. Let k and v have one more row, of zeros, and let a bias b be added to the scores
// of that key. For each query q with finite elements,
//
//   sum over t of softmax([scale * q k, b])[t] v[t] = softmax([x, b]) without its last weight,
//   times v
//
// with x the scores of the other keys: the product of q with zeros is 0, a softcap keeps 0, and the
// weight of the sink is multiplied by 0. Side conditions: key and value of the row are both zeros;
// the row is the last one; its bias is no mask that hides it, and nothing else hides it, so that no
// causal order is given, and valid lengths, if given, count all keys; and queries are finite, which
// enters the ledger. A row without other keys gives 0 in both, unless its sink is -inf: the
// operator then gives 0, and the softmax NaN. That a sink whose value is not known is more than
// -1e4 enters the ledger. Source: ONNX Attention-24.
#pragma once

#include <string>

#include "contract/assumptions.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns true if the elements of a row of keys and of a row of values are zeros. False if either
// is null.
bool IsRowOfSink(sym::Expr key, sym::Expr value);
// Returns true if a sink is shown to be more than -1e4 for each query head.
bool IsSinkInReach(sym::Forms& forms, sym::Expr sink);
// Returns the ledger entry that the sink of an attention is more than -1e4 for each query head.
// `attention` is the name of the attention's result.
Assumption SinkIsInReach(const std::string& attention);

}  // namespace kvlift
