// Finds roundings to half precision that ONNX Runtime keeps in the source and leaves out in the
// result. Internal to lib/rewrite.
//
// On processors, ONNX Runtime has kernels in float16 for operators that move elements or read
// shapes and for a few others, such as LayerNormalization. All other operators compute in float32,
// between Casts. A node with such a kernel computes in float32 as well if none of its producers and
// consumers has one; its Casts are then left out, and with them its rounding. So a node that loses
// its last neighbour with such a kernel gives other numbers, which show in float32 outputs. Source:
// ONNX Runtime 1.31, core/optimizer/insert_cast_transformer.cc.
#pragma once

#include <optional>

#include "rewrite/plan/conversion_plan.h"

namespace kvlift::internal {

// Returns KV248 with the first node whose result would no longer be rounded. Returns nullopt if
// there is none, if roundings are free, or if no cache holds numbers of a narrower type than it
// declares: outputs of a half type show roundings in any case.
std::optional<Finding> LosesRounding(const Analysis& analysis, const ConversionPlan& plan);

}  // namespace kvlift::internal
