#include "kvlift/cli.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/findings.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/fleet/flags.h"
#include "kvlift/help.h"
#include "kvlift/inputs/conversion.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/saved_documents.h"
#include "kvlift/reports/verify_formats.h"
#include "kvlift/shell_files.h"
#include "kvlift/usage.h"
#include "verify/variants/drawn_weights.h"

namespace kvlift::cli {
namespace {

// Adds --save, with a check of each value.
void AddSave(CLI::App* app, std::vector<std::string>* save, std::vector<std::string> formats) {
  app->add_option("--save", *save, "Also write FORMAT=FILE; may be repeated")
      ->check([formats = std::move(formats)](const std::string& text) {
        return std::string(ReadSaved(text, formats).status().message());
      });
}

CLI::Validator FileName() { return {OutputNameError, ""}; }

CLI::Validator OneOf(std::vector<std::string> words) { return CLI::IsMember(std::move(words)); }

// Returns an empty string, or that no code of a finding begins so.
std::string BeginsCode(const std::string& text) {
  const auto findings = AllFindings();
  const bool begins =
      !text.empty() && std::any_of(findings.begin(), findings.end(), [&](const FindingInfo& info) {
        return info.code.starts_with(text);
      });
  return begins ? "" : fmt::format("no code begins with \"{}\"", text);
}

// Returns an empty string, or what is wrong with a seed.
std::string IsSeed(const std::string& text) {
  uint64_t seed = 0;
  return absl::SimpleAtoi(text, &seed) ? "" : "needs a whole number from 0 on, found " + text;
}

// Returns an empty string, or what is wrong with a value of --weights.
std::string IsWeights(const std::string& words) {
  return std::string(ReadWeights(words).status().message());
}

ColorChoice ChoiceOf(const std::string& word) {
  return word == "always"  ? ColorChoice::kAlways
         : word == "never" ? ColorChoice::kNever
                           : ColorChoice::kAuto;
}

// Returns the progress line of a command, which is shown on a terminal and without --quiet.
std::shared_ptr<Progress> ProgressOf(const Io& io, const CommonFlags& flags) {
  const bool live = &io.err == &std::cerr && IsLiveTerminal(STDERR_FILENO);
  return std::make_shared<Progress>(STDERR_FILENO, live && !flags.quiet);
}

// The commands and their flags. `chosen` runs what the parsed command line asks for.
struct Program {
  explicit Program(Io streams) : io(streams) {
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string(kVersion));
    app.formatter(MakeHelpFormatter());
    app.set_help_flag("-h,--help", "Print this help");
    app.set_help_all_flag("--help-all", "Also limits and rarely used options");
    app.failure_message(CLI::FailureMessage::simple);
    AddInspect();
    AddConvert();
    AddCheck();
    AddVerify();
    AddRecord();
    AddRun();
    AddBench();
    AddDiff();
    AddReport();
    AddExplain();
    AddEmitLoop();
    AddEmitMaintenance();
    AddMetadataFlags(Command("metadata", "Name the inputs and outputs of static caches, as YAML",
                             &metadata, &RunMetadata),
                     &metadata);
    AddLowerFlags(
        Command("lower", "Bring a model down to runtimes without opset 24", &lower, &RunLower),
        &lower);
    AddReduceFlags(Command("reduce", "Shrink models that differ, are refused or crash kvlift",
                           &reduce, &RunReduce),
                   &reduce);
    AddFleet();
    AddShellFiles();
    auto* version = app.add_subcommand("version", "Print the version");
    version->footer(ExamplesOf("version"));
    version->callback([this] {
      chosen = [this] {
        io.out << "kvlift " << kVersion << "\n";
        return int{kDone};
      };
    });
  }

  template <typename Flags>
  CLI::App* Command(const char* name, const char* help, Flags* flags,
                    int (*function)(const Flags&, Io), bool reads_models = true) {
    CLI::App* command = app.add_subcommand(name, help);
    command->footer(ExamplesOf(name));
    AddOutputFlags(command, &flags->common);
    if (reads_models) AddReadingFlags(command, &flags->common);
    command->callback([this, flags, function] {
      chosen = [this, flags, function] {
        io.color = ChoiceOf(flags->common.color);
        io.progress = ProgressOf(io, flags->common);
        const int code = function(*flags, io);
        if (flags->common.json && !io.reported->results) PrintErrorDocument(io, code);
        return code;
      };
    });
    return command;
  }

  void AddInspect() {
    auto* c =
        Command("inspect", "Find caches and attention; writes nothing", &inspect, &RunInspect);
    c->add_option("model", inspect.models, "Models (.onnx, .onnxtxt, - for stdin)")->required();
    c->add_flag("--details", inspect.details, "Also shapes, updates and node names");
    c->add_flag("--near-misses", inspect.near_misses, "Also values that resemble a cache");
  }

  void AddConvert() {
    auto& f = convert;
    auto* c = Command("convert", "Rewrite caches to TensorScatter and Attention", &f, &RunConvert);
    c->add_option("model", f.model, "The model to convert")->required();
    c->add_option("-o,--output", f.output, "Where to write the result")->check(FileName());
    c->parse_complete_callback([&f, c] {
      if (f.output.empty() && f.stop_after.empty()) throw CLI::RequiredError("--output");
      for (const char* form : {"--target", "--control", "--mask", "--read", "--padding",
                               "--io-names", "--layout", "--rotary", "--cache-tensors"}) {
        f.anew = f.anew || c->count(form) > 0;
      }
    });
    c->add_option("--max-seq-len", f.max_seq_len, "Capacity: a number, or 'dynamic'");
    c->add_option("--freeze", f.freeze, "Static shapes: batch=1,tokens=1|128")
        ->check([](const std::string& text) {
          return std::string(text.empty() ? "needs assignments such as batch=1,tokens=1" : "");
        });
    c->add_option("--target", f.target, "Runtime")
        ->check(OneOf({"spec", "ort", "genai", "genai-static", "tensorrt", "portable"}));
    c->add_option("--control", f.control, "Where the write index comes from")
        ->check(OneOf({"auto", "derived", "input"}));
    c->add_option("--mask", f.mask, "Form of the mask")
        ->check(OneOf({"auto", "causal", "explicit", "additive"}));
    c->add_option("--read", f.read, "Rows that attention reads")
        ->check(OneOf({"auto", "prefix", "full"}));
    c->add_option("--padding", f.padding, "Keep or drop the padding mask")
        ->check(OneOf({"auto", "keep", "none"}));
    c->add_option("--io-names", f.io_names, "Names of inputs and outputs")
        ->check(OneOf({"keep", "static"}))
        ->group(kOperatorsGroup);
    c->add_option("--layout", f.layout, "Layout of the caches")->check(OneOf({"keep", "bnsd"}));
    c->add_option("--cache-tensors", f.cache_tensors, "For sources with one tensor for all layers")
        ->check(OneOf({"per-layer", "packed"}))
        ->group(kOperatorsGroup);
    c->add_option("--rotary", f.rotary, "RoPE as RotaryEmbedding")
        ->check(OneOf({"auto", "keep", "fused"}))
        ->group(kOperatorsGroup);
    c->add_option("--rounding", f.rounding, "Attentions whose rounding would show (KV248)")
        ->check(OneOf({"keep", "free"}))
        ->group(kOperatorsGroup);
    c->add_option("--step-length", f.step_length, "Number of new tokens in a step (KV208)")
        ->check(OneOf({"any", "fixed"}))
        ->group(kOperatorsGroup);
    c->add_option("--mode", f.mode, "Whether rows may wrap around")
        ->check(OneOf({"linear", "circular"}));
    c->add_option("--window", f.window, "Sliding-window caches: full, or circular[:slots] as rings")
        ->group(kOperatorsGroup);
    c->add_option("--quantize-cache", f.quantize_cache,
                  "Quantised caches: int8:G, int8:channel, fp8");
    c->add_option("--external", f.external, "Files of external data")
        ->check(OneOf({"auto", "keep", "copy"}));
    c->add_option("--accept", f.accept, "The evidence without which nothing is written")
        ->check(OneOf({"proved", "tested", "unproved"}))
        ->group(kOperatorsGroup);
    c->add_option("--verify", f.verify, "Run all plans of verify: quick or full")
        ->expected(0, 1)
        ->default_str("quick")
        ->check(OneOf({"quick", "full"}));
    c->add_option("--weights", f.weights,
                  "Weights in files that --verify runs with: stored, or random[:SEED]")
        ->check(IsWeights)
        ->group(kOperatorsGroup);
    c->add_option("--only", f.only, "Convert only caches whose name matches a pattern");
    c->add_option("--skip", f.skip, "Leave caches whose name matches a pattern");
    auto* page = c->add_option("--report", f.report, "Write an HTML report")->check(FileName());
    c->add_option("--stop-after", f.stop_after, "End after a step, and write no model")
        ->check(OneOf({"lower", "recognise", "plan", "emit", "check", "prove"}))
        ->excludes(page)
        ->group(kOperatorsGroup);
    c->add_option("--dump-dir", f.dump_dir, "Folder for the result of each step, as text")
        ->group(kOperatorsGroup);
    c->add_flag("--tree-mask", f.tree_mask, "An input for trees of drafted tokens")
        ->group(kOperatorsGroup);
    c->add_flag("--allow-partial", f.allow_partial, "Convert what can be converted");
    c->add_flag("--dry-run", f.dry_run, "Do everything but write");
    c->add_flag("--force", f.force, "Overwrite existing outputs");
  }

  void AddCheck() {
    auto* c =
        Command("check", "Lint a model by the operator texts and its manifest", &check, &RunCheck);
    c->add_option("model", check.models, "Models")->required();
    c->add_option("--target", check.target, "Also by the rules of a runtime")
        ->check(OneOf({"spec", "ort", "genai", "genai-static", "tensorrt", "portable"}));
    AddFormat(c, "Output format", kFormats, &check.format, &check.common);
    AddSave(c, &check.save, kFormats);
    c->add_option("--select", check.select, "Only these codes")->delimiter(',')->check(BeginsCode);
    c->add_option("--ignore", check.ignore, "Not these codes")->delimiter(',')->check(BeginsCode);
    c->add_option("--manifest", check.manifest, "The manifest, if not beside the model");
    c->add_flag("--exit-zero", check.exit_zero, "Exit 0 in spite of findings");
    c->add_flag("--force", check.force, "Overwrite existing files of --save");
  }

  void AddVerify() {
    auto* c =
        Command("verify", "Prove or disprove that AFTER does what BEFORE did", &verify, &RunVerify);
    c->add_option("before", verify.before, "The source model")->required();
    c->add_option("after", verify.after, "The converted model")->required();
    c->add_option("--plan", verify.plan, "How much to run")->check(OneOf({"quick", "full"}));
    c->add_option("--accept", verify.accept,
                  "What counts as equal: proved models, or also tested ones")
        ->check(OneOf({"proved", "tested"}));
    c->add_option("--manifest", verify.manifest, "The relation, if not beside AFTER");
    c->add_flag("--whole", verify.whole, "Run the models whole, not layer by layer");
    c->add_option("--weights", verify.weights,
                  "Weights in files: stored, or random[:SEED], where structure is judged")
        ->check(IsWeights);
    c->add_option("--seed", verify.seed, "Seed of the stimuli")->check(IsSeed);
    c->add_option("--save-failure", verify.save_failure,
                  "Folder for the smallest step that differs, as run takes it");
    c->add_option("--obligations", verify.obligations,
                  "Folder for the proof's obligations, as SMT-LIB 2");
    c->add_option("--explorer", verify.explorer,
                  "File for Model Explorer: the distance of each node's values")
        ->check(FileName());
    AddFormat(c, "Output format", kFormats, &verify.format, &verify.common);
    AddSave(c, &verify.save, VerifyDocumentFormats());
    c->add_flag("--force", verify.force, "Overwrite existing outputs");
  }

  void AddRecord() {
    auto* c =
        Command("record", "Write down what verify runs, for kvlift.replay", &record, &RunRecord);
    c->add_option("before", record.before, "The source model")->required();
    c->add_option("after", record.after, "The converted model")->required();
    c->add_option("-o,--output", record.output, "The folder to write")
        ->required()
        ->check(FolderNameError);
    c->add_option("--plan", record.plan, "How much to record")->check(OneOf({"quick", "full"}));
    c->add_option("--lengths", record.lengths, "Past tokens of the steps that are timed")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
    c->add_option("--manifest", record.manifest, "The relation, if not beside AFTER");
    c->add_option("--seed", record.seed, "Seed of the stimuli")->check(IsSeed);
    c->add_flag("--copy", record.copy, "Copy both models into the folder");
    c->add_flag("--force", record.force, "Write into a folder that is not empty");
  }

  void AddRun() {
    auto* c = Command("run", "Run a model on the CPU executor", &run, &RunRun);
    c->add_option("model", run.model, "The model")->required();
    c->add_option("--inputs", run.inputs, "Folder with input_K.pb or NAME.npy");
    c->add_option("--expect", run.expect,
                  "Folder with output_K.pb to compare with; one named test_data_set_K is compared "
                  "with the tolerance of ONNX's tests (1e-3 and 1e-7; bfloat16 2^-6)");
    c->add_option("--steps", run.steps, "Folder of step folders 00, 01, ...");
    c->add_option("--outputs", run.outputs, "Folder to write output_K.pb to");
    c->add_flag("--force", run.force, "Overwrite outputs beside the inputs");
    c->add_option("--alias", run.alias, "Update caches in place")
        ->check(OneOf({"auto", "off", "required", "guard", "poison"}));
    c->add_option("--order", run.order, "Order of summation")->check(OneOf({"canonical", "fast"}));
    c->add_option("--rtol", run.rtol,
                  "Relative tolerance of --expect (1e-3; float16 1e-2, bfloat16 4e-2)")
        ->check(NotBelowZero());
    c->add_option("--atol", run.atol,
                  "Absolute tolerance of --expect (1e-5; float16 1e-2, bfloat16 4e-2)")
        ->check(NotBelowZero());
    c->add_flag("--trace", run.trace, "Print nodes and aliasing decisions");
    c->add_flag("--no-pack", run.no_pack, "Read weights as they are: loads at once, runs slower");
  }

  void AddBench() {
    auto* c = Command("bench", "Time and bytes per decode step", &bench, &RunBench);
    c->add_option("model", bench.model, "The model")->required();
    c->add_option("--context", bench.context, "Valid tokens before the step")->delimiter(',');
    c->add_option("--capacity", bench.capacity, "Capacity of the caches");
    c->add_option("--batch", bench.batch, "Sequences");
    c->add_option("--new-tokens", bench.new_tokens, "Tokens per step");
    c->add_option("--repetitions", bench.repetitions, "Rounds");
    c->add_flag("--no-pack", bench.no_pack, "Read weights as they are: loads at once, runs slower");
    AddFormat(c, "Output format", {"md", "csv", "json"}, &bench.format, &bench.common);
  }

  void AddReport() {
    auto* c = Command("report", "Verify two models and write an HTML report", &report, &RunReport);
    c->add_option("before", report.before, "The source model")->required();
    c->add_option("after", report.after, "The converted model")->required();
    c->add_option("-o,--output", report.output, "The HTML file")->required()->check(FileName());
    c->add_option("--plan", report.plan, "How much to run")->check(OneOf({"quick", "full"}));
    c->add_option("--manifest", report.manifest, "The relation, if not beside AFTER");
    c->add_flag("--force", report.force, "Overwrite the HTML file");
  }

  void AddDiff() {
    auto* c = Command("diff", "What is different in two models as graphs", &diff, &RunDiff);
    c->add_option("before", diff.before, "A model")->required();
    c->add_option("after", diff.after, "Another model")->required();
    c->add_flag("--details", diff.details, "Also each node that is removed or added");
  }

  void AddExplain() {
    auto* c = Command("explain", "A finding at length, or why a node did not match", &explain,
                      &RunExplain);
    c->add_option("code-or-model", explain.what, "A code such as KV203, or a model")->required();
    c->add_option("--node", explain.node, "A node of the model");
  }

  void AddShellFiles() {
    auto* completion = app.add_subcommand("completion", "Print a completion script for a shell");
    completion->footer(ExamplesOf("completion"));
    completion->add_option("shell", shell, "The shell")
        ->required()
        ->check(OneOf({"bash", "zsh", "fish"}));
    completion->callback([this] {
      chosen = [this] {
        io.out << CompletionScript(app, shell);
        return int{kDone};
      };
    });
    auto* man = app.add_subcommand("man", "Print the manual page");
    man->footer(ExamplesOf("man"));
    man->callback([this] {
      chosen = [this] {
        io.out << ManPage(app, kVersion);
        return int{kDone};
      };
    });
  }

  void AddEmitLoop() {
    auto* c = Command("emit-loop", "Write the host's loop for a converted model", &emit_loop,
                      &RunEmitLoop);
    c->add_option("model", emit_loop.model, "A converted model")->required();
    c->add_option("--lang", emit_loop.lang, "Language and runtime")
        ->check(OneOf({"python-ort", "cpp-ort"}));
    c->add_option("-o,--output", emit_loop.output, "Where to write it; stdout by default")
        ->check(FileName());
    c->add_flag("--speculative", emit_loop.speculative,
                "Draft trees of tokens with another model, and verify them");
    c->add_option("--manifest", emit_loop.manifest, "The manifest, if not beside the model");
    c->add_flag("--force", emit_loop.force, "Overwrite an existing file");
  }

  void AddEmitMaintenance() {
    auto& f = emit_maintenance;
    auto* c = Command("emit-maintenance", "Write a model that drops tokens and reorders sequences",
                      &f, &RunEmitMaintenance);
    c->add_option("model", f.model, "A converted model")->required();
    c->add_option("-o,--output", f.output, "Where to write it")->required()->check(FileName());
    c->add_option("--only", f.only, "Only repack kept tokens, or only reorder")
        ->check(OneOf({"both", "keep", "beam"}));
    c->add_option("--manifest", f.manifest, "The manifest, if not beside the model");
    c->add_flag("--force", f.force, "Overwrite existing outputs");
  }

  void AddFleet() {
    constexpr bool kReadsModels = false;  // its processes do
    AddFleetFlags(
        Command("fleet", "Convert, verify or check many models", &fleet, &RunFleet, kReadsModels),
        &fleet);
  }

  // Parses a command line. Throws CLI::Error as CLI::App does.
  void Parse(const std::vector<std::string>& args) {
    std::vector<std::string> words(args.begin() + (args.empty() ? 0 : 1), args.end());
    const auto end = std::find(words.begin(), words.end(), "--");
    for (const auto& [name, arguments] :
         {std::pair("fleet", &fleet.arguments), std::pair("reduce", &reduce.arguments)}) {
      if (words.empty() || words[0] != name || end == words.end()) continue;
      arguments->assign(end + 1, words.end());
      words.erase(end, words.end());
      break;
    }
    std::reverse(words.begin(), words.end());
    app.parse(words);
  }

  Io io;
  CLI::App app{
      "Finds the key/value caches of a decoder in ONNX, rewrites them to TensorScatter "
      "and Attention, and proves the result",
      "kvlift"};
  std::function<int()> chosen;
  InspectFlags inspect;
  ConvertFlags convert;
  CheckFlags check;
  VerifyFlags verify;
  RecordFlags record;
  RunFlags run;
  BenchFlags bench;
  DiffFlags diff;
  ReportFlags report;
  ExplainFlags explain;
  EmitLoopFlags emit_loop;
  EmitMaintenanceFlags emit_maintenance;
  MetadataFlags metadata;
  LowerFlags lower;
  ReduceFlags reduce;
  FleetFlags fleet;
  std::string shell;
};

}  // namespace

std::string WhyNotUsable(const std::vector<std::string>& args) {
  std::ostringstream nothing;
  Program program({nothing, nothing});
  try {
    program.Parse(args);
  } catch (const CLI::ParseError& error) {
    return UsageError(program.app, args, error);
  }
  if (program.check.models.size() > 1) return "more models than one";
  if (program.convert.model.empty()) return {};
  return std::string(OptionsOf(program.convert).status().message());
}

int Run(const std::vector<std::string>& args, Io io) {
  io.args = args;
  if (!io.args.empty()) io.args[0] = "kvlift";  // documents do not show the path of the program
  Program program(io);
  try {
    program.Parse(args);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return program.app.exit(wanted, io.out, io.err);
  } catch (const CLI::ParseError& error) {
    Complain(io, "", UsageError(program.app, args, error));
    const std::string meant = MeantWord(program.app, args);
    if (!meant.empty()) io.err << fmt::format("did you mean '{}'?\n", meant);
    io.err << "Run kvlift --help, or kvlift COMMAND --help.\n";
    if (AsksForJson(args)) PrintErrorDocument(io, kUsage);
    return kUsage;
  }
  return program.chosen ? program.chosen() : int{kUsage};
}

}  // namespace kvlift::cli
