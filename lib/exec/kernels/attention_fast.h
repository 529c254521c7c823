// Attention-23 and later by the grouped kernels, for what does not need the canonical order.
#pragma once

#include "exec/kernels/attention.h"

namespace kvlift::exec {

// Keys or values of all heads, of all tokens.
struct KeyRows {
  const std::byte* data = nullptr;
  HeadLayout layout;
  // If given, elements are int8, and `group` of a row share a scale.
  const float* scales = nullptr;
  HeadLayout scale_layout = {};
  int64_t group = 0;
};

bool CanAttendFast(const KernelContext& context, const AttentionPlan& plan);
void AttendFast(const KernelContext& context, const AttentionPlan& plan, const KeyRows& keys,
                const KeyRows& values);

}  // namespace kvlift::exec
