// Tries candidates of `reduce`, each in a process of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "kvlift/fleet/processes.h"
#include "kvlift/reduce/property.h"
#include "reduce/reduce.h"

namespace kvlift::cli {

struct TrialOptions {
  // Options of `verify` or `convert`, as the user gave them.
  std::vector<std::string> arguments;
  // Folders of external data that models refer to.
  std::vector<std::string> data_folders;
  size_t jobs = 1;
  int threads = 1;  // of each process
  ProcessLimits limits;
  double budget_seconds = 0;  // for all trials together; 0: no limit
};

// A folder for files of trials, which is removed with this object and if a signal ends the process.
class TrialFolder {
 public:
  // Makes a folder below that for temporary files. Fails as ErrnoStatus.
  static absl::StatusOr<std::unique_ptr<TrialFolder>> Make();
  ~TrialFolder();
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

  const std::string& path() const { return path_; }
  // Returns the path of a file, which is removed with the folder.
  std::string File(const std::string& name);

 private:
  explicit TrialFolder(std::string path);

  const std::string path_;
  std::vector<std::string> names_;
  std::vector<int> slots_;
};

class ProcessTrials : public Trials {
 public:
  ProcessTrials(TrialOptions options, TrialFolder* folder);

  // Runs the command on model files: two for `verify`, one for `convert`.
  absl::StatusOr<Observation> RunOn(const std::vector<std::string>& files);
  // Runs the command on a subject that is written into the folder.
  absl::StatusOr<Observation> RunOn(const Subject& subject);

  // Sets the property that candidates must show. Must be called before FindFirst.
  void Keep(Property property) { property_ = std::move(property); }
  std::optional<Found> FindFirst(size_t count, const Make& make) override;
  bool over() const override;

  // Returns the files of a subject in a folder: before.onnx, after.onnx and after.kv.json, or
  // model.onnx. Fails as SerializeModel.
  static absl::StatusOr<std::vector<OutputFile>> FilesOf(const Subject& subject,
                                                         const std::string& folder);

  // Returns the number of processes that were run for candidates.
  size_t count() const { return count_; }
  // Returns the first error of writing files of candidates or of starting processes; it ends the
  // trials.
  const absl::Status& status() const { return status_; }

 private:
  struct Running {
    Subject subject;
    std::string digest;
    size_t slot = 0;
  };
  // Returns the paths of the models of a process.
  std::vector<std::string> PathsOf(bool pair, size_t slot);
  // Writes the models of a subject.
  absl::Status Write(const Subject& subject, const std::vector<std::string>& files);
  absl::Status Start(size_t id, const std::vector<std::string>& files, size_t slot,
                     Processes* processes);
  Observation Ended(const ProcessEnd& end, bool pair, size_t slot);

  const TrialOptions options_;
  TrialFolder* const folder_;
  std::optional<Property> property_;
  absl::flat_hash_set<std::string> failed_;  // digests of candidates that did not show it
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  size_t count_ = 0;
  absl::Status status_;
};

}  // namespace kvlift::cli
