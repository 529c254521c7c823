// A model as ONNX text that people read: weights are left out, and names are fit for a terminal.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Tensors with more elements than this are left out of an outline.
inline constexpr int64_t kMostOutlineElements = 16;

// Returns the model as ONNX text that ParseModelText and ONNX's own parser read. A comment in front
// counts what is left out: tensors with more than kMostOutlineElements elements, and those whose
// elements ONNX text cannot spell. They keep type and shape, as external data at the location
// "#left-out". Names and texts are escaped as EscapeTerminal does it. Names of bodies, and of
// tensors in attributes, are changed where ONNX text could not read them again. Sparse
// initialisers are not part of ONNX text.
std::string PrintModelOutline(const onnx::ModelProto& model);

}  // namespace kvlift
