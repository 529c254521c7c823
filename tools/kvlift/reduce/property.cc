#include "kvlift/reduce/property.h"

#include <algorithm>

#include "base/findings.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

constexpr char kCrash[] = "crash";
// Another cache is the cause of this refusal, which has a code of its own.
constexpr char kHeldBack[] = "KV223";

// Returns the word of --keep for an outcome; empty if --keep cannot name the outcome.
std::string WordOf(const std::string& outcome) {
  if (outcome == "crashed") return kCrash;
  for (const char* word : {"different", "inconclusive", "refused", "invalid"}) {
    if (outcome == word) return word;
  }
  return {};
}

void AddPlans(const std::string& document, Observation* seen) {
  const auto json = ordered_json::parse(document, nullptr, false);
  if (!json.is_object()) return;
  const auto plans = json.find("plans");
  if (plans == json.end() || !plans->is_array()) return;
  for (const ordered_json& plan : *plans) {
    if (!plan.is_object()) continue;
    const std::string name = plan.value("name", ""), status = plan.value("status", "");
    if (status == "bitwise" || status == "within bound") seen->passed.insert(name);
    if (status == "different" || status == "failed") seen->failed.insert(name);
  }
}

// Returns the code that says why a model is refused: the first one in the text, unless it only
// points at another.
std::string CodeOf(const FleetResult& result) {
  const std::string first = result.reason.substr(0, 5);
  const std::vector<std::string>& codes = result.codes;
  const auto has = [&](const std::string& code) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
  };
  if (has(first) && first != kHeldBack) return first;
  for (const std::string& code : codes) {
    if (code != kHeldBack) return code;
  }
  return codes.empty() ? "" : codes.front();
}

}  // namespace

Observation Observe(const std::string& command, const ProcessEnd& end, const ProcessOutput& printed,
                    const ProcessLimits& limits) {
  Observation seen;
  seen.result.command = command;
  if (limits.memory_bytes > 0) {
    seen.result.memory_gib =
        static_cast<double>(limits.memory_bytes) / static_cast<double>(int64_t{1} << 30);
  }
  if (limits.seconds > 0) seen.result.timeout_seconds = limits.seconds;
  Judge(end, printed, &seen.result);
  AddPlans(printed.document, &seen);
  return seen;
}

bool ReachedLimit(const Observation& seen) {
  const FleetResult& result = seen.result;
  return result.outcome == "timeout" ||
         (result.outcome == "out-of-memory" && result.memory_gib.has_value());
}

std::optional<Property> Property::Of(const Observation& seen, const std::string& keep) {
  const FleetResult& result = seen.result;
  const std::string word = WordOf(result.outcome);
  if (word.empty()) return std::nullopt;
  Property property;
  property.outcome_ = result.outcome;
  property.passed_ = seen.passed;
  if (word == kCrash) {
    if (!keep.empty() && keep != kCrash) return std::nullopt;
    property.exit_code_ = result.exit_code;
    return property;
  }
  property.code_ = CodeOf(result);
  if (FindFinding(keep) != nullptr) {
    const auto& codes = result.codes;
    if (std::find(codes.begin(), codes.end(), keep) == codes.end()) return std::nullopt;
    property.code_ = keep;
  } else if (!keep.empty()) {
    if (keep != word) return std::nullopt;
    property.code_.clear();
  }
  return property;
}

bool Property::IsShown(const Observation& seen) const {
  const FleetResult& result = seen.result;
  if (result.outcome != outcome_) return false;
  if (outcome_ == "crashed" && result.exit_code != exit_code_) return false;
  if (!code_.empty() &&
      std::find(result.codes.begin(), result.codes.end(), code_) == result.codes.end()) {
    return false;
  }
  return std::none_of(seen.failed.begin(), seen.failed.end(),
                      [&](const std::string& plan) { return passed_.contains(plan); });
}

std::string Property::Word() const { return WordOf(outcome_); }

std::string Property::Text() const {
  if (Word() == kCrash) return fmt::format("a crash with exit code {}", exit_code_);
  return code_.empty() ? Word() : fmt::format("{} with {}", Word(), code_);
}

std::string KeepWordError(const std::string& word) {
  for (const char* known : {"different", "inconclusive", kCrash}) {
    if (word == known) return {};
  }
  if (FindFinding(word) != nullptr) return {};
  return "needs the code of a finding, such as KV205, or different, inconclusive or crash";
}

}  // namespace kvlift::cli
