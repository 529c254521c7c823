// Reads assumptions of forms as rules for the feeds of the source (contract/fed_rules.h).
#pragma once

#include <optional>
#include <string>

#include "contract/fed_rules.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Reads the assumption that two sizes have no difference; nullopt if the inputs do not tell them.
std::optional<FedCondition> FedEqualityOf(const GraphPair& pair, sym::Expr difference,
                                          const std::string& text);
// Reads an assumption about the source's values; nullopt if it is about something other than
// integers of inputs, or about none of their elements.
std::optional<FedCondition> FedConditionOf(const GraphPair& pair,
                                           const sym::FormAssumption& assumption);

}  // namespace kvlift
