#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/fleet/child_options.h"
#include "kvlift/fleet/flags.h"
#include "kvlift/fleet/fleet_run.h"
#include "kvlift/fleet/merge.h"
#include "kvlift/fleet/results_file.h"
#include "kvlift/fleet/summary.h"
#include "kvlift/fleet/task_list.h"
#include "onnxio/bytes/folders.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

int Refuse(Io& io, const std::string& what, std::string_view why, ExitCode code) {
  Complain(io, what, why);
  return code;
}

ExitCode CannotWriteFleet(Io& io, const std::string& what, const absl::Status& status) {
  Complain(io, what, status);
  return kUnwritable;
}

ExitCode CannotRead(Io& io, const std::string& what, const absl::Status& status) {
  Complain(io, what, status);
  return kUnreadable;
}

// The files of all results in a folder.
struct Paths {
  explicit Paths(const std::string& folder)
      : results((fs::path(folder) / kResultsName).string()),
        page((fs::path(folder) / kPageName).string()) {}

  std::string results, page;
};

// Writes all results and the page, and prints a summary of `summarised`, which lacks `missing`
// models. Returns the exit code.
int Conclude(const FleetFlags& flags, const std::vector<FleetResult>& all,
             absl::Span<const FleetResult> summarised, size_t missing, Io& io) {
  const Paths paths(flags.output);
  if (const absl::Status written =
          WriteFiles({{paths.results, ResultsText(all)}, {paths.page, FleetPage(all)}});
      !written.ok()) {
    return CannotWriteFleet(io, flags.output, written);
  }
  FleetCounts counts = CountResults(summarised);
  counts.missing = missing;
  if (flags.common.json) {
    PrintJson(io, SummaryDocument(flags.command, counts, paths.results, paths.page));
  } else if (!flags.common.quiet) {
    io.Results() << SummaryText(flags.command, counts, io.OutStyle())
                 << fmt::format("wrote {}\nwrote {}\n", EscapeTerminal(paths.results),
                                EscapeTerminal(paths.page));
  }
  return counts.AllSucceeded() ? kDone : kFindings;
}

int Merge(const FleetFlags& flags, Io& io) {
  const auto merged = MergeResults(flags.sources, flags.output);
  if (!merged.ok()) return CannotRead(io, "", merged.status());
  std::error_code error;
  for (const std::string& path : {Paths(flags.output).results, Paths(flags.output).page}) {
    if (!flags.force && fs::exists(path, error)) {
      return Refuse(io, path, "exists; --force overwrites it", kUnwritable);
    }
  }
  if (const absl::Status made = MakeFolders(flags.output); !made.ok()) {
    return CannotWriteFleet(io, flags.output, made);
  }
  const auto taken = TakeFolder(flags.output);
  if (!taken.ok()) return CannotWriteFleet(io, flags.output, taken.status());
  if (merged->missing > 0) {
    Complain(io, "", fmt::format("{} models of the lists have no result", merged->missing));
  }
  return Conclude(flags, merged->results, merged->results, merged->missing, io);
}

// Returns what each model was converted to, by the results of an earlier run.
std::map<std::string, std::string> ConvertedModels(const std::vector<FleetResult>& stored) {
  std::map<std::string, std::string> converted;
  for (const FleetResult& result : stored) {
    if (result.command != "convert") continue;
    converted.erase(result.model);
    if (!result.output.empty()) converted[result.model] = result.output;
  }
  return converted;
}

// Returns the results in which the conversions to be verified are found.
absl::StatusOr<std::vector<FleetResult>> Conversions(const FleetFlags& flags,
                                                     const std::vector<FleetResult>& stored) {
  if (flags.converted.empty()) return stored;
  return ReadResultsFor(flags.output, flags.converted);
}

// Returns the stored results that stay: those of other commands, and of models of the list which
// this run does not work on.
std::vector<FleetResult> Others(const std::vector<FleetResult>& stored, const std::string& command,
                                const std::vector<FleetTask>& tasks) {
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const FleetTask& task : tasks) {
    places[{ToValidUtf8(task.model), ToValidUtf8(task.after)}] = task.index;
  }
  std::vector<FleetResult> others;
  for (FleetResult result : stored) {
    if (result.command == command) {
      const auto place = places.find({result.model, result.after});
      if (place == places.end()) continue;
      result.index = place->second;
      result.of = tasks.size();
    }
    others.push_back(std::move(result));
  }
  return others;
}

// Returns what is wrong with the command line; empty if nothing is.
std::string WhyNot(const FleetFlags& flags) {
  const bool merge = flags.command == "merge";
  if (merge && !flags.arguments.empty()) return "merge runs no command that takes options";
  if (merge && (flags.resume || !flags.shard.empty())) return "merge takes whole files of results";
  if (!merge && flags.sources.size() > 1) {
    return flags.command + ": more than one list or folder; options of the command stand behind --";
  }
  if (flags.command != "verify" && !flags.converted.empty()) {
    return "--converted is for verify";
  }
  return merge ? "" : WhyNotOptions("fleet", flags.command, flags.arguments);
}

// The folder of results, which one run at a time works in.
struct Folder {
  std::vector<FleetResult> stored;
  bool has_results = false;  // a run has begun in it
  std::optional<Fd> taken;
};

// Takes the folder if it is there, and reads its results. Makes nothing. Returns an exit code if
// that fails.
ExitCode OpenFolder(const std::string& output, Io& io, Folder* folder) {
  std::error_code error;
  if (!fs::is_directory(output, error)) return kDone;
  auto taken = TakeFolder(output);
  if (!taken.ok()) return CannotWriteFleet(io, output, taken.status());
  folder->taken = *std::move(taken);
  const std::string path = Paths(output).results;
  auto stored = ReadResults(path);
  if (absl::IsNotFound(stored.status())) return kDone;
  if (!stored.ok()) return CannotRead(io, path, stored.status());
  folder->stored = *std::move(stored);
  folder->has_results = true;
  return kDone;
}

// Makes the folder, and opens the file of results.
absl::StatusOr<ResultsLog> Prepare(const std::string& output, Folder* folder) {
  KV_RETURN_IF_ERROR(MakeFolders(output));
  if (!folder->taken) {
    KV_ASSIGN_OR_RETURN(folder->taken, TakeFolder(output));
  }
  return ResultsLog::Open(Paths(output).results);
}

}  // namespace

int RunFleet(const FleetFlags& flags, Io io) {
  if (const std::string why = WhyNot(flags); !why.empty()) return Refuse(io, "", why, kUsage);
  if (flags.command == "merge") return Merge(flags, io);
  Folder folder;
  if (const ExitCode code = OpenFolder(flags.output, io, &folder); code != kDone) return code;
  const std::vector<FleetResult>& stored = folder.stored;
  const auto conversions = Conversions(flags, stored);
  if (!conversions.ok()) return CannotRead(io, "", conversions.status());
  const std::string& source = flags.sources[0];
  const auto list = ReadTasks({flags.command, source, flags.output, ConvertedModels(*conversions)});
  if (!list.ok()) return CannotRead(io, source, list.status());
  if (!flags.common.quiet) {
    for (const std::string& note : list->notes) Complain(io, source, note);
  }
  const bool known = std::any_of(stored.begin(), stored.end(), [&](const FleetResult& result) {
    return result.command == flags.command;
  });
  if (known && !flags.resume && !flags.force) {
    return Refuse(io, Paths(flags.output).results,
                  fmt::format("has results of {}; --resume keeps them, --force makes them anew",
                              flags.command),
                  kUnwritable);
  }
  const Shard shard = ReadShard(flags.shard).value_or(Shard());
  std::vector<FleetTask> tasks;
  for (const FleetTask& task : list->tasks) {
    if (shard.Has(task.index)) tasks.push_back(task);
  }
  FleetRun run(flags, io, std::move(tasks), list->tasks.size(), stored);
  const bool again = flags.force || (flags.resume && folder.has_results);
  if (const std::string why = run.FileThatWouldBeOverwritten(again, folder.has_results);
      !why.empty()) {
    return Refuse(io, why, "nothing written", kUnwritable);
  }
  auto log = Prepare(flags.output, &folder);
  if (!log.ok()) return CannotWriteFleet(io, flags.output, log.status());
  const auto results = run.Work(&*log);
  if (!results.ok()) return CannotWriteFleet(io, flags.output, results.status());
  std::vector<FleetResult> all = Others(stored, flags.command, list->tasks);
  all.insert(all.end(), results->begin(), results->end());
  return Conclude(flags, InOrder(all), *results, 0, io);
}

}  // namespace kvlift::cli
