// Finds the axes of inputs whose extents do not follow from B, P and S.
//
// A converted model with one write index per sequence takes sequences of different lengths, and
// padding tokens behind the shorter ones; the source runs once for each sequence alone. An input
// that both models have is then fed the same elements in all of these runs, apart from its axes of
// sequences, of new tokens and of keys. That is possible only if every other axis has one size in
// all of them. The length of an encoder's output does. For the columns of a mask it is an
// assumption, unless an operator of the source requires P + S of them.
#pragma once

#include <vector>

#include "contract/fed_rules.h"
#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns the axes whose extents depend on a dimension other than B, P, S and the extents of
// caches, of those inputs of both models that a node reads and that are not caches, in the order of
// the relation.
std::vector<InputAxis> OtherDimensions(const GraphPair& pair, const Correspondence& twins,
                                       const Manifest& relation);

}  // namespace kvlift
