#include <csignal>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>

#include "base/coded.h"
#include "base/sha256.h"
#include "base/status.h"
#include "commands.h"
#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "conversion.h"
#include "documents.h"
#include "external.h"
#include "fmt/format.h"
#include "maintenance/slots.h"
#include "onnxio/late_text.h"
#include "onnxio/stale.h"
#include "proof_documents.h"
#include "relation.h"
#include "report_data.h"
#include "texts.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

// The ways an output can be in the way. Empty if none is.
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

// Of the file that the pieces make, as it is written; empty if one lies in a file that is copied.
std::string Sha256Of(const std::vector<Piece>& pieces) {
  Sha256 hash;
  for (const Piece& piece : pieces) hash.Update(piece.bytes);
  return hash.FinishHex();
}

absl::StatusOr<std::string> ReportPage(const Io& io, ReportInput* facts, json document) {
  io.Say("drawing");
  facts->command = CommandText(io.args);
  facts->document["convert"] = std::move(document);
  KV_ASSIGN_OR_RETURN(const Report report, MakeReport(*facts));
  return HtmlReport(report);
}

// The report of a model that is not written.
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

// As long as a digest; no model knows it.
std::string DigestStandIn() {
  std::random_device random;
  std::string text;
  while (text.size() < 64) text += fmt::format("{:08x}", random());
  return text;
}

// Makes a digest on a thread of its own, if there can be one, which no signal from outside reaches.
class Hashing {
 public:
  explicit Hashing(SourceDigest& digest) {
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);  // of a file that is cut off meanwhile
    pthread_sigmask(SIG_SETMASK, &all, &old);
    try {
      thread_ = std::thread([&digest] { digest.Hex(); });
    } catch (const std::system_error&) {  // then it is made when it is asked for
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  ~Hashing() {
    if (thread_.joinable()) thread_.join();
  }
  Hashing(const Hashing&) = delete;
  Hashing& operator=(const Hashing&) = delete;

 private:
  std::thread thread_;
};

// Tokens of a tree have slots that tell nothing of their positions. Where slots mean something to
// the result, there is none.
void RefuseTree(Conversion* conversion) {
  if (!conversion->model) return;
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*conversion->model));
  if (!graph.ok()) return;  // found again when the result is checked
  const SlotReading slots = ReadSlots(*graph, conversion->manifest);
  if (!slots.refusal) return;
  conversion->model.reset();
  conversion->status = ConvertStatus::kRefused;
  Finding reason = *slots.refusal;
  reason.code = "KV235";
  for (CacheReport& cache : conversion->inspection.caches) {
    cache.converted = false;
    if (!cache.reason) cache.reason = reason;
  }
  for (AttentionReport& attention : conversion->inspection.attention) attention.converted = false;
}

// How far outputs are from the source's, as measured.
void NoteErrors(const std::vector<OutputResult>& outputs, Manifest* manifest) {
  manifest->quantization->errors.clear();
  for (const OutputResult& output : outputs) {
    for (const ManifestOutput& known : manifest->outputs) {
      if (known.as == "cache" || known.name != output.name) continue;
      manifest->quantization->errors.push_back({output.name, output.max_abs, output.bound});
    }
  }
}

std::string GenaiPathFor(const std::string& manifest_path) {
  const std::string suffix = ".kv.json";
  return manifest_path.substr(0, manifest_path.size() - suffix.size()) + ".genai.json";
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
  // The source's digest is made while its weights are written. A report has the result's own digest
  // in it, and cannot wait.
  LateText late;
  const std::shared_ptr<SourceDigest> digest = model->digest;
  if (flags.report.empty()) {
    late = {DigestStandIn(), [&] { return digest->Hex(); }};
    model->digest = nullptr;
  }
  auto conversion = Convert(*model, *options, AllRules());
  model->digest = digest;
  if (!conversion.ok()) {
    Complain(io, flags.model, conversion.status());
    return absl::IsInternal(conversion.status()) ? kInternal : kUnreadable;
  }
  if (options->tree_mask) RefuseTree(&*conversion);
  const auto report = [&](const std::vector<std::string>& outputs, const json& verify) {
    if (flags.common.json) {
      PrintJson(io, ConvertDocument(*conversion, outputs, verify));
    } else if (!flags.common.quiet) {
      io.Results() << ConvertText(*conversion, outputs, io.OutStyle());
    }
  };
  ReportInput facts;
  facts.before = &*model;
  facts.inspection = &conversion->inspection;
  if (!conversion->model) {
    const auto page =
        WriteReportAlone(flags, io, &facts, ConvertDocument(*conversion, {}, nullptr));
    if (!page.ok()) return CannotWrite(io, flags.report, page);
    report({}, nullptr);
    return kFindings;
  }

  if (!late.stand_in.empty()) conversion->manifest.source_sha256 = late.stand_in;
  Model result;
  onnx::ModelProto stamped = *conversion->model;
  StampMetadata(conversion->manifest, &stamped);
  const ExternalMode external = flags.external == "keep"   ? ExternalMode::kKeep
                                : flags.external == "copy" ? ExternalMode::kCopy
                                                           : ExternalMode::kAuto;
  auto placed = PlaceExternalData(model->base_dir, flags.output, external, &stamped);
  if (!placed.ok()) return CannotWrite(io, flags.output, placed.status());
  result.proto = std::make_shared<const onnx::ModelProto>(std::move(stamped));
  result.path = flags.output;
  result.base_dir = fs::path(flags.output).parent_path().string();
  if (const auto status = CheckResult(result, conversion->manifest); !status.ok()) {
    const absl::Status blame = BlameFor(*model, status);
    Complain(io, flags.model, blame);
    return absl::IsInternal(blame) ? kInternal : kUnreadable;
  }

  json verified = nullptr;
  std::optional<VerifyReport> proof;
  facts.after = &result;
  facts.manifest = &conversion->manifest;
  if (!flags.verify.empty()) {
    VerifyOptions how;
    how.full = flags.verify == "full";
    how.threads = flags.common.threads;
    io.Say("running both models step by step, and mutants of the second");
    auto verdict = Verify(*model, result, conversion->manifest, how);
    if (!verdict.ok()) {
      Complain(io, flags.model, verdict.status());
      return kInconclusive;
    }
    verified = VerifyDocument(*verdict);
    if (!flags.common.json && !flags.common.quiet) {
      io.Results() << VerifyText(*verdict, flags.common.verbose, io.OutStyle());
    }
    conversion->manifest.proved = ProvedFacts(verdict->proof);
    if (conversion->manifest.quantization) {
      NoteErrors(verdict->outputs, &conversion->manifest);
    }
    if (!Accepts(verdict->verdict, Accept::kTested)) {
      facts.verify = &*verdict;
      const auto page =
          WriteReportAlone(flags, io, &facts, ConvertDocument(*conversion, {}, verified));
      if (!page.ok()) return CannotWrite(io, flags.report, page);
      if (flags.common.json) report({}, verified);
      Complain(io, flags.output, "not written: the proof failed");
      return ExitCodeOf(verdict->verdict);
    }
    proof = *std::move(verdict);
    facts.verify = &*proof;
  }

  auto image = ImageOf(*result.proto, placed->locations);
  if (!image.ok()) return CannotWrite(io, flags.output, image.status());
  const std::string manifest_path = ManifestPathFor(flags.output);
  // Whoever sees the model sees what belongs to it.
  std::vector<OutputFile> files = std::move(placed->files);
  files.push_back({manifest_path, ManifestText(conversion->manifest)});
  if (!conversion->genai.empty()) {
    files.push_back({GenaiPathFor(manifest_path), conversion->genai});
  }
  files.push_back({flags.output, {}, std::move(image->pieces)});
  std::vector<std::string> names;
  for (const OutputFile& file : files) names.push_back(file.path);
  if (!flags.report.empty()) {
    facts.after_sha256 = Sha256Of(files.back().pieces);
    names.push_back(flags.report);
    auto page = ReportPage(io, &facts, ConvertDocument(*conversion, names, verified));
    if (!page.ok()) return CannotWrite(io, flags.report, page.status());
    files.insert(files.begin(), {flags.report, *std::move(page)});
  }
  if (const std::string why = InTheWay(flags, files); !why.empty()) {
    Complain(io, why, "nothing written");
    return kUnwritable;
  }
  if (flags.dry_run) {
    names.clear();
  } else {
    std::optional<Hashing> hashing;
    if (!late.stand_in.empty()) hashing.emplace(*digest);
    if (const auto status = WriteFiles(
            files,
            [&](uint64_t done, uint64_t total) {
              io.Say(fmt::format("writing {} of {} MiB", done >> 20, total >> 20));
            },
            late);
        !status.ok()) {
      return CannotWrite(io, flags.output, status);
    }
    if (!flags.common.quiet) NameStaleFiles(io, names);
  }
  report(names, verified);
  return conversion->status == ConvertStatus::kConverted ? kDone : kFindings;
}

}  // namespace kvlift::cli
