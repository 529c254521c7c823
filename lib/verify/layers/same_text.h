// Whether pieces of a source and its conversion are the same but for names and weights.
#pragma once

#include <string>

#include "verify/layers/pieces.h"

namespace kvlift {

// A text that is equal for two pieces whose models differ only in the names of values and in the
// numbers of weights: the operators with their attributes, small constants and integers with their
// values, declared types, the roles of inputs and outputs, and which weights of the two models are
// the same bytes.
std::string TextOfPair(const ModelPiece& piece);

// Whether both models of the piece apply the same operators to the same inputs and weights.
bool HasSameNodes(const ModelPiece& piece);

}  // namespace kvlift
