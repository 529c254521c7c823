// ONNX's operator schemas, safe for shape inference on untrusted models.
#pragma once

#include "onnx/defs/schema.h"

namespace kvlift {

// Returns ONNX's registry with one difference: the inference of Einsum fails for equations with
// anything but letters, commas, an arrow and one ellipsis per term, for which the inference
// function of ONNX 1.23 does not terminate.
const onnx::ISchemaRegistry& SafeSchemas();

}  // namespace kvlift
