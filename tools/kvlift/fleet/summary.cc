#include "kvlift/fleet/summary.h"

#include <algorithm>

#include "base/findings.h"
#include "fmt/format.h"
#include "kvlift/texts.h"
#include "report/text/table.h"

namespace kvlift::cli {

FleetCounts CountResults(absl::Span<const FleetResult> results) {
  FleetCounts counts;
  counts.models = results.size();
  for (const FleetResult& result : results) {
    counts.succeeded += result.succeeded ? 1 : 0;
    ++counts.outcomes[result.outcome];
    for (const std::string& code : result.codes) ++counts.codes[code];
  }
  return counts;
}

std::string SummaryText(const std::string& command, const FleetCounts& counts, const Style& style) {
  std::vector<std::vector<std::string>> outcomes, codes;
  for (const std::string& word : FleetOutcomes()) {
    const auto found = counts.outcomes.find(word);
    if (found == counts.outcomes.end()) continue;
    outcomes.push_back({word, fmt::format("{}", found->second)});
  }
  for (const auto& [code, number] : counts.codes) {
    const FindingInfo* info = FindFinding(code);
    codes.push_back(
        {code, fmt::format("{}", number), info == nullptr ? "" : std::string(info->message)});
  }
  std::string text;
  if (!outcomes.empty()) {
    text += FormatTable({"outcome", {"models", Align::kRight}}, outcomes, style) + "\n";
  }
  if (!codes.empty()) {
    text += FormatTable({"code", {"models", Align::kRight}, "finding"}, codes, style, ToneOfCell) +
            "\n";
  }
  std::string last = fmt::format("{}: {} of {} models succeeded", command, counts.succeeded,
                                 counts.models + counts.missing);
  if (counts.missing > 0) last += fmt::format(", {} have no result", counts.missing);
  return text + style.Paint(counts.AllSucceeded() ? Tone::kGood : Tone::kBad, last) + "\n";
}

nlohmann::ordered_json SummaryDocument(const std::string& command, const FleetCounts& counts,
                                       const std::string& results, const std::string& page) {
  nlohmann::ordered_json outcomes = nlohmann::ordered_json::object(), codes = outcomes;
  for (const std::string& word : FleetOutcomes()) {
    const auto found = counts.outcomes.find(word);
    if (found != counts.outcomes.end()) outcomes[word] = found->second;
  }
  for (const auto& [code, number] : counts.codes) codes[code] = number;
  return {{"schema", "kvlift/fleet/1"},
          {"command", command},
          {"models", counts.models},
          {"succeeded", counts.succeeded},
          {"missing", counts.missing},
          {"outcomes", outcomes},
          {"codes", codes},
          {"results", results},
          {"page", page}};
}

}  // namespace kvlift::cli
