// What the conversion's operators would refuse, or do otherwise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"

namespace kvlift {

// Sizes that the conversion's forms take to be equal, and that are not seen to be: an operator
// refuses them, or broadcasts the one that is 1. Value, and what is not so.
std::vector<std::pair<std::string, std::string>> MisfitsOf(const GraphPair& pair,
                                                           const Correspondence& twins,
                                                           Equality& equality);
// Whether an attention of the conversion is told of more valid keys than it has.
bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after);

}  // namespace kvlift
