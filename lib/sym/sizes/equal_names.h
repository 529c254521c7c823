// Names of sizes that operators make equal.
//
// Some exporters give each axis of each input a name of its own, although a ScatterND or a Concat
// behind them runs with equal extents only. Knowing that restricts nothing that the model can do.
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

// Returns new names for the rows of inputs [X, Y] that a Reshape to [B, -1] hands on, where B is
// the size of another input: B for X, since X is B wherever Y is the length of a sequence. The
// Reshape would take other matrices of as many elements as well, so a caller states that it takes
// none. Names that inputs declare for other axes as well stay. Computes the forms of such results.
SizeNames RowNamesOf(Forms& forms);

}  // namespace kvlift::sym
