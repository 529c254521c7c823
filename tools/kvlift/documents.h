// The JSON documents of the contract, made from the same structs as the text output.
#pragma once

#include <string>
#include <vector>

#include "exec/session.h"
#include "nlohmann/json.hpp"
#include "onnxio/model.h"
#include "rewrite/convert.h"
#include "verify/verify.h"

namespace kvlift::cli {

nlohmann::ordered_json InspectDocument(const Model& model, const Inspection& inspection);
nlohmann::ordered_json ConvertDocument(const Conversion& conversion,
                                       const std::vector<std::string>& outputs,
                                       const nlohmann::ordered_json& verify);
nlohmann::ordered_json VerifyDocument(const VerifyReport& report);
// What a session holds besides the weights: of `run` and of each case of `bench`.
nlohmann::ordered_json MemoryDocument(const exec::MemoryUse& memory);

std::string_view VerdictName(VerdictKind verdict);

// Tables and lines for people; the last line is the one to grep for.
std::string InspectText(const std::string& path, const Inspection& inspection, bool details,
                        bool near_misses);
std::string ConvertText(const Conversion& conversion, const std::vector<std::string>& outputs);
std::string VerifyText(const VerifyReport& report, bool verbose);

}  // namespace kvlift::cli
