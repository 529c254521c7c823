// Compares pieces (layer_pieces.h) by a text in which names and the numbers of weights do not
// appear.
#pragma once

#include <string>

#include "verify/layers/layer_pieces.h"

namespace kvlift {

// Returns a text that is equal for two pieces only if they differ in nothing but the names of
// values and the numbers of weights. It holds operators and attributes, constants that are not
// weights with their values (a digest above 512 bytes), declared types, the relation's entries, and
// which weights of the source and of the conversion have the same bytes.
std::string TextOfPair(const ModelPiece& piece);

// Returns true if both models of the piece have the same nodes by name, attributes and operands,
// with the same meaning in both opsets, and the same initialisers.
bool HasSameNodes(const ModelPiece& piece);

}  // namespace kvlift
