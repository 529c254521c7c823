// Reads what an attention computes from an Attention operator or from the nodes around a softmax.
// This reader shares no code with the rewrite rules that recognise attentions.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "proof/graphs/attention_reading.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Reads the attention that computes `result`: [B, N, S, D], or [B, S, N * D] from an Attention
// operator. The result and the operands of its two matrix products may also be
// [B, N / G, G, S, D], with numbers for N / G and G, and with `heads` > 0, N = heads, [B * N, S,
// D]. Sets `why_not` if the nodes do not have the form above. Source: ONNX Attention-24.
AttentionReading ReadAttention(sym::Forms& forms, ValueId result, int64_t heads = 0);

}  // namespace kvlift
