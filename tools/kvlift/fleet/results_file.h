// Files of results: a line is added as each model ends, and all lines are sorted at the end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvlift/fleet/result.h"
#include "onnxio/files/fd.h"

namespace kvlift::cli {

// Returns the lines of a file. A last line without a newline was cut off when its writer was
// killed, and is left out. NotFound if there is no file; InvalidArgument, with the number of the
// line, if a line is not a result.
absl::StatusOr<std::vector<FleetResult>> ReadResults(const std::string& path);

// A file that lines are added to. If the process is killed, the file has the lines that were added
// before, and none in part.
class ResultsLog {
 public:
  // Opens or makes the file, and removes a last line that was cut off. Fails as WriteFailed.
  static absl::StatusOr<ResultsLog> Open(const std::string& path);

  // Adds a line, on disk when this returns. On failure (WriteFailed) the file is as before.
  absl::Status Add(const FleetResult& result);

 private:
  ResultsLog(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;
};

// Returns the last result about each subject, sorted by command, place in the list and names.
std::vector<FleetResult> InOrder(const std::vector<FleetResult>& results);
// Returns the text of a file of results.
std::string ResultsText(const std::vector<FleetResult>& results);

// Takes a folder of results for this process, until the returned descriptor is closed.
// FailedPrecondition if another process has it.
absl::StatusOr<Fd> TakeFolder(const std::string& folder);

}  // namespace kvlift::cli
