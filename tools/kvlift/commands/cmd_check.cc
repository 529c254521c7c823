#include <algorithm>

#include "base/escape.h"
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

// The findings of one model that the flags select.
struct Checked {
  std::string path;
  std::vector<Diagnostic> findings;
};

bool Listed(const std::vector<std::string>& codes, const std::string& code) {
  return std::any_of(codes.begin(), codes.end(),
                     [&](const std::string& c) { return code.rfind(c, 0) == 0; });
}

std::string_view LevelName(Level level) { return level == Level::kError ? "error" : "warning"; }

size_t Count(const std::vector<Checked>& models, Level level) {
  size_t count = 0;
  for (const Checked& model : models) {
    count +=
        static_cast<size_t>(std::count_if(model.findings.begin(), model.findings.end(),
                                          [&](const Diagnostic& d) { return d.level == level; }));
  }
  return count;
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
    document["models"].push_back({{"path", model.path}, {"findings", std::move(findings)}});
  }
  return document;
}

std::string Text(const std::vector<Checked>& models) {
  std::string text;
  for (const Checked& model : models) {
    for (const Diagnostic& d : model.findings) {
      text += fmt::format("{}: {} {}: {}", EscapeTerminal(model.path), LevelName(d.level),
                          d.finding.code, EscapeTerminal(d.finding.text));
      if (!d.finding.nodes.empty()) {
        text += fmt::format("  (at {})", EscapeTerminal(d.finding.nodes[0]));
      }
      text += "\n";
    }
  }
  return text + fmt::format("check: {} errors, {} warnings\n", Count(models, Level::kError),
                            Count(models, Level::kWarning));
}

std::vector<Diagnostic> All(const std::vector<Checked>& models) {
  std::vector<Diagnostic> all;
  for (const Checked& model : models) {
    all.insert(all.end(), model.findings.begin(), model.findings.end());
  }
  return all;
}

// Returns one suite per model and one case per finding. Warnings do not fail a build.
std::string Junit(const std::vector<Checked>& models) {
  std::vector<TestSuite> suites;
  for (const Checked& model : models) {
    TestSuite suite{"check " + model.path, {}};
    for (const Diagnostic& d : model.findings) {
      const FindingInfo* info = FindFinding(d.finding.code);
      TestCase one{model.path, OneLine({d.finding.code, d.finding.text, d.finding.nodes, {}}),
                   d.level == Level::kError ? Outcome::kFailed : Outcome::kSkipped};
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

}  // namespace

int RunCheck(const CheckFlags& flags, Io io) {
  std::vector<Checked> models;
  constexpr bool kReplacesFiles = true;
  OutputGuard guard(kReplacesFiles);
  guard.Reads(flags.manifest);
  CommonFlags common = flags.common;
  common.load.data.links = common.load.data.hard_links;  // --trust-links
  for (const std::string& path : flags.models) {
    const auto model = Load(io, path, common);
    if (!model) return kUnreadable;
    guard.ReadsModel(*model);
    guard.ReadsManifestBeside(path);
    bool broken = false;
    const auto manifest = ManifestOf(io, flags.manifest, *model, &broken);
    if (broken) return kUnreadable;
    io.Say("checking " + path);
    const auto lints =
        LintModel(*model, manifest ? &*manifest : nullptr, FindProfile(flags.target));
    if (!lints.ok()) {
      Complain(io, path, lints.status());
      return kUnreadable;
    }
    models.push_back({path, {}});
    for (const Lint& lint : *lints) {
      if (!flags.select.empty() && !Listed(flags.select, lint.finding.code)) continue;
      if (Listed(flags.ignore, lint.finding.code)) continue;
      models.back().findings.push_back(
          {lint.severity == Severity::kError ? Level::kError : Level::kWarning, path,
           lint.finding});
    }
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
  return Count(models, Level::kError) > 0 && !flags.exit_zero ? kFindings : kDone;
}

}  // namespace kvlift::cli
