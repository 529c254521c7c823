// Recognises the row maximum that exporters subtract in front of a softmax.
#pragma once

#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns x if the value is x - max(x), with the maximum over the last axis of x, which it keeps.
// Returns kNoValue for all other values. Identity nodes may stand anywhere. Source: ONNX
// ReduceMax-20.
ValueId WithoutMaximum(Forms& forms, ValueId value);

}  // namespace kvlift::sym
