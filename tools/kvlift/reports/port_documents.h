// The JSON document of `metadata`.
#pragma once

#include <string>
#include <vector>

#include "base/findings.h"
#include "nlohmann/json.hpp"
#include "ports/ports.h"

namespace kvlift::cli {

// Exactly one of `ports` and `refusal` is null. `outputs` are the files written.
nlohmann::ordered_json PortDocument(const DecoderPorts* ports, const Finding* refusal,
                                    const std::vector<std::string>& outputs);

}  // namespace kvlift::cli
