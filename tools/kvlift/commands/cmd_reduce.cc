#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/fleet/child_options.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/inputs/tensor_files.h"
#include "kvlift/outputs.h"
#include "kvlift/reduce/process_trials.h"
#include "kvlift/reduce/reduce_text.h"
#include "onnxio/bytes/folders.h"
#include "report/text/bytes.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// Each process has files that are noted for removal by a signal (onnxio/files/cleanup.h).
constexpr int kMostProcesses = 8;
constexpr size_t kMostTextShown = 300;

std::string CommandFor(const ReduceFlags& flags) {
  return flags.models.size() == 2 ? "verify" : "convert";
}

// Returns what is wrong with the command line; empty if nothing is.
std::string WhyNot(const ReduceFlags& flags) {
  for (const std::string& path : flags.models) {
    if (path == "-") return "-: models are read from files";
  }
  if (flags.models.size() < 2 && !flags.manifest.empty()) return "--manifest is for a pair";
  return WhyNotOptions("reduce", CommandFor(flags), flags.arguments);
}

// Returns the flags by which a process reads as this one does.
std::vector<std::string> ReadingArguments(const LoadOptions& load) {
  std::vector<std::string> words;
  if (load.data.hard_links) words.emplace_back("--trust-links");
  if (!load.data.links) words.emplace_back("--strict-links");
  const Limits usual;
  for (const LimitInfo& limit : AllLimits()) {
    if (load.limits.*limit.value == usual.*limit.value) continue;
    words.push_back(fmt::format("--{}", limit.flag));
    words.push_back(fmt::format("{}", load.limits.*limit.value));
  }
  return words;
}

// One run of the command.
class ReduceRun {
 public:
  ReduceRun(const ReduceFlags& flags, Io& io, TrialFolder* folder)
      : flags_(flags), io_(io), folder_(folder), guard_(flags.force) {}

  int Run() {
    if (const int code = FindProperty(); code != kDone) return code;
    if (property_->Word() == "crash" && !ReadsWithoutCrash()) {
      return Refuse(flags_.models[0],
                    "kvlift crashes when it reads the model, so that it cannot be taken apart",
                    kFindings);
    }
    if (const int code = LoadSubjects(); code != kDone) return code;
    if (const absl::Status may = CheckOutputs(); !may.ok()) {
      Complain(io_, "", may);
      return kUnwritable;
    }
    PrintProperty();
    return Shrink();
  }

 private:
  bool pair() const { return flags_.models.size() == 2; }

  int Refuse(const std::string& what, std::string_view why, ExitCode code) {
    Complain(io_, what, why);
    return code;
  }

  int CannotWrite(const absl::Status& status) {
    Complain(io_, flags_.output, status);
    return kUnwritable;
  }

  TrialOptions Options() const {
    const auto machine = std::max(1U, std::thread::hardware_concurrency());
    TrialOptions options;
    options.jobs = flags_.jobs > 0 ? static_cast<size_t>(flags_.jobs)
                                   : std::min(machine, static_cast<unsigned>(kMostProcesses));
    options.threads = std::max(1, flags_.common.threads);
    options.arguments = ReadingArguments(flags_.common.load);
    options.arguments.insert(options.arguments.end(), flags_.arguments.begin(),
                             flags_.arguments.end());
    options.limits.memory_bytes =
        static_cast<int64_t>(flags_.memory_gib * static_cast<double>(int64_t{1} << 30));
    options.limits.seconds = flags_.timeout_seconds;
    options.budget_seconds = flags_.budget_seconds;
    return options;
  }

  // Runs the command on the given files, and decides what is kept.
  int FindProperty() {
    TrialOptions options = Options();
    options.limits.seconds = std::max(options.limits.seconds, options.budget_seconds);
    options.data_folders = flags_.common.load.data_folders;
    if (!flags_.manifest.empty()) {
      options.arguments.insert(options.arguments.begin(), {"--manifest", flags_.manifest});
    }
    io_.Say("running " + CommandFor(flags_));
    const auto seen = ProcessTrials(options, folder_).RunOn(flags_.models);
    if (!seen.ok()) return CannotWrite(seen.status());
    if (ReachedLimit(*seen)) return LimitTooSmall(seen->result);
    property_ = Property::Of(*seen, flags_.keep);
    if (!property_) return NotShown(seen->result);
    if (property_->Word() == "crash" && options.limits.memory_bytes > 0) {
      // A library may crash where it gets no memory.
      options.limits.memory_bytes *= 2;
      const auto again = ProcessTrials(std::move(options), folder_).RunOn(flags_.models);
      if (!again.ok()) return CannotWrite(again.status());
      if (!property_->IsShown(*again)) return LimitTooSmall(seen->result);
    }
    given_ = seen->result.reason;
    return kDone;
  }

  void PrintProperty() {
    if (flags_.common.quiet) return;
    io_.progress->Stop();
    // The text begins with the code, which the property names as well.
    std::string_view text = given_;
    if (!property_->code().empty() && text.starts_with(property_->code())) {
      text.remove_prefix(property_->code().size());
      text.remove_prefix(std::min(text.find_first_not_of(": "), text.size()));
    }
    io_.err << fmt::format("keeps: {}{}{}\n", property_->Text(), text.empty() ? "" : ": ",
                           Shorten(EscapeTerminal(text), kMostTextShown));
  }

  // A limit of this run is the cause of what the command says.
  int LimitTooSmall(const FleetResult& result) {
    if (flags_.common.json) PrintJson(io_, NotShownDocument(result.outcome, result.reason));
    const bool time = result.outcome == "timeout";
    const bool budget = time && *result.timeout_seconds > flags_.timeout_seconds;
    return Refuse(flags_.models.back(),
                  fmt::format("{} {:g} is too small for {} to be tried: {}",
                              !time    ? "--memory"
                              : budget ? "--budget"
                                       : "--timeout",
                              !time    ? flags_.memory_gib
                              : budget ? flags_.budget_seconds
                                       : flags_.timeout_seconds,
                              pair() ? "the models" : "the model", result.reason),
                  kUnreadable);
  }

  // The models do not show what is to be kept, or cannot be read.
  int NotShown(const FleetResult& result) {
    if (result.exit_code == kUnreadable && flags_.keep.empty()) {
      return Refuse("", result.reason, kUnreadable);
    }
    if (flags_.common.json) PrintJson(io_, NotShownDocument(result.outcome, result.reason));
    const std::string why = result.reason.empty() ? "" : " (" + result.reason + ")";
    return Refuse(
        flags_.models.back(),
        fmt::format("{} says {}{}: nothing to reduce{}", CommandFor(flags_), result.outcome, why,
                    flags_.keep.empty() ? "" : " with --keep " + flags_.keep),
        kFindings);
  }

  // Reads the models in a process, which a crash may end.
  bool ReadsWithoutCrash() {
    Processes processes(Options().limits);
    for (const std::string& path : flags_.models) {
      const absl::Status started = processes.Start(0, {"check", path, "--quiet", "--exit-zero"},
                                                   folder_->File("0.out"), folder_->File("0.err"));
      if (!started.ok() || processes.WaitForOne().second.status != 0) return false;
    }
    return true;
  }

  // Refuses files that may not be written before the work, which is long. A subject that is written
  // has these files, and some that are named by their content.
  absl::Status CheckOutputs() const {
    const std::vector<std::string> names =
        pair() ? std::vector<std::string>{"before.onnx", "after.onnx", "after.kv.json", "README.md"}
               : std::vector<std::string>{"model.onnx", "README.md"};
    std::vector<std::string> paths;
    paths.reserve(names.size());
    for (const std::string& name : names) paths.push_back(fs::path(flags_.output) / name);
    return guard_.Check(paths);
  }

  // Finds the subject, written anew, that shows the property: of pairs without a manifest, with the
  // first relation that does.
  int LoadSubjects() {
    std::vector<Subject> subjects;
    guard_.Reads(flags_.manifest);
    for (const std::string& path : flags_.models) guard_.ReadsManifestBeside(path);
    if (pair()) {
      auto loaded =
          LoadPair(io_, flags_.models[0], flags_.models[1], flags_.manifest, flags_.common);
      if (!loaded) return kUnreadable;
      guard_.ReadsModel(loaded->before);
      guard_.ReadsModel(loaded->after);
      std::vector<Manifest> relations = std::move(loaded->inferred);
      if (relations.empty()) relations.push_back(std::move(loaded->relation));
      for (Manifest& relation : relations) {
        Subject& subject = subjects.emplace_back();
        subject.model = loaded->before;
        subject.conversion = {loaded->after, std::move(relation)};
      }
    } else {
      auto model = Load(io_, flags_.models[0], flags_.common);
      if (!model) return kUnreadable;
      guard_.ReadsModel(*model);
      subjects.emplace_back().model = *std::move(model);
    }
    TrialOptions options = Options();
    AddDataFolders(subjects[0], &options);
    trials_.emplace(std::move(options), folder_);
    for (Subject& subject : subjects) {
      const auto seen = trials_->RunOn(subject);
      if (!seen.ok()) return CannotWrite(seen.status());
      if (ReachedLimit(*seen)) return LimitTooSmall(seen->result);
      if (!property_->IsShown(*seen)) continue;
      subject_ = std::move(subject);
      return kDone;
    }
    return Refuse(flags_.models.back(),
                  fmt::format("a copy that kvlift writes is no longer {}: nothing to reduce",
                              property_->Text()),
                  kFindings);
  }

  void AddDataFolders(const Subject& subject, TrialOptions* options) const {
    options->data_folders = flags_.common.load.data_folders;
    if (!options->data_folders.empty()) return;
    std::vector<const Model*> models = {&subject.model};
    if (subject.is_pair()) models.push_back(&subject.conversion->model);
    for (const Model* model : models) {
      if (model->external_bytes == 0) continue;
      options->data_folders.push_back(model->base_dir.empty() ? "." : model->base_dir);
    }
  }

  int Shrink() {
    trials_->Keep(*property_);
    ReduceResult result{pair(), *property_, "", flags_.arguments, SizeOf(subject_), {}, true, {}};
    ReduceOptions options;
    if (property_->Word() == "crash") options.types = TypesFrom::kOnnx;
    options.say = [&](std::string_view what, const Subject& now) {
      const SubjectSize size = SizeOf(now);
      const std::string line =
          fmt::format("{} nodes, {} (without {})", size.nodes, BytesText(size.bytes), what);
      io_.Say("reducing: " + line);
      if (!flags_.common.verbose || flags_.common.quiet) return;
      io_.progress->Stop();
      io_.err << line << "\n" << std::flush;
    };
    io_.Say("reducing");
    auto reduced = Reduce(std::move(subject_), &*trials_, options);
    if (!trials_->status().ok()) return CannotWrite(trials_->status());
    if (!reduced.ok()) {
      Complain(io_, flags_.models[0], reduced.status());
      return kUnreadable;
    }
    if (flags_.common.verbose && !flags_.common.quiet) {
      io_.err << fmt::format("{} candidates were tried\n", trials_->count());
    }
    result.complete = !trials_->over();
    return Write(*std::move(reduced), std::move(result));
  }

  int Write(Subject reduced, ReduceResult result) {
    auto model = WithoutFiles(reduced.model);
    if (!model.ok()) return CannotWrite(model.status());
    reduced.model = *std::move(model);
    if (reduced.is_pair()) {
      auto after = WithoutFiles(reduced.conversion->model);
      if (!after.ok()) return CannotWrite(after.status());
      reduced.conversion->model = *std::move(after);
    }
    const auto seen = trials_->RunOn(reduced);
    if (!seen.ok()) return CannotWrite(seen.status());
    if (ReachedLimit(*seen)) return LimitTooSmall(seen->result);
    if (!property_->IsShown(*seen)) {
      return Refuse(flags_.output, "nothing written: the result does not show it any more",
                    kInternal);
    }
    // Messages may name the file that was tried.
    result.observed = absl::StrReplaceAll(seen->result.reason, {{folder_->path() + "/0-", ""}});
    result.after = SizeOf(reduced);
    auto files = trials_->FilesOf(reduced, flags_.output);
    if (!files.ok()) return CannotWrite(files.status());
    files->push_back({(fs::path(flags_.output) / "README.md").string(), ReadmeOf(result)});
    if (const absl::Status may = guard_.Check(*files); !may.ok()) {
      Complain(io_, "", may);
      return kUnwritable;
    }
    if (const absl::Status written = WriteOutputs(*files); !written.ok()) {
      return CannotWrite(written);
    }
    for (const OutputFile& file : *files) result.outputs.push_back(file.path);
    if (flags_.common.json) {
      PrintJson(io_, DocumentOf(result));
    } else if (!flags_.common.quiet) {
      io_.Results() << TextOf(result);
    }
    return kDone;
  }

  const ReduceFlags& flags_;
  Io& io_;
  TrialFolder* const folder_;
  OutputGuard guard_;
  std::optional<Property> property_;
  std::string given_;  // what `verify` or `convert` says of the given models; may be empty
  std::optional<ProcessTrials> trials_;
  Subject subject_;
};

}  // namespace

void AddReduceFlags(CLI::App* command, ReduceFlags* flags) {
  command
      ->add_option("model", flags->models,
                   "A model that is refused or crashes, or BEFORE and AFTER that differ")
      ->required()
      ->expected(1, 2);
  command->add_option("-o,--output", flags->output, "The folder to write")
      ->required()
      ->check(FolderNameError);
  command
      ->add_option("--keep", flags->keep,
                   "What is kept: a code, different, inconclusive or crash; by default what "
                   "verify or convert says")
      ->check(KeepWordError);
  command->add_option("--jobs", flags->jobs, "Trials at once; 0: as many as processors")
      ->check(CLI::Range(0, kMostProcesses));
  command->add_option("--memory", flags->memory_gib, "GiB that each trial may allocate")
      ->check(AboveZero());
  command->add_option("--timeout", flags->timeout_seconds, "Seconds for each trial")
      ->check(AboveZero());
  command->add_option("--budget", flags->budget_seconds, "Seconds for all trials together")
      ->check(AboveZero());
  command->add_option("--manifest", flags->manifest, "The relation, if not beside AFTER");
  command->add_flag("--force", flags->force, "Write into a folder that is not empty");
}

int RunReduce(const ReduceFlags& flags, Io io) {
  if (const std::string why = WhyNot(flags); !why.empty()) {
    Complain(io, "", why);
    return kUsage;
  }
  std::error_code error;
  if (fs::exists(flags.output, error) && !fs::is_directory(flags.output, error)) {
    Complain(io, flags.output, "is no folder");
    return kUnwritable;
  }
  if (!flags.force && !IsFreeForFolder(flags.output)) {
    Complain(io, flags.output, "exists and is not empty; --force writes into it");
    return kUnwritable;
  }
  const auto folder = TrialFolder::Make();
  if (!folder.ok()) {
    Complain(io, "", folder.status());
    return kUnwritable;
  }
  return ReduceRun(flags, io, folder->get()).Run();
}

}  // namespace kvlift::cli
