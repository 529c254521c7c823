// Finds names of sizes (dim_param) that operators make equal.
//
// Some exporters give each axis of each input a name of its own, although a ScatterND or Concat
// that reads them runs with equal extents only. One name for equal sizes excludes no step that the
// model can run.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// New names of sizes (dim_param) by their old ones.
using SizeNames = absl::flat_hash_map<std::string, std::string>;

// Replaces the keys of `names` by their values where inputs of the graph declare them as the name
// of a size. Names that are part of an expression, such as "P + S", stay.
void RenameSizes(const SizeNames& names, onnx::GraphProto* graph);

// Returns new names for those sizes of graph inputs that an operator makes equal to another in
// every run, as far as `forms` has computed the forms behind it: the name that an earlier input
// declares. Returns an empty map if no two such sizes are made equal.
SizeNames EqualNamesOf(const Forms& forms);

// Finds inputs [X, Y] of which the model reads one row for each of B sequences, where B is a size
// that inputs declare, and returns the new name B for X. Either a Reshape makes them [B, X * Y div
// B], which X = B makes [B, Y], or a Gather or GatherND reads the rows 0 to B - 1 of a mask, of
// which there may be more, and B is the size of first axes only. A name X that inputs declare for
// any other axis stays. Finds caches [X, ...] as well that may have room for more than the B
// sequences of a step: a Slice cuts them to B, or a broadcast takes X and B as equal. The caller has
// to state the assumption X = B, which the model does not need. Computes the forms of the results of
// such nodes.
SizeNames RowNamesOf(Forms& forms);

}  // namespace kvlift::sym
