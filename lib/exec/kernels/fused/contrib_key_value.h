// The operator definitions of OpenPPL's KeyValueCache.
#pragma once

#include "absl/types/span.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

absl::Span<const OpDef> KeyValueCacheOps();

}  // namespace kvlift::exec
