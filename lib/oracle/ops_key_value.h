// KeyValueCache of OpenPPL, for the table of operators of other domains. Internal to lib/oracle.
#pragma once

#include "absl/status/status.h"
#include "oracle/op.h"

namespace kvlift::oracle {

absl::Status KeyValueCache(OpContext& c);

}  // namespace kvlift::oracle
