// One run of `fleet`: a process for each model, a line for each result.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvlift/commands/commands.h"
#include "kvlift/fleet/processes.h"
#include "kvlift/fleet/results_file.h"
#include "kvlift/fleet/task_list.h"

namespace kvlift::cli {

class FleetRun {
 public:
  // `tasks` are those of this run, out of a list of `of`. `stored` are the results that the folder
  // has already, and may be used again if `flags.resume` is set.
  FleetRun(const FleetFlags& flags, Io& io, std::vector<FleetTask> tasks, size_t of,
           const std::vector<FleetResult>& stored);

  // Returns a file that would be overwritten though it may not be; empty if every file may be
  // written. Models of the list are never overwritten, and files of results only `again`; those
  // about all models also if the folder has results.
  std::string FileThatWouldBeOverwritten(bool again, bool has_results) const;
  // Works on all tasks, and adds a line to the log for each. Fails if a line cannot be written.
  absl::StatusOr<std::vector<FleetResult>> Work(ResultsLog* log);

 private:
  // Returns a result with all fields that are known before the model is worked on.
  FleetResult Begin(const FleetTask& task, Processes* processes) const;
  // Returns the stored result that can be used in place of one that was begun; null if the model
  // has to be worked on.
  const FleetResult* Stored(const FleetResult& begun) const;
  bool HasItsFiles(const FleetResult& result) const;
  // Adds the files of a result, with those that the document of its command names.
  void ListFiles(const std::string& printed, FleetResult* result) const;
  std::vector<std::string> ArgumentsFor(const FleetTask& task) const;
  // Works on all tasks. `running`: those whose process was started and whose result is not made.
  absl::Status WorkOnAll(ResultsLog* log, std::set<size_t>* running);
  absl::Status Start(size_t k, Processes* processes);
  // No signal removes any more what the task's process prints into.
  void Forget(size_t k);
  // Removes what a process has printed, if no result is made of it.
  void RemoveUnfinished(size_t k) const;
  // Returns the result, after naming or removing the files that the process has written.
  FleetResult End(size_t k, const ProcessEnd& end);
  absl::Status Finish(size_t k, FleetResult result, ResultsLog* log);
  std::string InOutput(const std::string& name) const;

  const FleetFlags& flags_;
  Io& io_;
  const std::vector<FleetTask> tasks_;
  // The numbers that NoteTemporary gave for the files that a running task prints into, by task.
  std::map<size_t, std::vector<int>> unfinished_;
  const size_t of_;
  const std::vector<FleetResult>& stored_;
  size_t jobs_ = 1;
  int threads_ = 1;                   // of each process
  std::vector<FleetResult> results_;  // by task
  size_t done_ = 0;
};

}  // namespace kvlift::cli
