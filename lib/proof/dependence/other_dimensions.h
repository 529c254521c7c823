// Finds the axes of inputs whose extents nothing ties to the lengths of sequences.
//
// A converted model with one write index per sequence takes sequences of different lengths, and
// padding tokens behind the shorter ones; the source runs once for each sequence alone. An input
// of both is then the same tensor, apart from axes of sequences, of new tokens and of keys. That
// needs every other axis to be of one size in all of these runs. For the output of an encoder it
// is. For a mask it is an assumption, unless an operator of the source needs P + S columns: the
// largest element of a mask's row may be that of a padding token.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// An axis of a graph input of the source.
struct InputAxis {
  std::string input;
  int axis = 0;
};

// Returns the axes of inputs that nodes read and that are no caches, in the order of the inputs,
// whose extents depend on a dimension that is neither B, P or S nor an extent of a cache.
std::vector<InputAxis> OtherDimensions(const GraphPair& pair, const Correspondence& twins,
                                       const Manifest& relation);

}  // namespace kvlift
