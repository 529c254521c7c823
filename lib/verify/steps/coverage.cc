#include "verify/steps/coverage.h"

#include <algorithm>

#include "fmt/format.h"

namespace kvlift {

void Coverage::Add(const Plan& plan, const Outcome& outcome) {
  for (int k = 0; k < outcome.steps; ++k) {
    const StepSpec& step = plan.steps[k];
    starts_.insert(step.past.begin(), step.past.end());
    if (step.past[0] > 0) ++decodes_;
    const std::set<int64_t> lengths(step.past.begin(), step.past.end());
    lengths_differ_ = lengths_differ_ || lengths.size() > 1;
    last_slot_ = last_slot_ || step.longest() + step.new_tokens == plan.capacity;
    around_ = around_ || WrapsAround(plan);
    many_tokens_ = many_tokens_ || step.new_tokens > 1;
    pads_ = pads_ || !step.pads.empty();
  }
  for (const auto& [cache, indices] : outcome.written) {
    written_[cache].insert(indices.begin(), indices.end());
  }
}

void Coverage::AddSizes(const Plan& plan, const Outcome& outcome) {
  for (int k = 0; k < outcome.steps; ++k) {
    many_tokens_ = many_tokens_ || plan.steps[k].new_tokens > 1;
  }
}

std::pair<size_t, std::string> Coverage::FewestIndices(const Manifest& relation) const {
  std::pair<size_t, std::string> fewest = {starts_.size(), ""};
  for (const ManifestCache& cache : relation.caches) {
    if (cache.grows) continue;
    const auto it = written_.find(cache.id);
    const size_t count = it == written_.end() ? 0 : it->second.size();
    if (count < fewest.first) fewest = {count, cache.id};
  }
  return fewest;
}

std::vector<std::pair<std::string, std::string>> Coverage::Lines(
    const Manifest& relation, const CoverageExcuses& excuses) const {
  const auto unless = [](bool reached, const char* yes, const char* no, const std::string& why) {
    if (reached) return std::string(yes);
    return why.empty() ? std::string(no) : fmt::format("{}: {}", no, why);
  };
  std::vector<std::pair<std::string, std::string>> lines = {
      {"decode steps",
       fmt::format("{}{}{}", decodes_, excuses.no_past.empty() ? "" : ": ", excuses.no_past)},
      {"write indices", fmt::format("{}", starts_.size())},
      {"write indices of every cache", fmt::format("{} or more", FewestIndices(relation).first)},
      {"last slot", unless(last_slot_, "reached", "not reached", excuses.last_slot)},
      {"lengths in one batch", unless(lengths_differ_, "differ", "equal", excuses.one_length)},
      {"new tokens of a step", unless(many_tokens_, "several", "one", excuses.one_token)}};
  if (std::any_of(relation.caches.begin(), relation.caches.end(),
                  [&](const ManifestCache& cache) { return IsCircular(relation, cache); })) {
    lines.emplace_back("around the end", around_ ? "reached" : "not reached");
  }
  return lines;
}

std::string Coverage::Missing(const Manifest& relation, const CoverageExcuses& excuses) const {
  const int decodes = excuses.no_past.empty() ? 2 : 0;
  const size_t indices = excuses.no_past.empty() ? 2 : 1;
  if (decodes_ < decodes || starts_.size() < indices) {
    return fmt::format("only {} steps with a past could be run", decodes_);
  }
  if (const auto [count, cache] = FewestIndices(relation); count < indices) {
    return fmt::format("cache {} was seen to be written at {} indices only", cache, count);
  }
  if (!last_slot_ && excuses.last_slot.empty()) return "no step reached the last slot";
  if (!lengths_differ_ && excuses.one_length.empty()) {
    return "no batch held sequences of different lengths";
  }
  if (!many_tokens_ && excuses.one_token.empty()) return "no step had several new tokens";
  return {};
}

}  // namespace kvlift
