// What the commands print for people: tables and lines, the last one the line to grep for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/pipeline.h"
#include "report/style.h"
#include "rewrite/convert.h"
#include "verify/verify.h"

namespace kvlift::cli {

// The words of verdicts, and codes of findings.
Tone ToneOfCell(std::string_view cell);

// Layers that are alike are one line, unless `details`.
std::string InspectText(const std::string& path, const Inspection& inspection, bool details,
                        bool near_misses, const Style& style);
std::string ConvertText(const ProvedConversion& converted, const std::vector<std::string>& outputs,
                        const Style& style);
std::string VerifyText(const VerifyReport& report, bool verbose, const Style& style);

}  // namespace kvlift::cli
