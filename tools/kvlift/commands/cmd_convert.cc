#include <filesystem>
#include <system_error>

#include "base/coded.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/conversion.h"
#include "kvlift/inputs/external.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/report_data.h"
#include "kvlift/texts.h"
#include "onnxio/files/stale.h"
#include "pipeline/step_files.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

// Returns why the outputs cannot be written; empty if they can.
std::string InTheWay(const ConvertFlags& f, const std::vector<OutputFile>& files) {
  std::error_code error;
  for (const OutputFile& file : files) {
    if (&file != &files.back() && file.path == files.back().path) {
      return file.path + " is asked for twice";
    }
    if (f.model != "-" && fs::equivalent(file.path, f.model, error) && !error) {
      return file.path + " is the input";
    }
    if (!f.force && !f.dry_run && fs::exists(file.path, error)) {
      return file.path + " exists; --force overwrites it";
    }
  }
  return {};
}

int CannotWrite(Io& io, const std::string& output, const absl::Status& status) {
  const std::string code = CodeOf(status);
  Complain(io, output,
           fmt::format("{} [{}]", std::string(status.message()), code.empty() ? "KV501" : code));
  return kUnwritable;
}

absl::StatusOr<std::string> ReportPage(const Io& io, ReportInput* facts, json document) {
  io.Say("drawing");
  facts->command = CommandText(io.args);
  facts->document["convert"] = std::move(document);
  KV_ASSIGN_OR_RETURN(const Report report, MakeReport(*facts));
  return HtmlReport(report);
}

// Writes the report of a model that is not written.
absl::Status WriteReportAlone(const ConvertFlags& flags, Io& io, ReportInput* facts,
                              json document) {
  if (flags.report.empty() || flags.dry_run) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(std::string page, ReportPage(io, facts, std::move(document)));
  const std::vector<OutputFile> files = {{flags.report, std::move(page)}};
  if (const std::string why = InTheWay(flags, files); !why.empty()) {
    return absl::AlreadyExistsError(why);
  }
  return WriteFiles(files);
}

void NameStaleFiles(Io& io, const std::vector<std::string>& outputs) {
  for (const std::string& output : outputs) {
    for (const std::string& stale : StaleTemporaries(output)) {
      Complain(io, stale, "left by a run that was killed; nothing reads it [KV505]");
    }
  }
}

std::string GenaiPathFor(const std::string& manifest_path) {
  const std::string suffix = ".kv.json";
  return manifest_path.substr(0, manifest_path.size() - suffix.size()) + ".genai.json";
}

// The exit code for a converted model that is not written.
int ExitCodeOf(Equality equality) {
  return equality == Equality::kDifferent ? kFindings : kInconclusive;
}

// One run of the command, from the model to the files.
class ConvertRun {
 public:
  ConvertRun(const ConvertFlags& flags, Io& io, const Model& source)
      : flags_(flags), io_(io), source_(source) {}

  int Finish(ProvedConversion converted) {
    converted_ = std::move(converted);
    Conversion& conversion = converted_.conversion;
    if (converted_.tests) verified_ = VerifyDocument(*converted_.tests);
    facts_.before = &source_;
    facts_.inspection = &conversion.inspection;
    const bool stopped = conversion.status == ConvertStatus::kStopped;
    if (!conversion.model && !stopped) return Refuse();
    const bool prints = !flags_.verify.empty() && !flags_.common.json && !flags_.common.quiet;
    if (prints && converted_.tests) {
      io_.Results() << VerifyText(*converted_.tests, flags_.common.verbose, io_.OutStyle());
    }
    if (stopped) {
      Report({});
      return kDone;
    }
    if (!converted_.accepted && !flags_.stop_after.empty()) return Withhold();
    onnx::ModelProto stamped = *conversion.model;
    StampMetadata(conversion.manifest, &stamped);
    const ExternalMode external = flags_.external == "keep"   ? ExternalMode::kKeep
                                  : flags_.external == "copy" ? ExternalMode::kCopy
                                                              : ExternalMode::kAuto;
    auto placed = PlaceExternalData(source_.base_dir, flags_.output, external, &stamped);
    if (!placed.ok()) return CannotWrite(io_, flags_.output, placed.status());
    result_.proto = std::make_shared<const onnx::ModelProto>(std::move(stamped));
    result_.path = flags_.output;
    result_.base_dir = fs::path(flags_.output).parent_path().string();
    facts_.after = &result_;
    facts_.manifest = &conversion.manifest;
    if (converted_.tests) facts_.verify = &*converted_.tests;
    if (!converted_.accepted) return Withhold();
    return Write(*std::move(placed));
  }

 private:
  json Document(const std::vector<std::string>& outputs) const {
    return ConvertDocument(converted_, outputs, verified_);
  }

  void Report(const std::vector<std::string>& outputs) const {
    if (flags_.common.json) {
      PrintJson(io_, Document(outputs));
    } else if (!flags_.common.quiet) {
      io_.Results() << ConvertText(converted_, outputs, io_.OutStyle());
    }
  }

  int Refuse() {
    const auto page = WriteReportAlone(flags_, io_, &facts_, Document({}));
    if (!page.ok()) return CannotWrite(io_, flags_.report, page);
    Report({});
    return kFindings;
  }

  int Withhold() {
    const auto page = WriteReportAlone(flags_, io_, &facts_, Document({}));
    if (!page.ok()) return CannotWrite(io_, flags_.report, page);
    if (flags_.common.json) Report({});
    Complain(io_, flags_.output.empty() ? flags_.model : flags_.output,
             "not written: " + converted_.reason);
    return ExitCodeOf(converted_.equality);
  }

  int Write(DataPlacement placed) {
    const Conversion& conversion = converted_.conversion;
    auto image = ImageOf(*result_.proto, placed.locations);
    if (!image.ok()) return CannotWrite(io_, flags_.output, image.status());
    const std::string manifest_path = ManifestPathFor(flags_.output);
    // The model is written last, so that its manifest and other files exist when it appears.
    std::vector<OutputFile> files = std::move(placed.files);
    files.push_back({manifest_path, ManifestText(conversion.manifest)});
    if (!conversion.genai.empty()) {
      files.push_back({GenaiPathFor(manifest_path), conversion.genai});
    }
    files.push_back({flags_.output, {}, std::move(image->pieces)});
    std::vector<std::string> names;
    for (const OutputFile& file : files) names.push_back(file.path);
    if (!flags_.report.empty()) {
      facts_.after_sha256 = Sha256Of(files.back().pieces);
      names.push_back(flags_.report);
      auto page = ReportPage(io_, &facts_, Document(names));
      if (!page.ok()) return CannotWrite(io_, flags_.report, page.status());
      files.insert(files.begin(), {flags_.report, *std::move(page)});
    }
    if (const std::string why = InTheWay(flags_, files); !why.empty()) {
      Complain(io_, why, "nothing written");
      return kUnwritable;
    }
    if (flags_.dry_run) {
      names.clear();
    } else {
      if (const auto status =
              WriteFiles(files,
                         [&](uint64_t done, uint64_t total) {
                           io_.Say(fmt::format("writing {} of {} MiB", done >> 20, total >> 20));
                         });
          !status.ok()) {
        return CannotWrite(io_, flags_.output, status);
      }
      if (!flags_.common.quiet) NameStaleFiles(io_, names);
    }
    Report(names);
    return conversion.status == ConvertStatus::kConverted ? kDone : kFindings;
  }

  const ConvertFlags& flags_;
  Io& io_;
  const Model& source_;
  ProvedConversion converted_;
  Model result_;
  ReportInput facts_;
  json verified_ = nullptr;
};

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
  auto converted = ConvertAndProve(*model, *options, AllRules(), proving, StepsOf(flags));
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
