// What was proved for all shapes, for people, programs and the manifest.
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "proof/proof.h"
#include "report/style.h"

namespace kvlift::cli {

nlohmann::ordered_json ProofDocument(const Proof& proof);
// A line per kind of fact, with how many of them are proved; then what stands in the way of others,
// the first of each kind, or all.
std::string ProofText(const Proof& proof, bool all, const Style& style);

}  // namespace kvlift::cli
