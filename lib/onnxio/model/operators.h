// Schemas of operators outside ONNX, for its checker and shape inference.
#pragma once

namespace kvlift {

// Adds KeyValueCache of OpenPPL to ONNX's registry, with and without the outputs of its functional
// form (onnxio/model/functional_form.h). Only the first call has an effect.
void RegisterOperators();

}  // namespace kvlift
