// What the commands know of a conversion, as a report.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "nlohmann/json.hpp"
#include "onnxio/model.h"
#include "report/report.h"
#include "rewrite/convert.h"
#include "verify/verify.h"

namespace kvlift::cli {

// Null where there is none. The models' graphs can be indexed.
struct ReportInput {
  std::string command;
  const Model* before = nullptr;
  const Model* after = nullptr;
  std::string after_sha256;  // if `after` was not loaded from its file
  const Inspection* inspection = nullptr;
  const Manifest* manifest = nullptr;
  const VerifyReport* verify = nullptr;
  nlohmann::ordered_json document;  // for programs that read the report
};

absl::StatusOr<Report> MakeReport(const ReportInput& input);

// The words that a shell would take for this command line.
std::string CommandText(const std::vector<std::string>& words);

}  // namespace kvlift::cli
