#include <filesystem>
#include <functional>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "contract/manifest_json.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "kvlift/commands/cmd_verify_infer.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/inputs/tensor_files.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/model_explorer.h"
#include "kvlift/reports/report_data.h"
#include "kvlift/reports/saved_documents.h"
#include "kvlift/reports/verify_formats.h"
#include "kvlift/texts.h"
#include "onnxio/bytes/folders.h"
#include "proof/correspondence/obligations.h"
#include "proof/prove/prove_conversion.h"
#include "report/text/github.h"
#include "report/text/report.h"
#include "report/text/sarif.h"
#include "verify/variants/drawn_weights.h"

namespace kvlift::cli {

int ExitCodeOf(VerdictKind verdict, Accept accept) {
  if (Accepts(verdict, accept)) return kDone;
  return verdict == VerdictKind::kDifferent ? kFindings : kInconclusive;
}

namespace {

absl::Status Save(const std::vector<OutputFile>& files, const OutputGuard& guard) {
  KV_RETURN_IF_ERROR(guard.Check(files));
  return WriteOutputs(files);
}

// Writes the folder of a counterexample: inputs and outputs of both models in the step that
// differs, in the format of `run`, and a text that describes the difference.
absl::Status SaveFailure(const std::string& folder, const Model& before, const Model& after,
                         const VerifyReport& report, const OutputGuard& guard) {
  std::vector<OutputFile> files;
  const auto add = [&](const char* side, const Model& model,
                       const std::vector<ReplayStep>& steps) -> absl::Status {
    KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(model.proto));
    for (size_t k = 0; k < steps.size(); ++k) {
      const std::string to =
          (std::filesystem::path(folder) / side / fmt::format("{:02}", k)).string();
      for (OutputFile& file : InputFiles(to, graph, steps[k].feeds)) files.push_back(file);
      for (OutputFile& file : OutputFiles(to, graph, steps[k].fetches)) files.push_back(file);
    }
    return absl::OkStatus();
  };
  KV_RETURN_IF_ERROR(add("before", before, report.counterexample->before_steps));
  KV_RETURN_IF_ERROR(add("after", after, report.counterexample->after_steps));
  files.push_back({(std::filesystem::path(folder) / "counterexample.json").string(),
                   VerifyDocument(report)["counterexample"].dump(2) + "\n"});
  return Save(files, guard);
}

// Writes the parts of the proof that a solver can check, one file each. For quantised caches the
// proof is about two intermediate models, and this returns Unimplemented.
absl::Status SaveObligations(const std::string& folder, const Model& before, const Model& after,
                             const Manifest& relation, const OutputGuard& guard) {
  for (const ManifestCache& cache : relation.caches) {
    if (cache.quantization) return absl::UnimplementedError("caches are kept in few bits");
  }
  Obligations obligations;
  (void)ProveConversion(*before.proto, *after.proto, relation, &obligations);
  std::vector<OutputFile> files;
  for (const Obligation& one : obligations.all()) {
    files.push_back({(std::filesystem::path(folder) / (one.name + ".smt2")).string(), one.script});
  }
  return Save(files, guard);
}

// Returns the relation that the verdict is about, then the others that the graphs allow.
std::string RelationsText(const std::vector<Manifest>& relations, size_t judged) {
  std::string text = "relation (no manifest: inferred; --manifest FILE corrects it)\n";
  const auto add = [&](const Manifest& relation) {
    for (const std::string& line : RelationLines(relation)) {
      text += "  " + EscapeTerminal(line) + "\n";
    }
  };
  add(relations[judged]);
  for (size_t k = 0; k < relations.size(); ++k) {
    if (k == judged) continue;
    text += "another one that the graphs allow; it was judged, too, and the verdict is the worst\n";
    add(relations[k]);
  }
  return text;
}

constexpr char kComparedWithItself[] =
    "BEFORE and AFTER are the same model: it is compared with itself\n";

// A verdict and what it is about. `inferred` has the relations that the graphs allow, if no
// manifest gave one; the verdict is about the one at `judged`.
struct Judged {
  const VerifyFlags& flags;
  const VerifyReport& report;
  const std::vector<Manifest>& inferred;
  size_t judged;
  bool same;  // the two models are one
  bool read;  // false: the report only says what cannot be read
};

// Returns the verdict in any format but html. What cannot be read is on stderr, not in the text.
std::string InFormat(const std::string& format, const Judged& about, const Style& style) {
  const auto& [flags, report, inferred, judged, same, read] = about;
  if (format == "json") {
    auto document = VerifyDocument(report);
    if (same) document["same_model"] = true;
    if (!inferred.empty()) document["relation"] = ToJson(inferred[judged]);
    for (size_t k = 0; inferred.size() > 1 && k < inferred.size(); ++k) {
      if (k != judged) document["other_relations"].push_back(ToJson(inferred[k]));
    }
    return JsonText(document);
  }
  if (format == "sarif") {
    return JsonText(SarifLog(VerifyDiagnostics(report, flags.before, flags.after), kVersion));
  }
  if (format == "junit") return JunitXml(VerifySuites(report, flags.before, flags.after));
  if (format == "github") {
    return GithubAnnotations(VerifyDiagnostics(report, flags.before, flags.after));
  }
  if (!read) return {};
  return (same ? kComparedWithItself : "") +
         (inferred.empty() ? "" : RelationsText(inferred, judged)) +
         VerifyText(report, flags.common.verbose, style);
}

// Returns OK if the outputs may be written, as far as this is known before the models are read.
absl::Status MayWrite(const VerifyFlags& flags, const OutputGuard& guard) {
  KV_ASSIGN_OR_RETURN(std::vector<std::string> files,
                      FilesOfSaved(flags.save, VerifyDocumentFormats()));
  if (!flags.explorer.empty()) files.push_back(flags.explorer);
  KV_RETURN_IF_ERROR(guard.Check(files));
  for (const std::string& folder : {flags.save_failure, flags.obligations}) {
    if (folder.empty() || flags.force || IsFreeForFolder(folder)) continue;
    return Coded("KV501", absl::FailedPreconditionError(
                              fmt::format("{} exists and is not empty; --force writes into it",
                                          EscapeTerminal(folder))));
  }
  return absl::OkStatus();
}

// Saves and prints the documents. `page` makes that of the format html. Returns `code`, or that the
// documents cannot be written.
int Tell(const Judged& about, const OutputGuard& guard, Io& io, int code,
         const std::function<absl::StatusOr<std::string>()>& page) {
  const VerifyFlags& flags = about.flags;
  const auto in_format = [&](const std::string& format) -> absl::StatusOr<std::string> {
    if (format == "html") return page();
    return InFormat(format, about, Style());
  };
  const absl::Status saved = SaveDocuments(flags.save, VerifyDocumentFormats(), guard, in_format);
  if (!saved.ok()) return RefuseWith(io, "--save", saved, kUnwritable);
  const std::string format = flags.common.json ? "json" : flags.format;
  if (format != "text" || !flags.common.quiet) {
    io.Results() << InFormat(format, about, io.OutStyle());
  }
  return code;
}

// Tells that the models cannot be judged, in every document that is asked for. `error` has the code
// of a finding, and its message starts with the path of what is wrong.
int TellUnreadable(const VerifyFlags& flags, const OutputGuard& guard, const absl::Status& error,
                   Io& io) {
  Complain(io, "", error);
  VerifyReport report;  // inconclusive
  report.reason = CodeOf(error) + " " + std::string(error.message());
  const std::vector<Manifest> no_relations;
  const Judged about = {flags, report, no_relations, 0, /*same=*/false, /*read=*/false};
  return Tell(about, guard, io, kUnreadable, [&]() -> absl::StatusOr<std::string> {
    Report page;
    page.verdict = VerdictName(report.verdict);
    page.reason = report.reason;
    page.command = CommandText(io.args);
    page.version = kVersion;
    page.json = JsonText({{"verify", VerifyDocument(report)}});
    return HtmlReport(page);
  });
}

}  // namespace

int RunVerify(const VerifyFlags& flags, Io io) {
  OutputGuard guard(flags.force);
  guard.Reads(flags.manifest);
  for (const std::string& path : {flags.before, flags.after}) {
    guard.Reads(path);
    guard.ReadsManifestBeside(path);
  }
  if (const absl::Status may = MayWrite(flags, guard); !may.ok()) {
    return RefuseWith(io, "", may, kUnwritable);
  }
  const auto pair = ReadPair(io, flags.before, flags.after, flags.manifest, flags.common);
  if (!pair.ok()) return TellUnreadable(flags, guard, pair.status(), io);
  const auto& [before, after, relation, found, same] = *pair;
  std::vector<Manifest> inferred = found;
  VerifyOptions options;
  options.full = flags.plan == "full";
  options.seed = flags.seed;
  options.threads = flags.common.threads;
  options.source = true;
  options.whole = flags.whole;
  options.random_weights = ReadWeights(flags.weights).value_or(std::nullopt);
  io.Say("running both models step by step, and mutants of the second");
  options.say = [&](std::string what) { io.Say(std::move(what)); };
  size_t judged = 0;
  const auto report = inferred.empty() ? Verify(before, after, relation, options)
                                       : VerifyEach(before, after, &inferred, options, &judged);
  for (const Model* model : {&before, &after}) guard.ReadsModel(*model);
  if (!report.ok()) {
    const absl::Status error = CodedIfNone("KV001", Prefixed(flags.after, report.status()));
    return TellUnreadable(flags, guard, error, io);
  }
  if (!flags.save_failure.empty() && report->counterexample) {
    const absl::Status saved = SaveFailure(flags.save_failure, before, after, *report, guard);
    if (!saved.ok()) return RefuseWith(io, flags.save_failure, saved, kUnwritable);
  }
  if (!flags.obligations.empty()) {
    const absl::Status saved = SaveObligations(flags.obligations, before, after, relation, guard);
    if (!saved.ok()) return RefuseWith(io, flags.obligations, saved, kUnwritable);
  }
  if (!flags.explorer.empty()) {
    const std::string data =
        ModelExplorerData(*report, before.proto->graph().name(), after.proto->graph().name());
    const absl::Status saved = Save({{flags.explorer, data}}, guard);
    if (!saved.ok()) return RefuseWith(io, flags.explorer, saved, kUnwritable);
  }
  const Judged about = {flags, *report, inferred, judged, same, /*read=*/true};
  const Manifest& shown = inferred.empty() ? relation : inferred[judged];
  const int code =
      ExitCodeOf(report->verdict, flags.accept == "tested" ? Accept::kTested : Accept::kProved);
  return Tell(about, guard, io, code, [&, &source = before, &converted = after] {
    return ReportPage(source, converted, shown, *report, CommandText(io.args));
  });
}

}  // namespace kvlift::cli
