// OpenPPL's KeyValueCache, for the operator table of contrib domains. Internal to lib/oracle.
#pragma once

#include "absl/status/status.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {

absl::Status KeyValueCache(OpContext& c);
// Computes the operator of the dynamic_batching domains, which has the tokens of all sequences on
// one axis.
absl::Status JoinedKeyValueCache(OpContext& c);

}  // namespace kvlift::oracle
