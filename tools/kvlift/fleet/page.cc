// The page of all results.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/escape.h"
#include "base/findings.h"
#include "fmt/format.h"
#include "kvlift/fleet/summary.h"
#include "report/html/html_parts.h"
#include "report/text/bytes.h"

namespace kvlift::cli {
namespace {

using html::Text;

std::string_view ClassOf(const FleetResult& result) {
  if (result.succeeded) return "yes";
  return result.outcome == "inconclusive" || result.outcome == "equal-as-tested" ||
                 result.outcome == "no-cache"
             ? "so"
             : "no";
}

void AddLink(const std::string& path, const char* title, std::vector<std::string>* links) {
  if (path.empty()) return;
  links->push_back(fmt::format("<a href=\"{}\">{}</a>", EscapeMarkup(EscapeUriPath(path)), title));
}

std::string ModelRow(const FleetResult& r) {
  std::vector<std::string> links;
  AddLink(r.output, "model", &links);
  AddLink(r.report, "report", &links);
  AddLink(r.document, "JSON", &links);
  AddLink(r.log, "log", &links);
  const std::string after =
      r.after.empty() ? "" : fmt::format("<br><span class=\"faint\">{}</span>", Text(r.after));
  return fmt::format(
      "<tr data-outcome=\"{}\"><td>{}</td><td>{}{}</td><td class=\"{}\">{}</td><td>{}</td>"
      "<td>{}</td><td>{:.1f} s</td><td>{}</td><td>{}</td></tr>\n",
      Text(r.outcome), r.index, Text(r.model), after, ClassOf(r), Text(r.outcome),
      Text(absl::StrJoin(r.codes, " ")), Text(r.reason), r.seconds, BytesText(r.peak_memory_bytes),
      absl::StrJoin(links, " "));
}

std::string ModelsTable(absl::Span<const FleetResult> results, const std::string& command) {
  std::string text = fmt::format(
      "<div class=\"scroll\"><table id=\"{}-models\" data-rows=\"{}\" class=\"wide\">\n<thead><tr>",
      Text(command), results.size());
  for (const char* title : {"", "model", "outcome", "codes", "reason", "time", "memory", "files"}) {
    text += fmt::format("<th scope=\"col\">{}</th>", title);
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const FleetResult& result : results) text += ModelRow(result);
  return text + "</tbody></table></div>\n";
}

std::string CountTables(const FleetCounts& counts, const std::string& command) {
  ReportTable outcomes{command + "-outcomes", "", {"outcome", "models"}, {}};
  for (const std::string& word : FleetOutcomes()) {
    const auto found = counts.outcomes.find(word);
    if (found == counts.outcomes.end()) continue;
    outcomes.rows.push_back({word, fmt::format("{}", found->second)});
  }
  ReportTable codes{command + "-codes", "", {"code", "models", "finding"}, {}};
  for (const auto& [code, number] : counts.codes) {
    const FindingInfo* info = FindFinding(code);
    codes.rows.push_back(
        {code, fmt::format("{}", number), info == nullptr ? "" : std::string(info->message)});
  }
  return html::TableMarkup(outcomes) + html::TableMarkup(codes);
}

// Returns the runs of results that have the same command.
std::vector<absl::Span<const FleetResult>> ByCommand(absl::Span<const FleetResult> results) {
  std::vector<absl::Span<const FleetResult>> parts;
  for (size_t begin = 0; begin < results.size();) {
    size_t end = begin;
    while (end < results.size() && results[end].command == results[begin].command) ++end;
    parts.push_back(results.subspan(begin, end - begin));
    begin = end;
  }
  return parts;
}

}  // namespace

std::string FleetPage(absl::Span<const FleetResult> results) {
  std::string verdicts, nav, body;
  for (const auto part : ByCommand(results)) {
    const std::string& command = part[0].command;
    const FleetCounts counts = CountResults(part);
    verdicts += fmt::format(
        "<div class=\"verdict {}\"><b>{}: {} of {} models succeeded</b></div>\n",
        counts.AllSucceeded() ? "good" : "bad", Text(command), counts.succeeded, counts.models);
    nav += fmt::format("<a href=\"#{0}\">{0}</a>\n", Text(command));
    body += fmt::format("<section id=\"{0}\">\n<h2>{0}</h2>\n{1}{2}</section>\n", Text(command),
                        CountTables(counts, command), ModelsTable(part, command));
  }
  if (results.empty()) verdicts = "<p><b>No models</b></p>\n";
  const std::string version = results.empty() ? "" : results[0].version;
  return html::Head("kvlift fleet") +
         fmt::format(
             "<body>\n<header>\n<h1>kvlift fleet</h1>\n{}"
             "<p class=\"faint\">Made by kvlift {}; programs read "
             "<a href=\"results.jsonl\">results.jsonl</a></p>\n"
             "<nav>\n{}</nav>\n</header>\n<main>\n{}</main>\n</body>\n</html>\n",
             verdicts, Text(version), nav, body);
}

}  // namespace kvlift::cli
