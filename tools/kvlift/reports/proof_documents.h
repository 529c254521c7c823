// Shows what was proved for all shapes: as JSON, and as text.
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "proof/graphs/proof.h"
#include "report/text/style.h"

namespace kvlift::cli {

nlohmann::ordered_json ProofDocument(const Proof& proof);
// Returns one line per kind of fact with the number of facts that are proved, then why others are
// not: the first of each kind, or all if `all`.
std::string ProofText(const Proof& proof, bool all, const Style& style);

}  // namespace kvlift::cli
