// Exporters give axes names (dim_param) by hand, and some give one name to axes of different sizes:
// "sequence" for the new tokens, for the past and for both together. Runtimes do not compare such
// names; read as equal sizes they would make the past as long as the new tokens.
#pragma once

#include "absl/status/status.h"
#include "onnxio/model/model.h"
#include "rewrite/recognise/analysis.h"
#include "rewrite/types/normalised.h"
#include "rewrite/types/options.h"
#include "rewrite/types/rule.h"

namespace kvlift {

// Looks for such names in a model that was lowered and recognised: a name that both the rows of a
// past and the new tokens have; a name under which no step has tokens; and, if a cache or an
// attention is not recognised, a name whose removal lets more of them be recognised. If there are
// any, gives their axes distinct names in `model`, which becomes a copy, and runs both steps again.
// Errors: those of Lower and Recognise.
absl::Status TakeReusedNamesApart(RuleTable rules, const ConvertOptions& options,
                                  UnreadMasks unread, Model* model, Analysis* analysis);

}  // namespace kvlift
