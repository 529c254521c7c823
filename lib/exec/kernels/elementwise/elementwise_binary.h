// Kernels with two or more operands; listed in the table of elementwise.cc.
#pragma once

#include "absl/status/status.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

absl::Status AddKernel(KernelContext& context);
absl::Status SubKernel(KernelContext& context);
absl::Status MulKernel(KernelContext& context);
// Integers truncate towards zero. Returns InvalidArgument for an integer divisor of 0.
absl::Status DivKernel(KernelContext& context);
absl::Status ModKernel(KernelContext& context);
absl::Status PowKernel(KernelContext& context);
float PowerOf(float base, float exponent);  // one element of PowKernel
absl::Status PReluKernel(KernelContext& context);
// These take any number of operands.
absl::Status MaxKernel(KernelContext& context);
absl::Status MinKernel(KernelContext& context);
absl::Status SumKernel(KernelContext& context);
absl::Status MeanKernel(KernelContext& context);

}  // namespace kvlift::exec
