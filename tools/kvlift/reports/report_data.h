// Collects the results of the commands about a conversion in a report.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "nlohmann/json.hpp"
#include "onnxio/model/model.h"
#include "report/text/report.h"
#include "rewrite/convert/convert.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// Pointers are null and texts are empty for parts that the report does not have. The models' graphs
// must be valid.
struct ReportInput {
  std::string command;
  const Model* before = nullptr;
  const Model* after = nullptr;
  std::string after_sha256;  // needed if `after` was not loaded from its file
  const Inspection* inspection = nullptr;
  const Manifest* manifest = nullptr;
  const VerifyReport* verify = nullptr;
  nlohmann::ordered_json document;  // for programs that read the report
};

absl::StatusOr<Report> MakeReport(const ReportInput& input);

// Returns the page, in HTML, about a verdict on two models. command: the command line that asked
// for it.
absl::StatusOr<std::string> ReportPage(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyReport& verdict,
                                       std::string command);

// Returns the command line as text for a shell, quoted where needed.
std::string CommandText(const std::vector<std::string>& words);

}  // namespace kvlift::cli
