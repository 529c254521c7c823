#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/external.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/inputs/tensor_files.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/record_files.h"
#include "onnxio/bytes/folders.h"
#include "onnxio/bytes/image.h"
#include "verify/judge/verify.h"
#include "verify/record/recorder.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// The files of models that are copied, and what their pieces read from.
struct Copies {
  std::vector<OutputFile> files;
  std::vector<DataPlacement> placed;
  std::vector<ModelImage> images;
};

// Refers to a model by its path from the record's folder.
RecordedModel Referred(const Model& model, const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(fs::absolute(model.path, error), error);
  const fs::path from = fs::weakly_canonical(fs::absolute(folder, error), error);
  return {path.lexically_relative(from).string(), model.Sha256()};
}

// Copies a model, with its external data, to NAME.onnx in the record's folder.
absl::StatusOr<RecordedModel> Copied(const Model& model, const std::string& name,
                                     const std::string& folder, Copies* copies) {
  onnx::ModelProto proto = *model.proto;
  const std::string path = (fs::path(folder) / (name + ".onnx")).string();
  KV_ASSIGN_OR_RETURN(DataPlacement placed,
                      PlaceExternalData(model.base_dir, path, ExternalMode::kCopy, &proto));
  KV_ASSIGN_OR_RETURN(ModelImage image, ImageOf(proto, placed.locations));
  for (OutputFile& file : placed.files) copies->files.push_back(std::move(file));
  const std::string sha256 = Sha256Of(image.pieces);
  copies->files.push_back({path, {}, image.pieces});
  copies->placed.push_back(std::move(placed));
  copies->images.push_back(std::move(image));
  return RecordedModel{name + ".onnx", sha256};
}

}  // namespace

int RunRecord(const RecordFlags& flags, Io io) {
  if (!flags.force && !IsFreeForFolder(flags.output)) {
    Complain(io, flags.output, "exists and is not empty; --force writes into it");
    return kUnwritable;
  }
  for (const std::string& path : {flags.before, flags.after}) {
    if (flags.copy || fs::path(path).extension() == ".onnx") continue;
    Complain(io, path,
             "is no .onnx file that a runtime could read; --copy writes one into the record");
    return kUsage;
  }
  const auto pair = LoadPair(io, flags.before, flags.after, flags.manifest, flags.common);
  if (!pair) return kUnreadable;
  const auto& [before, after, relation, inferred, same] = *pair;
  if (inferred.size() > 1) {
    Complain(io, flags.after,
             fmt::format("{} relations to the source are possible; --manifest says which one it is",
                         inferred.size()));
    return kInconclusive;
  }
  VerifyOptions options;
  options.full = flags.plan == "full";
  options.seed = flags.seed;
  options.threads = flags.common.threads;
  options.source = true;
  options.say = [&](std::string what) { io.Say(std::move(what)); };
  io.Say("running both models step by step");
  Recorder recorder(flags.lengths);
  const auto report = RecordPlans(before, after, relation, options, &recorder);
  if (!report.ok()) {
    return RefuseWith(io, flags.after, report.status(),
                      absl::IsUnimplemented(report.status()) ? kInconclusive : kUnreadable);
  }
  if (!Accepts(report->verdict, Accept::kTested)) {
    Complain(io, flags.after, "not recorded: " + report->reason);
    return ExitCodeOf(report->verdict, Accept::kTested);
  }
  Copies copies;
  RecordSource source{&before, &after, &relation, &*report, &recorder, {}, {}};
  source.before_file = Referred(before, flags.output);
  source.after_file = Referred(after, flags.output);
  if (flags.copy) {
    auto first = Copied(before, "before", flags.output, &copies);
    if (!first.ok()) return RefuseWith(io, flags.before, first.status(), kUnwritable);
    auto second = Copied(after, "after", flags.output, &copies);
    if (!second.ok()) return RefuseWith(io, flags.after, second.status(), kUnwritable);
    source.before_file = *std::move(first);
    source.after_file = *std::move(second);
  }
  auto record = FilesOfRecord(source, flags.output);
  if (!record.ok()) return RefuseWith(io, flags.after, record.status(), kInconclusive);
  std::vector<OutputFile> files = std::move(copies.files);
  for (OutputFile& file : record->files) files.push_back(std::move(file));
  OutputGuard guard(flags.force);
  for (const Model* model : {&before, &after}) {
    guard.ReadsModel(*model);
    guard.ReadsManifestBeside(model->path);
  }
  guard.Reads(flags.manifest);
  if (const absl::Status may = guard.Check(files); !may.ok()) {
    return RefuseWith(io, "", may, kUnwritable);
  }
  if (const absl::Status written = WriteOutputs(files); !written.ok()) {
    return RefuseWith(io, flags.output, written, kUnwritable);
  }
  if (flags.common.json) {
    PrintJson(io, record->document);
  } else if (!flags.common.quiet) {
    size_t steps = 0;
    for (const RecordedPlan& plan : recorder.plans) steps += plan.steps.size();
    io.Results() << fmt::format("wrote {}: {} plans of {} steps, {} lengths to be timed\n",
                                EscapeTerminal(flags.output), recorder.plans.size(), steps,
                                recorder.timed.size());
  }
  return kDone;
}

}  // namespace kvlift::cli
