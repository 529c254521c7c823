#include "report/text/sarif.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/escape.h"
#include "base/sha256.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using nlohmann::ordered_json;

// Services refuse logs of several megabytes, and names can have any length.
constexpr size_t kMaxSarifBytes = 4096;
constexpr size_t kMaxNodes = 16;

std::string SarifText(std::string_view text) {
  return ToValidUtf8(Shorten(EscapeTerminal(text), kMaxSarifBytes));
}

std::string_view LevelName(Level level) {
  return level == Level::kError ? "error" : level == Level::kWarning ? "warning" : "note";
}

// Returns a URI reference; a relative path stays relative to the working directory of the tool.
std::string Uri(const std::string& path) {
  const std::string escaped = EscapeUriPath(path);
  return !escaped.empty() && escaped[0] == '/' && escaped.rfind("/./", 0) != 0 ? "file://" + escaped
                                                                               : escaped;
}

ordered_json Rule(const FindingInfo& info) {
  return {{"id", info.code},
          {"name", info.name},
          {"shortDescription", {{"text", info.message}}},
          {"fullDescription", {{"text", info.why}}},
          {"help", {{"text", info.remedy}}}};
}

// Returns a fingerprint that is equal for the same finding at the same nodes, wherever the model
// file is.
std::string Fingerprint(const Finding& finding) {
  Sha256 hash;
  hash.Update(finding.code + '\n' + finding.text);
  for (const std::string& node : finding.nodes) hash.Update('\n' + node);
  return hash.FinishHex();
}

ordered_json Location(const Diagnostic& d) {
  // A model has no lines; services show a result only if it has a region.
  ordered_json location = {
      {"physicalLocation",
       {{"artifactLocation", {{"uri", Uri(d.path)}}}, {"region", {{"startLine", 1}}}}}};
  ordered_json nodes = ordered_json::array();
  for (const std::string& node : d.finding.nodes) {
    if (nodes.size() == kMaxNodes) break;
    nodes.push_back({{"fullyQualifiedName", SarifText(node)}, {"kind", "element"}});
  }
  if (!nodes.empty()) location["logicalLocations"] = std::move(nodes);
  return location;
}

ordered_json Result(const Diagnostic& d, size_t rule) {
  return {{"ruleId", d.finding.code},
          {"ruleIndex", rule},
          {"level", LevelName(d.level)},
          {"message", {{"text", SarifText(OneLine({"", d.finding.text, d.finding.nodes, {}}))}}},
          {"locations", ordered_json::array({Location(d)})},
          {"partialFingerprints", {{"kvliftFinding/v1", Fingerprint(d.finding)}}}};
}

ordered_json Notification(const Diagnostic& d) {
  return {{"level", LevelName(d.level)},
          {"message", {{"text", SarifText(OneLine(d.finding))}}},
          {"locations", ordered_json::array({Location(d)})}};
}

}  // namespace

ordered_json SarifLog(absl::Span<const Diagnostic> diagnostics, std::string_view tool_version) {
  std::set<std::string> codes;
  for (const Diagnostic& d : diagnostics) {
    if (FindFinding(d.finding.code) != nullptr) codes.insert(d.finding.code);
  }
  const std::vector<std::string> sorted(codes.begin(), codes.end());
  ordered_json rules = ordered_json::array();
  for (const std::string& code : sorted) rules.push_back(Rule(*FindFinding(code)));

  ordered_json results = ordered_json::array(), notes = ordered_json::array();
  for (const Diagnostic& d : diagnostics) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), d.finding.code);
    if (at == sorted.end() || *at != d.finding.code) {
      notes.push_back(Notification(d));
    } else {
      results.push_back(Result(d, static_cast<size_t>(at - sorted.begin())));
    }
  }
  ordered_json run = {
      {"tool",
       {{"driver", {{"name", "kvlift"}, {"version", tool_version}, {"rules", std::move(rules)}}}}},
      {"columnKind", "unicodeCodePoints"},
      {"results", std::move(results)}};
  if (!notes.empty()) {
    run["invocations"] = ordered_json::array(
        {{{"executionSuccessful", true}, {"toolExecutionNotifications", std::move(notes)}}});
  }
  return {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"version", "2.1.0"},
          {"runs", ordered_json::array({std::move(run)})}};
}

}  // namespace kvlift
