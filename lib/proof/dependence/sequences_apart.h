// Shows that the source computes for each sequence of a batch what it computes for that sequence
// alone.
//
// A converted model takes sequences of different lengths in one step. A source with growing caches
// cannot; it is run once for each sequence. What is proved about one run of the source with all
// sequences holds for those runs only if no sequence influences another and nothing depends on the
// number of sequences.
//
// Statement: if axis k of a source value v has B * r elements, then v[.., j, ..] equals v[.., j mod
// r, ..] in the run of sequence j div r alone. Values without such an axis are the same in all
// runs. This is shown for each result from the elements of the operands that it is computed from
// (proof/graphs/operand_places.h). A size that depends on data, such as the number of nonzero
// elements, is the same in all runs if the operator that computes it reads no sequence.
#pragma once

#include <string>

#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Names the first output of the source for which this is not shown, and says why. Returns an empty
// string if it is shown for all outputs and caches that the manifest compares, or if the batch has
// a fixed size.
std::string FirstDependentOutput(const GraphPair& pair, const Correspondence& twins,
                                 Equality& equality, const Manifest& relation);

}  // namespace kvlift
