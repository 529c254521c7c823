// The restriction of a source to the sizes that a converted model declares as numbers.
//
// A model with static shapes runs steps of one size only, and equals its source in those. The
// source leaves the sizes open, and is therefore compared as if it declared the same numbers.
#pragma once

#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "ir/declared_sizes.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the sizes that are numbers at inputs of `after` and names at the inputs of `before` which
// correspond to them, each name once, in the order of the relation. The lengths of pasts that grow
// are never among them.
std::vector<NamedSize> FrozenSizesOf(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                     const Manifest& relation);

// Returns the sizes that operators of the model itself fix (sym/sizes/fixed_sizes.h); empty for a
// model that is not well-formed or has an opset below 13. They restrict nothing.
std::vector<NamedSize> SizesFixedByOperators(const onnx::ModelProto& model);

// Returns the converted model without the numbers that its inputs declare, apart from the sizes of
// caches (other than B) and of masks that are padded to the capacity. It is used with the
// unrestricted source (proof/prove/unrestricted_source.h).
onnx::ModelProto WithOpenSizes(const onnx::ModelProto& after, const Manifest& relation);

// Returns one ledger entry per size, since a verdict about the restricted source says nothing about
// other sizes. The entry is of kind kDimension if `before` has the size only on axes of heads or
// elements of its caches, and kFrozenSize otherwise.
Assumptions RestrictionsTo(const std::vector<NamedSize>& sizes, const onnx::ModelProto& before,
                           const Manifest& relation);

}  // namespace kvlift
