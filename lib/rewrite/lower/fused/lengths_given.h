// Checks that the lengths that a host gives an attention operator with a growing past are those of
// the past and of the new tokens.
#pragma once

#include <string>
#include <vector>

#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {

// A node, and the positions of four of its inputs: past keys [B, Nk, P, D], queries [B, S, ...],
// the slot of the last token of each sequence [B], and the length of the longest sequence with its
// new tokens.
struct LengthsGiven {
  NodeId node = kNoNode;
  int past = 0, query = 0, last = 0, total = 0;
  sym::Expr rows = nullptr;  // P; null: the rows that the past declares
};

// Returns why the last slots are not P + S - 1, or the longest length is not P + S, as the end of a
// sentence; empty if they are. Masks that the lengths count are assumed to be all ones and P + S
// wide, and are added to *masks.
std::string WhyNotWholeLengths(Lowering& l, const LengthsGiven& given, std::vector<ValueId>* masks);

}  // namespace kvlift::fused
