// Operators that keep past and present by themselves, lowered to standard operators: Concat makes
// the present, and an Attention without a past reads it. What an operator says about order, pads
// and biases becomes an explicit mask.
#pragma once

#include "absl/status/status.h"
#include "rewrite/normalise.h"

namespace kvlift {

// Lowers Attention with past of the default domain and MultiHeadAttention of com.microsoft, and
// replaces SimplifiedLayerNormalization of the default domain, which no ONNX checker knows. What is
// left as it is, is a refusal with the reason.
// Source: ONNX Attention-23, -24; the contrib operator texts of ONNX Runtime 1.31.
absl::Status LowerFused(Normalised* result);

}  // namespace kvlift
