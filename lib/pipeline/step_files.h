// Writes the results of the steps of a conversion into a folder, one or two files for each step,
// and turns the last two steps into text (rewrite/convert/describe_steps.h has the others).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnxio/model/model.h"
#include "pipeline/checks.h"
#include "pipeline/pipeline.h"
#include "rewrite/types/steps.h"

namespace kvlift {

class StepFiles {
 public:
  // Makes the folder, and those above it, unless it exists. `source` is the model that is
  // converted. Fails as MakeFolders.
  static absl::StatusOr<StepFiles> In(const std::string& folder, const Model& source);

  // Writes the texts of one step together, in place of older files. Fails as WriteFiles, and with
  // KV501 if one of the files is the source.
  absl::Status Write(std::vector<StepText> texts);
  // Returns the paths of all files so far.
  const std::vector<std::string>& written() const { return written_; }

 private:
  StepFiles(std::string folder, std::string source)
      : folder_(std::move(folder)), source_(std::move(source)) {}

  std::string folder_;
  std::string source_;  // the path of the source; empty if it has none
  std::vector<std::string> written_;
};

// Returns true if the status says that an output could not be written.
bool IsWriteError(const absl::Status& status);

// 5-check.txt: the outcome of each check that ran, with the findings of lint.
std::vector<StepText> DescribeChecks(const std::vector<CheckOutcome>& outcomes);
// 5-check.txt: why RefuseTree refused the conversion.
std::vector<StepText> DescribeRefusedCheck(const Conversion& conversion);
// 6-prove.txt: what was shown, each fact with its status, lemmas and what it is given, the plans
// that ran, and the ledger of assumptions.
std::vector<StepText> DescribeProof(const ProvedConversion& converted);

}  // namespace kvlift
