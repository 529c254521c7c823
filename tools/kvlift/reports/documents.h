// The JSON documents that the commands print; docs/schema describes them.
#pragma once

#include <string>
#include <vector>

#include "exec/session/session.h"
#include "nlohmann/json.hpp"
#include "onnxio/model/model.h"
#include "pipeline/pipeline.h"
#include "rewrite/convert/convert.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

nlohmann::ordered_json InspectDocument(const Model& model, const Inspection& inspection);
nlohmann::ordered_json ConvertDocument(const ProvedConversion& converted,
                                       const std::vector<std::string>& outputs,
                                       const nlohmann::ordered_json& verify);
// Returns an entry of "frozen" in the document of `convert`: one graph with static shapes, at the
// path `model`; empty: it is not written. `verify` is the document of the plans that ran; null if
// none did.
nlohmann::ordered_json FrozenDocument(const ProvedConversion& converted, const std::string& model,
                                      const nlohmann::ordered_json& verify);
nlohmann::ordered_json VerifyDocument(const VerifyReport& report);
// Returns the bytes that a session holds without the weights, for `run` and for each case of
// `bench`.
nlohmann::ordered_json MemoryDocument(const exec::MemoryUse& memory);

std::string_view VerdictName(VerdictKind verdict);
std::string_view StatusName(ConvertStatus status);

}  // namespace kvlift::cli
