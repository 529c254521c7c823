// Summarises all results of `fleet`: tables for terminals, a document, and a page.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvlift/fleet/result.h"
#include "nlohmann/json.hpp"
#include "report/text/style.h"

namespace kvlift::cli {

struct FleetCounts {
  size_t models = 0, succeeded = 0;
  size_t missing = 0;                             // models that have no result
  std::map<std::string, size_t> outcomes, codes;  // how many models have them

  bool AllSucceeded() const { return succeeded == models && missing == 0; }
};
FleetCounts CountResults(absl::Span<const FleetResult> results);

// Returns the tables of outcomes and codes, and a line "COMMAND: 3 of 4 models succeeded".
std::string SummaryText(const std::string& command, const FleetCounts& counts, const Style& style);

// Returns the document of --json. `page` and `results` are paths of files.
nlohmann::ordered_json SummaryDocument(const std::string& command, const FleetCounts& counts,
                                       const std::string& results, const std::string& page);

// Returns one HTML page about results in their order, which loads nothing and needs no script. It
// links to the files that the results name.
std::string FleetPage(absl::Span<const FleetResult> results);

}  // namespace kvlift::cli
