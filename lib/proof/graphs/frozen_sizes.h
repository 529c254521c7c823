// The restriction of a source to the sizes that a converted model declares as numbers.
//
// A model with static shapes runs steps of one size only, and equals its source in those. The
// source leaves the sizes open, and is therefore compared as if it declared the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A dimension that the source names (dim_param) and the converted model declares as a number.
struct FrozenSize {
  std::string name;
  int64_t size = 0;

  friend bool operator==(const FrozenSize&, const FrozenSize&) = default;
};

// Returns the sizes that are numbers at inputs of `after` and names at the inputs of `before` which
// correspond to them, each name once, in the order of the relation. The lengths of pasts that grow
// are never among them.
std::vector<FrozenSize> FrozenSizesOf(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                      const Manifest& relation);

// Returns the model whose inputs declare the numbers instead of the names, also as summands: with
// S = 4 "P + S" becomes "P + 4".
onnx::ModelProto WithSizes(const onnx::ModelProto& model, const std::vector<FrozenSize>& sizes);

// Returns the converted model whose inputs leave the numbers of sequences and tokens open, for
// judgements about the source for which the result only has to be there.
onnx::ModelProto WithOpenSizes(const onnx::ModelProto& after, const Manifest& relation);

// Returns the ledger's entries: a verdict about the restricted source says nothing of other sizes.
Assumptions RestrictionsTo(const std::vector<FrozenSize>& sizes);

}  // namespace kvlift
