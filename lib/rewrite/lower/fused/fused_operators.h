// Lowers operators with a past and a present of their own to standard operators: a Concat makes the
// present, and an Attention without a past reads it. Causal order, padding and biases of the
// operator become an explicit mask.
#pragma once

#include "absl/status/status.h"
#include "rewrite/types/normalised.h"

namespace kvlift {

// Lowers Attention with a past or over keys without an axis of heads, and MultiHeadAttention and
// GroupQueryAttention of com.microsoft. Also replaces SimplifiedLayerNormalization of the default
// domain by RMSNormalization, and an Einsum that is a batched matrix product by MatMul. Operators
// with caches that are not lowered are in result->refusals (KV240, KV206). Source: ONNX
// Attention-23, -24; the contrib operator texts of ONNX Runtime 1.31.
absl::Status LowerFused(UnreadMasks unread, Normalised* result);

}  // namespace kvlift
