// Changes of a model that keep it a model: what a mutator of bytes hardly ever reaches.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"
#include "onnx/onnx_pb.h"

namespace kvlift::fuzz {

// One to four changes, of nodes, wires, attributes, tensors, types, names, bodies or imports. Most
// results are valid or nearly so. Same generator state, same result.
void MutateModel(onnx::ModelProto* model, std::mt19937& rng);

// One change to a few of the bytes themselves, or of what they mean in their form: mostly the
// latter, except where reading is what is tested.
std::string MutateInput(const Target& target, std::string bytes, std::mt19937& rng);

// The latter alone, in one go; nullopt where the bytes have no such meaning.
std::optional<std::string> MutateForm(Form form, std::string_view bytes, std::mt19937& rng);

// Names that do harm to a terminal, a web page, a log or generated code that takes them as they
// are.
const std::vector<std::string>& Canaries();

}  // namespace kvlift::fuzz
