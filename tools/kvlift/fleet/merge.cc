#include "kvlift/fleet/merge.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/fleet/results_file.h"
#include "kvlift/outputs.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// Makes the paths of a result relative to another folder.
void MoveTo(const fs::path& to, const fs::path& from, FleetResult* result) {
  for (std::string* path : {&result->output, &result->document, &result->report, &result->log}) {
    if (!path->empty()) *path = (from / *path).lexically_relative(to).string();
  }
  for (FleetFile& file : result->files) {
    file.path = (from / file.path).lexically_relative(to).string();
  }
}

}  // namespace

absl::StatusOr<std::vector<FleetResult>> ReadResultsFor(const std::string& output,
                                                        const std::string& file) {
  auto results = ReadResults(file);
  if (!results.ok()) return Prefixed(file, results.status());
  const fs::path to = CanonicalFolder(output), from = CanonicalFolder(fs::path(file).parent_path());
  for (FleetResult& result : *results) MoveTo(to, from, &result);
  return results;
}

absl::StatusOr<MergedResults> MergeResults(const std::vector<std::string>& files,
                                           const std::string& output) {
  std::vector<FleetResult> all;
  for (const std::string& file : files) {
    KV_ASSIGN_OR_RETURN(std::vector<FleetResult> results, ReadResultsFor(output, file));
    std::move(results.begin(), results.end(), std::back_inserter(all));
  }
  MergedResults merged{InOrder(all), 0};
  std::map<std::string, std::pair<size_t, size_t>> counts;  // by command: results, models
  for (size_t k = 0; k < merged.results.size(); ++k) {
    const FleetResult& result = merged.results[k];
    const auto [it, first] = counts.try_emplace(result.command, 0, result.of);
    ++it->second.first;
    const bool twice = k > 0 && merged.results[k - 1].command == result.command &&
                       merged.results[k - 1].index == result.index;
    if (it->second.second != result.of || twice || result.index > result.of) {
      return absl::InvalidArgumentError(
          fmt::format("the results are about different lists: {} is model {} of {}", result.model,
                      result.index, result.of));
    }
  }
  for (const auto& [command, count] : counts) merged.missing += count.second - count.first;
  return merged;
}

}  // namespace kvlift::cli
