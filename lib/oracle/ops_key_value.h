// KeyValueCache of OpenPPL, for the table of operators of other domains. Internal to lib/oracle.
#pragma once

#include "absl/status/status.h"
#include "oracle/op.h"

namespace kvlift::oracle {

absl::Status KeyValueCache(OpContext& c);
// The form of dynamic_batching, which has the tokens of all sequences on one axis.
absl::Status JoinedKeyValueCache(OpContext& c);

}  // namespace kvlift::oracle
