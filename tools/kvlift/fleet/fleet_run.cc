#include "kvlift/fleet/fleet_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "base/escape.h"
#include "base/sha256.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "fmt/format.h"
#include "kvlift/fleet/child_options.h"
#include "kvlift/fleet/outcome.h"
#include "onnxio/bytes/folders.h"
#include "onnxio/files/cleanup.h"
#include "onnxio/files/fd.h"
#include "report/text/bytes.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// A process that prints more than this has gone wrong.
constexpr uintmax_t kMostPrintedBytes = uintmax_t{256} << 20;
// The most bytes of a reason on the line of a model.
constexpr size_t kMostReasonShown = 160;
constexpr char kUnfinished[] = ".part";

// Returns the SHA-256 of a regular file, or an empty string if it cannot be read. Calls `meanwhile`
// often, as large files take long.
std::string Sha256OfFile(const std::string& path, const std::function<void()>& meanwhile) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  Sha256 sha;
  std::string buffer(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got < 0) return {};
    if (got == 0) return sha.FinishHex();
    meanwhile();
    sha.Update(std::string_view(buffer).substr(0, static_cast<size_t>(got)));
  }
}

std::string ReadPrinted(const std::string& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kMostPrintedBytes || error) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Removes what a killed process has left of its outputs (WriteFiles of onnxio/model/model.h).
void RemoveTemporaries(const std::string& folder, pid_t pid) {
  const std::string mark = fmt::format(".tmp-{}-", pid);
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().find(mark) != std::string::npos) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove(path, error);
}

std::optional<double> IfSet(double value) {
  return value > 0 ? std::optional<double>(value) : std::nullopt;
}

// Returns what makes two results exchangeable: the same files, and the same question about them.
std::string KeyOf(const FleetResult& result, const std::string& manifest_sha256) {
  nlohmann::ordered_json parts = {result.version, result.command, result.sha256,
                                  result.after_sha256};
  for (const std::string& option : result.options) parts.push_back(ToValidUtf8(option));
  parts.push_back(manifest_sha256);
  Sha256 sha;
  sha.Update(parts.dump());
  return sha.FinishHex();
}

// The files about a model, relative to the folder of results.
struct TaskNames {
  TaskNames(const FleetTask& task, const std::string& command)
      : model(task.stem + ".onnx"),
        document(fmt::format("{}.{}.json", task.stem, command)),
        report(fmt::format("{}.{}.html", task.stem, command)),
        log(fmt::format("{}.{}.log", task.stem, command)) {}

  std::string model, document, report, log;
};

}  // namespace

FleetRun::FleetRun(const FleetFlags& flags, Io& io, std::vector<FleetTask> tasks, size_t of,
                   const std::vector<FleetResult>& stored)
    : flags_(flags), io_(io), tasks_(std::move(tasks)), of_(of), stored_(stored) {
  const auto machine = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int jobs = flags.jobs > 0 ? flags.jobs : machine;
  jobs_ = static_cast<size_t>(jobs);
  threads_ = flags.common.threads > 0 ? flags.common.threads : std::max(1, machine / jobs);
  results_.resize(tasks_.size());
}

std::string FleetRun::InOutput(const std::string& name) const {
  return (fs::path(flags_.output) / name).string();
}

std::string FleetRun::FileThatWouldBeOverwritten(bool again, bool has_results) const {
  std::set<std::pair<dev_t, ino_t>> sources;
  struct stat info {};
  const auto add_source = [&](const std::string& path) {
    if (stat(path.c_str(), &info) == 0) sources.emplace(info.st_dev, info.st_ino);
  };
  for (const FleetTask& task : tasks_) {
    add_source(task.path);
    add_source(task.after_path);
  }
  for (const std::string& file : FilesOfFleet()) {
    const std::string path = InOutput(file);
    if (stat(path.c_str(), &info) != 0) continue;
    if (sources.contains({info.st_dev, info.st_ino})) return path + " is a model of the list";
    if (!S_ISREG(info.st_mode)) return path + " is no regular file";
    if (!again && !has_results) return path + " exists; --force overwrites it";
  }
  for (const FleetTask& task : tasks_) {
    const TaskNames names(task, flags_.command);
    std::vector<std::string> files = {names.document, names.report, names.log};
    if (flags_.command == "convert") {
      files.insert(files.end(),
                   {names.model, ManifestPathFor(names.model), task.stem + ".genai.json",
                    task.stem + ".inference_metadata.yaml"});
    }
    for (const std::string& file : files) {
      const std::string path = InOutput(file);
      if (stat(path.c_str(), &info) != 0) continue;
      if (sources.contains({info.st_dev, info.st_ino})) return path + " is a model of the list";
      if (!again) return path + " exists; --force overwrites it";
    }
  }
  return {};
}

FleetResult FleetRun::Begin(const FleetTask& task, Processes* processes) const {
  const auto digest = [&](const std::string& path) {
    return path.empty() ? "" : Sha256OfFile(path, [&] { processes->Poll(); });
  };
  FleetResult result;
  result.index = task.index;
  result.of = of_;
  result.command = flags_.command;
  result.model = ToValidUtf8(task.model);
  result.after = ToValidUtf8(task.after);
  result.sha256 = digest(task.path);
  result.after_sha256 = digest(task.after_path);
  result.options = flags_.arguments;
  result.memory_gib = IfSet(flags_.memory_gib);
  result.timeout_seconds = IfSet(flags_.timeout_seconds);
  result.version = kVersion;
  const std::string& judged = task.after_path.empty() ? task.path : task.after_path;
  result.key = KeyOf(result, flags_.command == "convert" ? "" : digest(ManifestPathFor(judged)));
  return result;
}

// Whether all that a result has written is there, as far as names and sizes show it.
bool FleetRun::HasItsFiles(const FleetResult& result) const {
  std::error_code error;
  for (const std::string& file : {result.output, result.document, result.report, result.log}) {
    if (!file.empty() && !fs::exists(InOutput(file), error)) return false;
  }
  return std::all_of(result.files.begin(), result.files.end(), [&](const FleetFile& file) {
    std::error_code unknown;
    return fs::file_size(InOutput(file.path), unknown) == file.bytes && !unknown;
  });
}

void FleetRun::ListFiles(const std::string& printed, FleetResult* result) const {
  std::set<std::string> paths;
  for (const std::string& file : {result->output, result->document, result->report, result->log}) {
    if (!file.empty()) paths.insert(file);
  }
  if (!result->output.empty()) {
    // They lie beside the model.
    const fs::path folder = fs::path(result->output).parent_path();
    const auto document = nlohmann::ordered_json::parse(printed, nullptr, false);
    const auto outputs = document.is_object() ? document.find("outputs") : document.end();
    for (size_t k = 0; outputs != document.end() && k < outputs->size(); ++k) {
      const auto* path = (*outputs)[k].get_ptr<const std::string*>();
      if (path != nullptr) paths.insert((folder / fs::path(*path).filename()).string());
    }
  }
  for (const std::string& path : paths) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(InOutput(path), error);
    if (!error) result->files.push_back({path, bytes});
  }
}

const FleetResult* FleetRun::Stored(const FleetResult& begun) const {
  if (!flags_.resume) return nullptr;
  const FleetResult* found = nullptr;
  for (const FleetResult& result : stored_) {
    if (result.key == begun.key && result.Subject() == begun.Subject()) found = &result;
  }
  if (found == nullptr) return nullptr;
  const auto& retry = flags_.retry;
  if (std::find(retry.begin(), retry.end(), found->outcome) != retry.end()) return nullptr;
  // With another limit the end may be another one.
  if (found->outcome == "timeout" && found->timeout_seconds != begun.timeout_seconds) {
    return nullptr;
  }
  if (found->outcome == "out-of-memory" && found->memory_gib != begun.memory_gib) return nullptr;
  return HasItsFiles(*found) ? found : nullptr;
}

std::vector<std::string> FleetRun::ArgumentsFor(const FleetTask& task) const {
  const TaskNames names(task, flags_.command);
  std::vector<std::string> words = {flags_.command, task.path};
  if (!task.after_path.empty()) words.push_back(task.after_path);
  words.insert(words.end(),
               {"--json", "--color", "never", "--threads", fmt::format("{}", threads_)});
  if (flags_.command == "convert") {
    words.insert(words.end(), {"-o", InOutput(names.model), "--force"});
    if (!StopsEarly(flags_.arguments)) {
      words.insert(words.end(), {"--report", InOutput(names.report)});
    }
  }
  words.insert(words.end(), flags_.arguments.begin(), flags_.arguments.end());
  return words;
}

absl::Status FleetRun::Start(size_t k, Processes* processes) {
  const FleetTask& task = tasks_[k];
  const TaskNames names(task, flags_.command);
  const std::string document = InOutput(names.document);
  KV_RETURN_IF_ERROR(MakeFolders(fs::path(document).parent_path().string()));
  // A signal that ends this process ends those of the models, too.
  for (const std::string& path : {document + kUnfinished, InOutput(names.log)}) {
    unfinished_[k].push_back(NoteTemporary(path));
  }
  // The document gets its name when it is known to be one.
  const absl::Status started =
      processes->Start(k, ArgumentsFor(task), document + kUnfinished, InOutput(names.log));
  if (!started.ok()) {
    RemoveUnfinished(k);
    Forget(k);
  }
  return started;
}

void FleetRun::Forget(size_t k) {
  for (const int slot : unfinished_[k]) ForgetTemporary(slot);
  unfinished_.erase(k);
}

void FleetRun::RemoveUnfinished(size_t k) const {
  const TaskNames names(tasks_[k], flags_.command);
  std::error_code error;
  fs::remove(InOutput(names.document + kUnfinished), error);
  fs::remove(InOutput(names.log), error);
}

FleetResult FleetRun::End(size_t k, const ProcessEnd& end) {
  Forget(k);
  const FleetTask& task = tasks_[k];
  const TaskNames names(task, flags_.command);
  const std::string document = InOutput(names.document), log = InOutput(names.log);
  FleetResult result = results_[k];
  const ProcessOutput printed{ReadPrinted(document + kUnfinished), ReadPrinted(log)};
  const bool answered = Judge(end, printed, &result);
  std::error_code error;
  if (WIFSIGNALED(end.status)) {
    RemoveTemporaries(fs::path(document).parent_path().string(), end.pid);
  }
  if (answered) fs::rename(document + kUnfinished, document, error);
  if (answered && !error) {
    result.document = names.document;
  } else {
    fs::remove(document + kUnfinished, error);
    fs::remove(document, error);  // that of an earlier run
  }
  if (printed.errors.empty()) {
    fs::remove(log, error);
  } else {
    result.log = names.log;
  }
  if (flags_.command == "convert") {
    const bool wrote = result.outcome.rfind("converted", 0) == 0 || result.outcome == "partial";
    const bool stops = StopsEarly(flags_.arguments);
    if (wrote && !stops && fs::exists(InOutput(names.model), error)) result.output = names.model;
    if (answered && !stops && fs::exists(InOutput(names.report), error)) {
      result.report = names.report;
    }
  }
  ListFiles(printed.document, &result);
  return result;
}

absl::Status FleetRun::Finish(size_t k, FleetResult result, ResultsLog* log) {
  ++done_;
  if (!flags_.common.quiet) {
    std::string line = fmt::format("[{}/{}] {} {}", done_, tasks_.size(), result.outcome,
                                   EscapeTerminal(result.model));
    if (flags_.common.verbose) {
      line += fmt::format(" ({:.1f} s, {})", result.seconds, BytesText(result.peak_memory_bytes));
    }
    if (!result.reason.empty()) {
      line += ": " + Shorten(EscapeTerminal(result.reason), kMostReasonShown);
    }
    io_.err << line << "\n" << std::flush;
  }
  results_[k] = std::move(result);
  return log->Add(results_[k]);
}

absl::StatusOr<std::vector<FleetResult>> FleetRun::Work(ResultsLog* log) {
  std::set<size_t> running;
  const absl::Status worked = WorkOnAll(log, &running);
  // The processes have ended, and nobody will name what they have written.
  for (const size_t k : running) RemoveUnfinished(k);
  KV_RETURN_IF_ERROR(worked);
  return results_;
}

absl::Status FleetRun::WorkOnAll(ResultsLog* log, std::set<size_t>* running) {
  const double bytes = flags_.memory_gib * static_cast<double>(int64_t{1} << 30);
  Processes processes({static_cast<int64_t>(bytes), flags_.timeout_seconds});
  if (io_.progress != nullptr) io_.progress->Stop();  // the lines of models show the progress
  size_t kept = 0;
  for (size_t next = 0; next < tasks_.size() || processes.running() > 0;) {
    if (next == tasks_.size() || processes.running() == jobs_) {
      const auto [k, end] = processes.WaitForOne();
      running->erase(k);
      KV_RETURN_IF_ERROR(Finish(k, End(k, end), log));
      continue;
    }
    const size_t k = next++;
    results_[k] = Begin(tasks_[k], &processes);
    if (const FleetResult* stored = Stored(results_[k]); stored != nullptr) {
      const FleetResult begun = std::exchange(results_[k], *stored);
      results_[k].index = begun.index;
      results_[k].of = begun.of;
      ++kept, ++done_;
      continue;
    }
    const absl::Status started = Start(k, &processes);
    if (started.ok()) {
      running->insert(k);
    } else {
      FleetResult result = results_[k];
      result.outcome = "not-written";
      result.exit_code = kUnwritable;
      result.reason = ToValidUtf8(std::string(started.message()));
      KV_RETURN_IF_ERROR(Finish(k, std::move(result), log));
    }
  }
  if (kept > 0 && !flags_.common.quiet) {
    io_.err << fmt::format("{} of {} results are those of earlier runs\n", kept, tasks_.size());
  }
  return absl::OkStatus();
}

}  // namespace kvlift::cli
