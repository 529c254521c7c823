// Lemma written-softmax. For a row x of scores,
//
//   Exp(x - max(x)) / ReduceSum(Exp(x - max(x))) = softmax(x)
//
// by the text of Softmax-13. Side conditions: both reductions are over the axis of the softmax, and
// the sum is that of the row that is divided. Source: ONNX ReduceMax-20, ReduceSum-13.
//
// Lemma renormalised-weights. For p = softmax(x), a mask m of zeros and ones, and a row in which m
// leaves a key,
//
//   p[t] * m[t] / sum(p * m) = softmax of x over the keys that m leaves
//
// because the sum of the exponentials cancels. Side conditions: the sum is that of the same row;
// the softmax has no sink, which would cancel as well; all of it is computed in float32 or float64;
// and the weights of the keys that are left do not vanish beside those of the others, which enters
// the ledger: in float32, exp(d) / 2^20 is normal for d >= -73, and no axis is longer than 2^20
// where the models declare no longer one (sym::MostSize).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "contract/assumptions.h"
#include "proof/graphs/grounds.h"
#include "sym/forms/row_softmax.h"

namespace kvlift {

// Returns the scores of the softmax over the last axis that `node` gives; kNoValue if it gives
// none. Adds the first lemma to `grounds` if the softmax is written out.
ValueId SoftmaxOperand(sym::Forms& forms, NodeId node, Grounds* grounds);
// Reads an element of masked weights, and adds the second lemma to `grounds`; nullopt for other
// elements.
std::optional<sym::Renormalised> ReadRenormalisedWeights(sym::Forms& forms, sym::Expr element,
                                                         const sym::Facts& facts, Grounds* grounds);
// Returns the last side condition of the second lemma as a ledger entry. `attention` is the name of
// the attention's result, `type` (TensorProto::DataType) that of the softmax.
Assumption VisibleKeysKeepWeight(const std::string& attention, int32_t type);

}  // namespace kvlift
