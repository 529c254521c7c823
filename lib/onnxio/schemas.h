// ONNX's operator schemas, as shape inference may use them on models from anywhere.
#pragma once

#include "onnx/defs/schema.h"

namespace kvlift {

// Where an inference function of ONNX 1.23 would not end, it fails instead: Einsum, for equations
// with anything but letters, commas, an arrow and one ellipsis per term.
const onnx::ISchemaRegistry& SafeSchemas();

}  // namespace kvlift
