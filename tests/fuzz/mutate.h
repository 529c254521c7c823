// Changes that keep a model a model, which a mutator of bytes hardly ever makes.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"
#include "onnx/onnx_pb.h"

namespace kvlift::fuzz {

// Makes one to four changes of nodes, connections, attributes, tensors, types, names, bodies or
// imports. Most results are valid or nearly so. The same generator state gives the same result.
void MutateModel(onnx::ModelProto* model, std::mt19937& rng);

// Makes one change: of a few bytes, or mostly (unless the target tests reading) of what the bytes
// mean in their form.
std::string MutateInput(const Target& target, std::string bytes, std::mt19937& rng);

// Makes one change of what the bytes mean; nullopt if they do not parse in that form.
std::optional<std::string> MutateForm(Form form, std::string_view bytes, std::mt19937& rng);

// Names that harm a terminal, web page, log or generated code that uses them unescaped.
const std::vector<std::string>& Canaries();

}  // namespace kvlift::fuzz
