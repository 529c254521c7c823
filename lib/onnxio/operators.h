// The schemas of operators outside ONNX that its checker and shape inference know here.
#pragma once

namespace kvlift {

// Adds KeyValueCache of OpenPPL to ONNX's registry, in the forms of onnxio/in_out.h as well as in
// its own. Once; further calls do nothing.
void RegisterOperators();

}  // namespace kvlift
