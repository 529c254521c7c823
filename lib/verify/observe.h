// What the operands of a model's attentions are when it runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "verify/drive.h"
#include "verify/mutants.h"

namespace kvlift {

// Queries and masks of all attentions, operands of softmaxes, by name, and the operand that the
// last mask's site reads. Facts of a mask are those that held in every step of every record.
std::map<std::string, SeenValue> ObserveOperands(const Driver& driver, Runner& converted,
                                                 const std::vector<Record>& records);

}  // namespace kvlift
