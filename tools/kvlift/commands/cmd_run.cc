#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/comparison.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/inputs/tensor_files.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/documents.h"
#include "kvlift/texts.h"
#include "report/text/table.h"
#include "rewrite/lower/key_value_cache.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

struct OutputLine {
  std::string name, type, shape;
  std::optional<ValueComparison> compared;
};

struct StepLines {
  std::string name;  // empty: the only step
  std::vector<OutputLine> outputs;
};

// A failure and its exit code. If the status is OK, the failure was printed already.
struct Failure {
  ExitCode code;
  absl::Status status;
};

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return kInconclusive;
    case absl::StatusCode::kFailedPrecondition:
      return kFindings;
    case absl::StatusCode::kInternal:
      return kInternal;
    default:
      return kUnreadable;
  }
}

Failure FailureOf(const absl::Status& status) { return {ExitCodeOf(status), status}; }

// Returns the failure of a model that the executor refuses.
Failure NotRun(const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  const bool refused = code == kInconclusive || code == kUnreadable;
  return {code, refused ? CodedIfNone("KV401", status) : status};
}

class Runner {
 public:
  Runner(const RunFlags& flags, Io io) : flags_(flags), io_(io) {}

  // Returns nullopt on success.
  std::optional<Failure> Run(const Model& model) {
    auto graph = Graph::Build(model.proto);
    if (!graph.ok()) return FailureOf(graph.status());
    graph_ = std::make_shared<const Graph>(*std::move(graph));
    if (auto failure = ReadAllInputs()) return failure;
    if (auto failure = FindCaches(model)) return failure;
    if (auto failure = CheckComplete()) return failure;
    auto program = exec::Program::Compile(graph_, OptionsFor(model));
    if (!program.ok()) return NotRun(program.status());
    program_ = *program;
    if (flags_.trace) io_.StopProgress();  // keep the progress line away from the trace
    if (flags_.trace) TraceAliasing();
    exec::Session session(program_);
    io_.Say("running");
    if (flags_.trace) session.set_observer([this](NodeId n, auto outputs) { Trace(n, outputs); });
    for (size_t k = 0; k < feeds_.size(); ++k) {
      if (auto failure = Step(k, session)) return failure;
    }
    memory_ = session.memory();
    if (const absl::Status may = MayWrite(model); !may.ok()) {
      return Failure{kUnwritable, may};
    }
    const absl::Status written = WriteOutputs(files_);
    if (!written.ok()) return Failure{kUnwritable, written};
    return std::nullopt;
  }

  // Returns OK if no output takes the place of what was read. Outputs of an earlier run are
  // replaced; those beside the inputs may be recorded ones, which takes --force.
  absl::Status MayWrite(const Model& model) const {
    std::error_code error;
    bool beside = false;
    for (size_t k = 0; k < names_.size(); ++k) {
      const std::string inputs = In(flags_.inputs.empty() ? flags_.steps : flags_.inputs, k);
      beside = beside || fs::equivalent(inputs, In(flags_.outputs, k), error);
    }
    OutputGuard guard(flags_.force || !beside);
    guard.ReadsModel(model);
    guard.ReadsManifestBeside(model.path);
    for (size_t k = 0; !flags_.expect.empty() && k < names_.size(); ++k) {
      for (size_t v = 0; v < graph_->graph_outputs().size(); ++v) {
        guard.Reads((fs::path(In(flags_.expect, k)) / fmt::format("output_{}.pb", v)).string());
      }
    }
    return guard.Check(files_);
  }

  bool AllEqual() const {
    for (const StepLines& step : lines_) {
      for (const OutputLine& o : step.outputs) {
        if (o.compared && !o.compared->equal) return false;
      }
    }
    return true;
  }

  void Print() const {
    if (flags_.common.json) {
      PrintJson(io_, Document());
    } else if (!flags_.common.quiet) {
      io_.Results() << Text();
    }
  }

 private:
  std::string In(const std::string& folder, size_t step) const {
    return names_[step].empty() ? folder : (fs::path(folder) / names_[step]).string();
  }

  std::optional<Failure> ReadAllInputs() {
    names_ = {""};
    if (!flags_.steps.empty()) {
      auto names = StepFolders(flags_.steps);
      if (!names.ok()) return FailureOf(names.status());
      names_ = *std::move(names);
    }
    const std::string& folder = flags_.steps.empty() ? flags_.inputs : flags_.steps;
    for (size_t k = 0; k < names_.size(); ++k) {
      feeds_.emplace_back();
      if (folder.empty()) continue;
      auto feeds = ReadInputs(In(folder, k), *graph_);
      if (!feeds.ok()) return FailureOf(feeds.status());
      feeds_.back() = *std::move(feeds);
    }
    return std::nullopt;
  }

  // Finds the caches whose values are passed from step to step: those of the manifest, if there is
  // one; otherwise, if a later step lacks an input, those that are recognised in the graph.
  std::optional<Failure> FindCaches(const Model& model) {
    bool broken = false;
    const auto manifest = ManifestOf(io_, "", model, &broken);
    if (broken) return Failure{kUnreadable, absl::OkStatus()};
    if (manifest) {
      for (const ManifestCache& c : manifest->caches) pairs_.push_back({c.input, c.output});
      for (size_t k = 1; k < feeds_.size(); ++k) {
        for (const exec::CachePair& pair : pairs_) feeds_[k].erase(pair.input);
      }
      return std::nullopt;
    }
    const size_t wanted = graph_->graph_inputs().size();
    const auto lacks = [&](const exec::Feeds& feeds) { return feeds.size() < wanted; };
    if (std::none_of(feeds_.begin(), feeds_.end(), lacks) && flags_.alias != "required") {
      return std::nullopt;
    }
    const auto inspection = Inspect(model, AllRules());
    if (!inspection.ok()) return FailureOf(inspection.status());
    for (const ValueId v : graph_->graph_outputs()) {
      const ValueId past = PackedPast(*graph_, v);
      if (past != kNoValue && past != v) pairs_.push_back({graph_->name(past), graph_->name(v)});
    }
    const auto known = [&](const CacheReport& c) {
      return std::any_of(pairs_.begin(), pairs_.end(),
                         [&](const exec::CachePair& pair) { return pair.input == c.input; });
    };
    for (const CacheReport& c : inspection->caches) {
      if (!c.input.empty() && !c.output.empty() && !known(c)) pairs_.push_back({c.input, c.output});
    }
    return std::nullopt;
  }

  // Checks that every input has a value: from its folder or, for a cache after the first step, from
  // the previous step.
  std::optional<Failure> CheckComplete() const {
    for (size_t k = 0; k < feeds_.size(); ++k) {
      for (const ValueId v : graph_->graph_inputs()) {
        const std::string& name = graph_->name(v);
        const bool threaded = k > 0 && std::any_of(pairs_.begin(), pairs_.end(),
                                                   [&](const auto& p) { return p.input == name; });
        if (threaded || feeds_[k].count(name) > 0) continue;
        return Failure{kUsage, absl::InvalidArgumentError(fmt::format(
                                   "{}no value for input {}; give it with --inputs or --steps",
                                   names_[k].empty() ? "" : "step " + names_[k] + ": ", name))};
      }
    }
    return std::nullopt;
  }

  exec::CompileOptions OptionsFor(const Model& model) const {
    exec::CompileOptions options;
    options.caches = pairs_;
    options.alias = flags_.alias == "off"        ? exec::AliasMode::kOff
                    : flags_.alias == "required" ? exec::AliasMode::kRequired
                    : flags_.alias == "guard"    ? exec::AliasMode::kGuard
                    : flags_.alias == "poison"   ? exec::AliasMode::kPoison
                                                 : exec::AliasMode::kAuto;
    options.order = flags_.order == "fast" ? exec::Order::kFast : exec::Order::kCanonical;
    options.threads = flags_.common.threads;
    options.base_dir = model.base_dir;
    options.release_packed_weights = true;
    options.fuse = !flags_.trace;
    options.fetch_caches = false;
    options.pack_weights = !flags_.no_pack;
    return options;
  }

  std::optional<Failure> Step(size_t k, exec::Session& session) {
    exec::Fetches fetches;
    if (const auto status = session.Step(feeds_[k], &fetches); !status.ok()) {
      return NotRun(names_[k].empty() ? status : Prefixed("step " + names_[k], status));
    }
    for (const exec::CachePair& pair : pairs_) {
      auto cache = session.Cache(pair.input);
      if (!cache.ok()) return FailureOf(cache.status());
      fetches[pair.output] = *std::move(cache);
    }
    exec::Fetches expected;
    if (!flags_.expect.empty()) {
      auto read = ReadOutputs(In(flags_.expect, k), *graph_);
      if (!read.ok()) return FailureOf(read.status());
      expected = *std::move(read);
    }
    lines_.push_back({names_[k], {}});
    for (const ValueId v : graph_->graph_outputs()) {
      const std::string& name = graph_->name(v);
      const exec::View& view = fetches[name].view();
      OutputLine line{name, KindName(view), exec::ShapeString(view.shape), {}};
      if (const auto want = expected.find(name); want != expected.end()) {
        line.compared = Compare(view, want->second.view(),
                                {flags_.rtol, flags_.atol, IsOnnxTestData(flags_.expect)});
      }
      lines_.back().outputs.push_back(std::move(line));
    }
    if (!flags_.outputs.empty()) {
      for (OutputFile& file : OutputFiles(In(flags_.outputs, k), *graph_, fetches)) {
        files_.push_back(std::move(file));
      }
    }
    return std::nullopt;
  }

  void TraceAliasing() {
    for (const exec::AliasDecision& d : program_->aliasing()) {
      io_.err << fmt::format("{} -> {}: {} ({})\n", EscapeTerminal(d.pair.input),
                             EscapeTerminal(d.pair.output), d.aliased ? "in place" : "copied",
                             EscapeTerminal(d.reason));
    }
  }

  void Trace(NodeId n, absl::Span<const exec::View> outputs) {
    const Graph& graph = program_->graph();
    std::string line = fmt::format("{} {}", graph.node(n).op_type(), graph.NodeName(n));
    for (const exec::View& view : outputs) {
      if (view.absent()) continue;
      line += fmt::format("  {} {}", KindName(view), exec::ShapeString(view.shape));
    }
    io_.err << EscapeTerminal(line) << "\n";
  }

  nlohmann::ordered_json Document() const {
    nlohmann::ordered_json json = {{"schema", "kvlift/run/1"}};
    json["equal"] = nullptr;
    if (!flags_.expect.empty()) json["equal"] = AllEqual();
    json["steps"] = nlohmann::ordered_json::array();
    for (const StepLines& step : lines_) {
      nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
      for (const OutputLine& o : step.outputs) {
        outputs.push_back({{"name", o.name}, {"dtype", o.type}, {"shape", o.shape}});
        outputs.back()["equal"] = nullptr;
        if (!o.compared) continue;
        outputs.back()["equal"] = o.compared->equal;
        outputs.back()["max_abs"] = o.compared->max_abs;
        outputs.back()["max_rel"] = o.compared->max_rel;
        outputs.back()["difference"] = o.compared->text;
      }
      json["steps"].push_back({{"step", step.name}, {"outputs", std::move(outputs)}});
    }
    json["aliasing"] = nlohmann::ordered_json::array();
    for (const exec::AliasDecision& d : program_->aliasing()) {
      json["aliasing"].push_back({{"input", d.pair.input},
                                  {"output", d.pair.output},
                                  {"aliased", d.aliased},
                                  {"reason", d.reason},
                                  {"readers", d.readers}});
    }
    json["memory"] = MemoryDocument(memory_);
    return json;
  }

  std::string Text() const {
    std::vector<std::vector<std::string>> rows;
    for (const StepLines& step : lines_) {
      for (const OutputLine& o : step.outputs) {
        rows.push_back({step.name, o.name, o.type, o.shape, "", ""});
        if (!o.compared) continue;
        rows.back()[4] = fmt::format("{:.2e}", o.compared->max_abs);
        rows.back()[5] = o.compared->equal ? "equal" : o.compared->text;
      }
    }
    std::string text = FormatTable(
        {"step", "output", "type", "shape", {"largest difference", Align::kRight}, "result"}, rows,
        io_.OutStyle(), ToneOfCell);
    text += fmt::format("run: {} steps{}\n", lines_.size(),
                        flags_.expect.empty() ? ""
                        : AllEqual()          ? ", as expected"
                                              : ", NOT as expected: " + FirstDifference());
    return text;
  }

  std::string FirstDifference() const {
    for (const StepLines& step : lines_) {
      for (const OutputLine& o : step.outputs) {
        if (!o.compared || o.compared->equal) continue;
        return fmt::format("{}{}: {}", step.name.empty() ? "" : "step " + step.name + ", ",
                           EscapeTerminal(o.name), EscapeTerminal(o.compared->text));
      }
    }
    return {};
  }

  const RunFlags& flags_;
  mutable Io io_;
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const exec::Program> program_;
  exec::MemoryUse memory_;
  std::vector<std::string> names_;
  std::vector<exec::Feeds> feeds_;
  std::vector<exec::CachePair> pairs_;
  std::vector<StepLines> lines_;
  std::vector<OutputFile> files_;
};

}  // namespace

int RunRun(const RunFlags& flags, Io io) {
  if (!flags.inputs.empty() && !flags.steps.empty()) {
    Complain(io, "", "--inputs and --steps exclude each other");
    return kUsage;
  }
  const auto model = Load(io, flags.model, flags.common);
  if (!model) return kUnreadable;
  Runner runner(flags, io);
  if (const auto failure = runner.Run(*model)) {
    if (!failure->status.ok()) Complain(io, flags.model, failure->status);
    return failure->code;
  }
  runner.Print();
  return runner.AllEqual() ? kDone : kFindings;
}

}  // namespace kvlift::cli
