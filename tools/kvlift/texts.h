// The texts that the commands print for people: tables and lines. The last line is made to be
// searched for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/pipeline.h"
#include "report/text/style.h"
#include "rewrite/convert/convert.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// Returns the tone of a table cell: words of verdicts and codes of findings have one.
Tone ToneOfCell(std::string_view cell);

// Layers with equal properties share a line, unless `details`.
std::string InspectText(const std::string& path, const Inspection& inspection, bool details,
                        bool near_misses, const Style& style);
std::string ConvertText(const ProvedConversion& converted, const std::vector<std::string>& outputs,
                        const Style& style);
std::string VerifyText(const VerifyReport& report, bool verbose, const Style& style);
// Entries that differ only in the number of a layer share a line. With `verbose`, checked entries
// are listed too.
std::string LedgerText(const Assumptions& ledger, bool verbose);

}  // namespace kvlift::cli
