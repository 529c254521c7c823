// Einsum, which is registered with the matrix products.
#pragma once

#include "absl/status/status.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

absl::Status EinsumShape(KernelContext& context);
absl::Status EinsumCompute(KernelContext& context);

}  // namespace kvlift::exec
