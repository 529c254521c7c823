// Attention-23 and later by the grouped kernels (attention_grouped.h), for the fast order.
#pragma once

#include "exec/kernels/attention/attention.h"

namespace kvlift::exec {

// The keys or values of all heads and tokens.
struct KeyRows {
  const std::byte* data = nullptr;
  HeadLayout layout;
  // Null: elements have the type of the input. Otherwise they are int8, and `group` elements of a
  // row share a scale.

  const float* scales = nullptr;
  HeadLayout scale_layout = {};
  int64_t group = 0;
};

// Returns true if the order is fast, the types are float, float16 or bfloat16, the softmax is in
// float, and qk_matmul_output is not wanted.
bool CanAttendFast(const KernelContext& context, const AttentionPlan& plan);
// Fills output 0.
void AttendFast(const KernelContext& context, const AttentionPlan& plan, const KeyRows& keys,
                const KeyRows& values);

}  // namespace kvlift::exec
