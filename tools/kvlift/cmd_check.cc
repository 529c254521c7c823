#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/escape.h"
#include "commands.h"
#include "contract/manifest.h"
#include "fmt/format.h"
#include "lint/lint.h"
#include "relation.h"

namespace kvlift::cli {
namespace {

bool Listed(const std::vector<std::string>& codes, const std::string& code) {
  return std::any_of(codes.begin(), codes.end(),
                     [&](const std::string& c) { return code.rfind(c, 0) == 0; });
}

nlohmann::ordered_json LintJson(const Lint& lint) {
  return {{"severity", lint.severity == Severity::kError ? "error" : "warning"},
          {"code", lint.finding.code},
          {"text", lint.finding.text},
          {"nodes", lint.finding.nodes},
          {"values", lint.finding.values}};
}

std::string LintLine(const std::string& path, const Lint& lint) {
  std::string line = fmt::format("{}: {} {}: {}", EscapeTerminal(path),
                                 lint.severity == Severity::kError ? "error" : "warning",
                                 lint.finding.code, EscapeTerminal(lint.finding.text));
  if (!lint.finding.nodes.empty()) {
    line += fmt::format("  (at {})", EscapeTerminal(lint.finding.nodes[0]));
  }
  return line + "\n";
}

}  // namespace

int RunCheck(const CheckFlags& flags, Io io) {
  nlohmann::ordered_json document = {{"schema", "kvlift/check/1"}};
  document["models"] = nlohmann::ordered_json::array();
  size_t errors = 0, warnings = 0;
  const bool json = flags.common.json || flags.format == "json";
  CommonFlags common = flags.common;
  common.load.data.links = common.load.data.hard_links;  // --trust-links
  for (const std::string& path : flags.models) {
    const auto model = Load(io, path, common);
    if (!model) return kUnreadable;
    bool broken = false;
    const auto manifest = ManifestOf(io, flags.manifest, *model, &broken);
    if (broken) return kUnreadable;
    const auto lints = LintModel(*model, manifest ? &*manifest : nullptr);
    if (!lints.ok()) {
      Complain(io, path, std::string(lints.status().message()));
      return kUnreadable;
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Lint& lint : *lints) {
      if (!flags.select.empty() && !Listed(flags.select, lint.finding.code)) continue;
      if (Listed(flags.ignore, lint.finding.code)) continue;
      ++(lint.severity == Severity::kError ? errors : warnings);
      list.push_back(LintJson(lint));
      if (!json && !flags.common.quiet) io.out << LintLine(path, lint);
    }
    document["models"].push_back({{"path", path}, {"findings", std::move(list)}});
  }
  if (json) {
    PrintJson(io, document);
  } else if (!flags.common.quiet) {
    io.out << fmt::format("check: {} errors, {} warnings\n", errors, warnings);
  }
  return errors > 0 && !flags.exit_zero ? kFindings : kDone;
}

}  // namespace kvlift::cli
