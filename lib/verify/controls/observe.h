// Observes the operands of a model's attentions while the model runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "verify/mutants/mutants.h"
#include "verify/steps/drive.h"

namespace kvlift {

// Runs the converted model through all records and returns what was observed, by the name of the
// value. Observed are query, key, mask and nonpad_kv_seqlen of Attention nodes, operands of Softmax
// nodes, and the last mask (mutant_guards.h). Cache contents are not carried from step to step, as
// facts about masks and lengths do not depend on them.
std::map<std::string, SeenValue> ObserveOperands(const Driver& driver, Runner& converted,
                                                 const std::vector<Record>& records);

}  // namespace kvlift
