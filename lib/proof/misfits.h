// What the conversion's operators would refuse in every step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/pair.h"

namespace kvlift {

// Sizes that operators take only if they are equal, and that never are: value and text.
std::vector<std::pair<std::string, std::string>> MisfitsOf(const GraphPair& pair,
                                                           const Correspondence& twins);
// Whether an attention of the conversion is told of more valid keys than it has.
bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after);

}  // namespace kvlift
