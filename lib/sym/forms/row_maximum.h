// Recognises the row maximum that exporters subtract in front of a softmax.
#pragma once

#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns x if the node computes x - max(x), with the maximum over the last axis of x, which it
// keeps. Returns kNoValue for all other nodes. Source: ONNX ReduceMax-20.
ValueId LessRowMaximum(Forms& forms, NodeId node);

}  // namespace kvlift::sym
