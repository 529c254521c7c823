// Whether the source gives each sequence of a batch what it gives that sequence alone.
//
// A conversion takes sequences of different lengths in one step, for which a source with growing
// caches is run once for each sequence. What is proved for all sequences in one run of the source
// holds for these runs only if no sequence reaches another, and if nothing depends on how many
// there are.
//
// Statement, for each value v of the source whose axis k has B * r elements: v[.., j, ..] is
// v[.., j mod r, ..] of the run of sequence j div r alone; values without such an axis are the same
// in all these runs. It is shown for a result from the elements of the operands that it is made of
// (proof/operand_places.h). A size that only data tells, such as the number of elements that are
// not zero, is the same in all these runs if the operator that gives it reads no sequence.
#pragma once

#include <string>

#include "contract/manifest.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"

namespace kvlift {

// The first output of the source for which this is not seen, and why; empty if it is seen for all
// that the relation compares, or if there is one sequence.
std::string MixedSequences(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                           const Manifest& relation);

}  // namespace kvlift
