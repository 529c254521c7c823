#include <algorithm>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/saved_documents.h"
#include "lint/lint.h"
#include "lint/target.h"
#include "report/text/diagnostic.h"
#include "report/text/github.h"
#include "report/text/junit.h"
#include "report/text/sarif.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// The findings of one model that the flags select. If the model could not be checked, the only one
// says why.
struct Checked {
  std::string path;
  std::vector<Diagnostic> findings;
  bool checked = true;
};

bool Listed(const std::vector<std::string>& codes, const std::string& code) {
  return std::any_of(codes.begin(), codes.end(),
                     [&](const std::string& c) { return code.rfind(c, 0) == 0; });
}

std::string_view LevelName(Level level) { return level == Level::kError ? "error" : "warning"; }

size_t Count(const std::vector<Checked>& models, Level level) {
  size_t count = 0;
  for (const Checked& model : models) {
    if (!model.checked) continue;
    count +=
        static_cast<size_t>(std::count_if(model.findings.begin(), model.findings.end(),
                                          [&](const Diagnostic& d) { return d.level == level; }));
  }
  return count;
}

size_t CountUnchecked(const std::vector<Checked>& models) {
  return static_cast<size_t>(
      std::count_if(models.begin(), models.end(), [](const Checked& m) { return !m.checked; }));
}

ordered_json Document(const std::string& target, const std::vector<Checked>& models) {
  ordered_json document = {{"schema", "kvlift/check/1"}};
  if (!target.empty()) document["target"] = target;
  document["models"] = ordered_json::array();
  for (const Checked& model : models) {
    ordered_json findings = ordered_json::array();
    for (const Diagnostic& d : model.findings) {
      findings.push_back({{"severity", LevelName(d.level)},
                          {"code", d.finding.code},
                          {"text", d.finding.text},
                          {"nodes", d.finding.nodes},
                          {"values", d.finding.values}});
    }
    document["models"].push_back(
        {{"path", model.path}, {"checked", model.checked}, {"findings", std::move(findings)}});
  }
  return document;
}

// The errors of models that could not be checked are on stderr.
std::string Text(const std::vector<Checked>& models) {
  const size_t unchecked = CountUnchecked(models);
  if (unchecked == models.size()) return {};
  std::string text;
  for (const Checked& model : models) {
    if (!model.checked) {
      text += fmt::format("{}: not checked, {}\n", EscapeTerminal(model.path),
                          model.findings[0].finding.code);
      continue;
    }
    for (const Diagnostic& d : model.findings) {
      text += fmt::format("{}: {} {}: {}", EscapeTerminal(model.path), LevelName(d.level),
                          d.finding.code, EscapeTerminal(d.finding.text));
      if (!d.finding.nodes.empty()) {
        text += fmt::format("  (at {})", EscapeTerminal(d.finding.nodes[0]));
      }
      text += "\n";
    }
  }
  text += fmt::format("check: {} errors, {} warnings", Count(models, Level::kError),
                      Count(models, Level::kWarning));
  if (unchecked > 0) text += fmt::format(", {} of {} models not checked", unchecked, models.size());
  return text + "\n";
}

std::vector<Diagnostic> All(const std::vector<Checked>& models) {
  std::vector<Diagnostic> all;
  for (const Checked& model : models) {
    all.insert(all.end(), model.findings.begin(), model.findings.end());
  }
  return all;
}

// Returns one suite per model and one case per finding. Warnings do not fail a build; a model that
// could not be checked is an error.
std::string Junit(const std::vector<Checked>& models) {
  std::vector<TestSuite> suites;
  for (const Checked& model : models) {
    TestSuite suite{"check " + model.path, {}};
    for (const Diagnostic& d : model.findings) {
      const FindingInfo* info = FindFinding(d.finding.code);
      TestCase one{model.path, OneLine({d.finding.code, d.finding.text, d.finding.nodes, {}}),
                   !model.checked             ? CaseOutcome::kError
                   : d.level == Level::kError ? CaseOutcome::kFailed
                                              : CaseOutcome::kSkipped};
      one.type = d.finding.code;
      one.message = d.finding.text;
      if (info != nullptr) one.detail = fmt::format("{}\n{}", info->why, info->remedy);
      suite.cases.push_back(std::move(one));
    }
    if (suite.cases.empty()) suite.cases.push_back({model.path, "no findings"});
    suites.push_back(std::move(suite));
  }
  return JunitXml(suites);
}

std::string InFormat(const std::string& format, const CheckFlags& flags,
                     const std::vector<Checked>& models) {
  if (format == "json") return JsonText(Document(flags.target, models));
  if (format == "sarif") return JsonText(SarifLog(All(models), kVersion));
  if (format == "junit") return Junit(models);
  if (format == "github") return GithubAnnotations(All(models));
  return Text(models);
}

void Print(const CheckFlags& flags, const std::vector<Checked>& models, Io& io) {
  const std::string format = flags.common.json ? "json" : flags.format;
  if (format == "text" && flags.common.quiet) return;
  io.Results() << InFormat(format, flags, models);
}

// Returns what the rules say about one model. An error has the code of a finding, and its message
// starts with the path of what cannot be read.
absl::StatusOr<std::vector<Lint>> LintsOf(const std::string& path, const CheckFlags& flags,
                                          const CommonFlags& common, OutputGuard* guard, Io& io) {
  guard->Reads(path);
  guard->ReadsManifestBeside(path);
  KV_ASSIGN_OR_RETURN(const Model model, ReadModel(io, path, common));
  guard->ReadsModel(model);
  KV_ASSIGN_OR_RETURN(const auto manifest, ReadManifest(io, flags.manifest, model));
  io.Say("checking " + path);
  auto lints = LintModel(model, manifest ? &*manifest : nullptr, FindProfile(flags.target));
  return lints.ok() ? std::move(lints) : CodedIfNone("KV001", Prefixed(path, lints.status()));
}

// Returns the findings that the flags select, or the error that kept the model from being checked.
Checked CheckedOf(const std::string& path, const absl::StatusOr<std::vector<Lint>>& lints,
                  const CheckFlags& flags) {
  Checked checked{path, {}, lints.ok()};
  if (!lints.ok()) {
    const absl::Status& error = lints.status();
    checked.findings.push_back(
        {Level::kError, path, {CodeOf(error), std::string(error.message()), {}, {}}});
    return checked;
  }
  for (const Lint& lint : *lints) {
    if (!flags.select.empty() && !Listed(flags.select, lint.finding.code)) continue;
    if (Listed(flags.ignore, lint.finding.code)) continue;
    const Level level = lint.severity == Severity::kError ? Level::kError : Level::kWarning;
    checked.findings.push_back({level, path, lint.finding});
  }
  return checked;
}

}  // namespace

int RunCheck(const CheckFlags& flags, Io io) {
  std::vector<Checked> models;
  OutputGuard guard(flags.force);
  guard.Reads(flags.manifest);
  CommonFlags common = flags.common;
  common.load.data.links = common.load.data.hard_links;  // --trust-links
  for (const std::string& path : flags.models) {
    const auto lints = LintsOf(path, flags, common, &guard, io);
    if (!lints.ok()) Complain(io, "", lints.status());
    models.push_back(CheckedOf(path, lints, flags));
  }
  const absl::Status saved =
      SaveDocuments(flags.save, kFormats, guard, [&](const std::string& format) {
        return absl::StatusOr<std::string>(InFormat(format, flags, models));
      });
  if (!saved.ok()) {
    Complain(io, "--save", saved);
    return kUnwritable;
  }
  Print(flags, models, io);
  if (CountUnchecked(models) > 0) return kUnreadable;
  return Count(models, Level::kError) > 0 && !flags.exit_zero ? kFindings : kDone;
}

}  // namespace kvlift::cli
