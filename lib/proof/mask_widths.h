// Masks with a row for each sequence and a column for each key because a host feeds them so, where
// no operator of the source needs them to be.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/pair.h"

namespace kvlift {

struct MaskSizes {
  std::string input;         // of the source
  sym::Expr rows = nullptr;  // of the axis that is read at the number of the sequence, if any
  sym::Expr columns = nullptr;
};

// Inputs that an attention of the source over a growing cache reads at the number of the key, along
// an axis whose size is one of those.
std::vector<MaskSizes> SizesOfMasks(const GraphPair& pair, const Manifest& relation,
                                    std::set<sym::DimSymbol> sizes);

}  // namespace kvlift
