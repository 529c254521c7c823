#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/coded.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/contract_files.h"
#include "kvlift/inputs/conversion.h"
#include "kvlift/inputs/external.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/inputs/shared_weights.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/report_data.h"
#include "kvlift/texts.h"
#include "onnxio/files/stale.h"
#include "pipeline/step_files.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Returns OK if the outputs may be written. A manifest beside the source stays, unless it is the
// one of the result.
absl::Status MayWrite(const ConvertFlags& f, const Model& source,
                      const std::vector<OutputFile>& files) {
  OutputGuard guard(f.force || f.dry_run);
  guard.ReadsModel(source);
  if (ManifestPathFor(f.model) != ManifestPathFor(f.output)) guard.ReadsManifestBeside(f.model);
  return guard.Check(files);
}

int CannotWrite(Io& io, const std::string& output, const absl::Status& status) {
  const std::string code = CodeOf(status);
  Complain(io, output,
           fmt::format("{} [{}]", std::string(status.message()), code.empty() ? "KV501" : code));
  return kUnwritable;
}

absl::StatusOr<std::string> ReportPage(const Io& io, ReportInput* facts, ordered_json document) {
  io.Say("drawing");
  facts->command = CommandText(io.args);
  facts->document["convert"] = std::move(document);
  KV_ASSIGN_OR_RETURN(const Report report, MakeReport(*facts));
  return HtmlReport(report);
}

// Writes the report of a model that is not written.
absl::Status WriteReportAlone(const ConvertFlags& flags, const Model& source, Io& io,
                              ReportInput* facts, ordered_json document) {
  if (flags.report.empty() || flags.dry_run) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(std::string page, ReportPage(io, facts, std::move(document)));
  const std::vector<OutputFile> files = {{flags.report, std::move(page)}};
  KV_RETURN_IF_ERROR(MayWrite(flags, source, files));
  return WriteFiles(files);
}

void NameStaleFiles(Io& io, const std::vector<std::string>& outputs) {
  for (const std::string& output : outputs) {
    for (const std::string& stale : StaleTemporaries(output)) {
      Complain(io, stale, "left by a run that was killed; nothing reads it [KV505]");
    }
  }
}

// Returns the path of the graph for a number of tokens: "out.onnx" -> "out.tokens128.onnx".
std::string FrozenPathFor(const std::string& output, int64_t tokens) {
  fs::path path(output);
  const std::string extension = path.extension().string();
  return path.replace_extension(fmt::format("tokens{}{}", tokens, extension)).string();
}

// The exit code for a converted model that is not written.
int ExitCodeOf(ConversionVerdict equality) {
  return equality == ConversionVerdict::kDifferent ? kFindings : kInconclusive;
}

// One run of the command, from the model to the files. There is one graph, or one for each number
// of tokens of --freeze.
class ConvertRun {
 public:
  ConvertRun(const ConvertFlags& flags, Io& io, const Model& source)
      : flags_(flags), io_(io), source_(source) {}

  int Finish(std::vector<ProvedConversion> made) {
    for (ProvedConversion& converted : made) graphs_.push_back({std::move(converted)});
    for (Graph& graph : graphs_) {
      if (graph.converted.tests) graph.verified = VerifyDocument(*graph.converted.tests);
      graph.output =
          graphs_.size() == 1
              ? flags_.output
              : FrozenPathFor(flags_.output, graph.converted.conversion.manifest.frozen->tokens);
    }
    facts_.before = &source_;
    facts_.inspection = &first().conversion.inspection;
    const bool stopped = first().conversion.status == ConvertStatus::kStopped;
    if (!first().conversion.model && !stopped) return Refuse();
    PrintPlans();
    if (stopped) {
      Report({});
      return kDone;
    }
    const auto held = std::find_if(graphs_.begin(), graphs_.end(),
                                   [](const Graph& graph) { return !graph.converted.accepted; });
    if (held != graphs_.end() && !flags_.stop_after.empty()) return Withhold(*held);
    if (absl::Status placed = Place(); !placed.ok()) {
      return CannotWrite(io_, flags_.output, placed);
    }
    facts_.after = &graphs_.front().result;
    facts_.manifest = &first().conversion.manifest;
    if (first().tests) facts_.verify = &*first().tests;
    return held != graphs_.end() ? Withhold(*held) : Write();
  }

 private:
  struct Graph {
    ProvedConversion converted;
    std::string output = {};  // the path of the model
    Model result = {};        // the model with its manifest
    ordered_json verified = nullptr;
  };

  const ProvedConversion& first() const { return graphs_.front().converted; }

  void PrintPlans() const {
    if (flags_.verify.empty() || flags_.common.json || flags_.common.quiet) return;
    for (const Graph& graph : graphs_) {
      if (!graph.converted.tests) continue;
      io_.Results() << Heading(graph)
                    << VerifyText(*graph.converted.tests, flags_.common.verbose, io_.OutStyle());
    }
  }

  // Returns a line above what is said about one of several graphs.
  std::string Heading(const Graph& graph) const {
    if (graphs_.size() == 1) return "";
    return fmt::format("tokens={}\n", graph.converted.conversion.manifest.frozen->tokens);
  }

  ordered_json Document(const std::vector<std::string>& outputs) const {
    ordered_json document = ConvertDocument(first(), outputs, graphs_.front().verified);
    for (const Graph& graph : graphs_) {
      const Conversion& conversion = graph.converted.conversion;
      if (!conversion.model || !conversion.manifest.frozen) continue;
      document["frozen"].push_back(
          FrozenDocument(graph.converted, outputs.empty() ? "" : graph.output, graph.verified));
    }
    return document;
  }

  void Report(const std::vector<std::string>& outputs) const {
    if (flags_.common.json) return PrintJson(io_, Document(outputs));
    if (flags_.common.quiet) return;
    for (const Graph& graph : graphs_) {
      const bool last = &graph == &graphs_.back();
      io_.Results() << Heading(graph)
                    << ConvertText(graph.converted, last ? outputs : std::vector<std::string>(),
                                   io_.OutStyle());
    }
  }

  int Refuse() {
    const auto page = WriteReportAlone(flags_, source_, io_, &facts_, Document({}));
    if (!page.ok()) return CannotWrite(io_, flags_.report, page);
    Report({});
    return kFindings;
  }

  int Withhold(const Graph& graph) {
    const auto page = WriteReportAlone(flags_, source_, io_, &facts_, Document({}));
    if (!page.ok()) return CannotWrite(io_, flags_.report, page);
    if (flags_.common.json) Report({});
    Complain(io_, graph.output.empty() ? flags_.model : graph.output,
             "not written: " + graph.converted.reason);
    return ExitCodeOf(graph.converted.equality);
  }

  // Stamps the models, and decides where each finds its weights. Several graphs share them.
  absl::Status Place() {
    KV_ASSIGN_OR_RETURN(const ExternalMode external, ReadExternalMode(flags_.external));
    std::vector<onnx::ModelProto> stamped;
    for (Graph& graph : graphs_) {
      const Conversion& conversion = graph.converted.conversion;
      stamped.push_back(*conversion.model);
      StampMetadata(conversion.manifest, &stamped.back());
      KV_ASSIGN_OR_RETURN(DataPlacement placed, PlaceExternalData(source_.base_dir, flags_.output,
                                                                  external, &stamped.back()));
      for (OutputFile& file : placed.files) AddData(std::move(file));
      for (Fd& fd : placed.open) open_.push_back(std::move(fd));
      locations_ = std::move(placed.locations);  // the same for all graphs
    }
    if (graphs_.size() > 1) {
      KV_ASSIGN_OR_RETURN(shared_, ShareWeights(flags_.output, &stamped));
      if (shared_.file) AddData(*shared_.file);
    }
    for (size_t k = 0; k < graphs_.size(); ++k) {
      Model& result = graphs_[k].result;
      result.proto = std::make_shared<const onnx::ModelProto>(std::move(stamped[k]));
      result.path = graphs_[k].output;
      result.base_dir = fs::path(graphs_[k].output).parent_path().string();
    }
    return absl::OkStatus();
  }

  // Adds a file of weights, unless another graph has added it.
  void AddData(OutputFile file) {
    const bool known = std::any_of(files_.begin(), files_.end(), [&](const OutputFile& other) {
      return other.path == file.path;
    });
    if (!known) files_.push_back(std::move(file));
  }

  int Write() {
    std::vector<ModelImage> images;  // what the pieces of the files point to
    for (const Graph& graph : graphs_) {
      const Conversion& conversion = graph.converted.conversion;
      auto image = ImageOf(*graph.result.proto, locations_);
      if (!image.ok()) return CannotWrite(io_, graph.output, image.status());
      auto contract = ContractFilesOf(conversion, graph.output);
      if (!contract.ok()) return CannotWrite(io_, graph.output, contract.status());
      // The model is written last, so that its manifest and other files exist when it appears.
      files_.push_back({ManifestPathFor(graph.output), ManifestText(conversion.manifest)});
      for (OutputFile& file : contract->files) files_.push_back(std::move(file));
      if (!contract->left_out.empty() && !flags_.common.quiet) {
        Complain(io_, contract->left_out, contract->why);
      }
      files_.push_back({graph.output, {}, std::move(image->pieces)});
      images.push_back(*std::move(image));
    }
    std::vector<std::string> names;
    for (const OutputFile& file : files_) names.push_back(file.path);
    if (!flags_.report.empty()) {
      facts_.after_sha256 = Sha256Of(files_.back().pieces);
      names.push_back(flags_.report);
      auto page = ReportPage(io_, &facts_, Document(names));
      if (!page.ok()) return CannotWrite(io_, flags_.report, page.status());
      files_.insert(files_.begin(), {flags_.report, *std::move(page)});
    }
    if (const absl::Status may = MayWrite(flags_, source_, files_); !may.ok()) {
      Complain(io_, "", may);
      return kUnwritable;
    }
    if (flags_.dry_run) {
      names.clear();
    } else {
      if (const auto status =
              WriteFiles(files_,
                         [&](uint64_t done, uint64_t total) {
                           io_.Say(fmt::format("writing {} of {} MiB", done >> 20, total >> 20));
                         });
          !status.ok()) {
        return CannotWrite(io_, flags_.output, status);
      }
      if (!flags_.common.quiet) NameStaleFiles(io_, names);
    }
    Report(names);
    return first().conversion.status == ConvertStatus::kConverted ? kDone : kFindings;
  }

  const ConvertFlags& flags_;
  Io& io_;
  const Model& source_;
  std::vector<Graph> graphs_;  // never empty
  std::vector<OutputFile> files_;
  std::vector<Fd> open_;  // the files that pieces of `files_` read from
  DataLocations locations_;
  SharedWeights shared_;
  ReportInput facts_;
};

// Converts the model. There is one result unless --freeze asks for several graphs.
absl::StatusOr<std::vector<ProvedConversion>> ConvertAll(const ConvertFlags& flags,
                                                         const ConvertOptions& options,
                                                         const ProvingOptions& proving,
                                                         const Model& model) {
  if (const auto freeze = FreezeOf(flags)) {
    return ConvertFrozen(model, options, AllRules(), *freeze, proving);
  }
  std::vector<ProvedConversion> made;
  KV_ASSIGN_OR_RETURN(made.emplace_back(),
                      ConvertAndProve(model, options, AllRules(), proving, StepsOf(flags)));
  return made;
}

}  // namespace

int RunConvert(const ConvertFlags& flags, Io io) {
  const auto options = OptionsOf(flags);
  if (!options.ok()) {
    Complain(io, "", options.status());
    return kUsage;
  }
  auto model = Load(io, flags.model, flags.common);
  if (!model) return kUnreadable;
  io.Say("finding and rewriting caches");
  // Nobody sees the source's digest then.
  if (flags.dry_run && flags.report.empty() && !flags.dump_dir) model->digest = nullptr;
  ProvingOptions proving = ProvingOf(flags);
  proving.say = [&](std::string what) { io.Say(std::move(what)); };
  auto converted = ConvertAll(flags, *options, proving, *model);
  if (!converted.ok() && IsWriteError(converted.status())) {
    return CannotWrite(io, flags.dump_dir.value_or(""), converted.status());
  }
  if (!converted.ok()) {
    Complain(io, flags.model, converted.status());
    return absl::IsInternal(converted.status()) ? kInternal : kUnreadable;
  }
  return ConvertRun(flags, io, *model).Finish(*std::move(converted));
}

}  // namespace kvlift::cli
