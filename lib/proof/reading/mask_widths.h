// Finds masks of the source whose shape no operator checks: they have a column for each key, and
// perhaps a row for each sequence, only because the host feeds them so.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// One such mask.
struct MaskSizes {
  std::string input;  // the name of the source's input
  // The extent of the axis that is indexed by the sequence; null if there is no such axis.
  sym::Expr rows = nullptr;
  // The extent of the axis that is indexed by the key.
  sym::Expr columns = nullptr;
};

// Returns the inputs that an attention of the source over a growing cache reads at the number of
// the key, along an axis whose size is one of `sizes`. Each size is returned once.
std::vector<MaskSizes> SizesOfMasks(const GraphPair& pair, const Manifest& relation,
                                    std::set<sym::DimSymbol> sizes);

}  // namespace kvlift
