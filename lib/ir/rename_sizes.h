// Names of sizes that are replaced by other names.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// New names of sizes (dim_param) by their old ones.
using SizeNames = absl::flat_hash_map<std::string, std::string>;

// Replaces the keys of `names` by their values where inputs of the graph declare them as the name
// of a size (dim_param). Names that are part of an expression, such as "P + S", stay.
void RenameSizes(const SizeNames& names, onnx::GraphProto* graph);

}  // namespace kvlift
