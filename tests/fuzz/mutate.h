// Changes of a model that keep it a model: what a mutator of bytes hardly ever reaches.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift::fuzz {

// One to four changes, of nodes, wires, attributes, tensors, types, names, bodies or imports. Most
// results are valid or nearly so. Same generator state, same result.
void MutateModel(onnx::ModelProto* model, std::mt19937& rng);

// Names that do harm to a terminal, a web page, a log or generated code that takes them as they
// are.
const std::vector<std::string>& Canaries();

}  // namespace kvlift::fuzz
