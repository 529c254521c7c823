// Reads the weights of an attention that is written out: the softmax that gives them, and what
// stands between it and their product with the values.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "rewrite/recognise/attention/score.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The softmax that gives an element of the probabilities, behind nodes that pass it on, behind
// Where(IsNaN(p), 0, p), and behind a mask with a division by the sum of what it leaves.
struct Probabilities {
  NodeId softmax = kNoNode;
  ValueId scores = kNoValue;  // the operand of the softmax
  std::vector<sym::Expr> args;
  // A predicate that says which keys a mask behind the softmax leaves visible; null if there is no
  // such mask.
  sym::Expr keep = nullptr;
  bool nan_guard = false;
  Roundings roundings;
  std::vector<NodeId> nodes;
};
// Returns a result without a softmax (kNoNode) if `e` is no such element.
Probabilities ReadProbabilities(sym::Forms& forms, sym::Expr e, const sym::Facts& facts);

// The scores of a softmax along its last axis: those of the keys, and perhaps that of a sink in
// front of them or behind them.
struct SoftmaxRow {
  bool read = false;
  sym::Expr sink = nullptr;  // the index of the sink; null: the softmax has no sink
};
// Reads the row of the softmax that gives the probability of key t among `keys`.
SoftmaxRow ReadSoftmaxRow(sym::Forms& forms, const Probabilities& p, sym::Expr t, sym::Expr keys);

}  // namespace kvlift
