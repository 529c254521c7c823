#include "verify/steps/plans.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fmt/format.h"
#include "verify/steps/planner.h"

namespace kvlift {

std::vector<Plan> Planner::Run() {
  Uniform("prefill of 1", "a first token, the next one, and four", 1, {1, 1, 4});
  Uniform("prefill of 2", "a short prompt, then a longer chunk", 1, {2, 3});
  Uniform("decode", "a prompt of 7, three tokens, a chunk of 3", 1, {7, 1, 1, 1, 3});
  Uniform("batch", "the same with three sequences", 3, {7, 1, 1, 1, 3});
  LastSlot();
  LastChunk();
  Ragged();
  RightPads();
  ShortSteps();
  LeftPads();
  RaggedPrompt();
  if (l_.reorders || l_.full) ChangedPlaces();
  if (l_.kept || l_.full) PastTheWindow();
  if (l_.circular) AroundTheEnd();
  for (int64_t window : l_.rings) AroundTheRing(window);
  Noise();
  Nine();
  LongPrompt();
  LongerPrompt();
  FreeMasks();
  FreePositions();
  LongPast();
  for (int64_t threshold : l_.thresholds) Near(threshold);
  if (l_.free_lengths) FreeLengths();
  if (l_.full) {
    Uniform("prefill of 7", "a longer prompt", 1, {7});
    Uniform("chunks", "a prompt in chunks of 2 and 3", 2, {2, 3, 2, 3, 1, 1});
    Uniform("long decode", "one token at a time", 2, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    if (!l_.circular) {
      Skip(Named("around the end", "rows wrap around the end of the buffer"),
           "the caches are linear: a write behind the end is refused (\"one past the end\")");
    }
  }
  return std::move(plans_);
}

Plan Planner::Named(std::string name, std::string shows) const {
  Plan plan;
  plan.name = std::move(name);
  plan.shows = std::move(shows);
  plan.capacity = l_.capacity;
  return plan;
}

void Planner::Add(Plan* plan, std::vector<int64_t>* past, int64_t tokens) {
  StepSpec step;
  step.number = static_cast<int>(plan->steps.size());
  step.past = *past;
  step.new_tokens = tokens;
  step.sequences.resize(past->size());
  std::iota(step.sequences.begin(), step.sequences.end(), 0);
  plan->steps.push_back(std::move(step));
  for (int64_t& p : *past) p += tokens;
}

void Planner::Skip(Plan plan, std::string why) {
  plan.skipped = std::move(why);
  plan.steps.clear();
  plans_.push_back(std::move(plan));
}

std::vector<int64_t> Planner::Taken(const std::vector<int64_t>& lengths) const {
  std::vector<int64_t> taken;
  for (size_t k = 0; k < lengths.size(); ++k) {
    const int64_t most = l_.tokens              ? *l_.tokens
                         : k == 0 && l_.prefill ? lengths[k]
                         : k == 0               ? 1
                         : l_.tokens_with_past  ? std::min(lengths[k], *l_.tokens_with_past)
                                                : lengths[k];
    const int64_t cut = l_.most_tokens ? std::min(most, *l_.most_tokens) : most;
    for (int64_t left = lengths[k]; left > 0; left -= cut) {
      taken.push_back(l_.tokens ? cut : std::min(left, cut));
    }
  }
  return taken;
}

int64_t Planner::Chunk(int64_t tokens) const {
  if (l_.tokens) return *l_.tokens;
  int64_t most = std::min(tokens, l_.tokens_with_past.value_or(tokens));
  if (l_.most_tokens) most = std::min(most, *l_.most_tokens);
  return std::max<int64_t>(1, most);
}

int64_t Planner::PastOf(int64_t tokens) const {
  const int64_t step = l_.tokens.value_or(1);
  return tokens / step * step;
}

bool Planner::Affordable(int64_t batch, int64_t rows) const {
  return l_.full || batch * rows * l_.row_bytes <= kMostBytes;
}

bool Planner::Fits(int64_t tokens) const {
  return l_.free_capacity || l_.circular || tokens <= l_.capacity;
}

bool Planner::EndsWhereItsTokensEnd(const Plan& plan) const {
  return l_.free_capacity && !l_.circular && !l_.kept && !plan.steps.empty() &&
         plan.steps.back().new_tokens > 1;
}

Plan Planner::Extra(const std::string& name, const std::string& shows, int64_t batch, int64_t past,
                    const std::vector<int64_t>& lengths) const {
  Plan plan = Named(name, shows);
  plan.extra = true;
  std::vector<int64_t> at(batch, past);
  for (int64_t length : lengths) {
    if (!Fits(at[0] + length)) break;
    Add(&plan, &at, length);
  }
  for (StepSpec& step : plan.steps) step.draw = static_cast<int>(plans_.size());
  if (l_.free_capacity) plan.capacity = std::max(l_.capacity, at[0] + 1);
  if (plan.steps.empty()) plan.skipped = "the capacity is too small";
  if (plan.skipped.empty() && !Affordable(batch, at[0])) {
    plan.steps.clear();
    plan.skipped = "caches of that size are too large";
  }
  return plan;
}

void Planner::PushFirst(std::vector<Plan> all) {
  Plan plan = std::move(all.front());
  all.erase(all.begin());
  plan.instead = std::move(all);
  plans_.push_back(std::move(plan));
}

std::string Planner::OnlyBatch() const {
  return *l_.batch == 1 ? "steps have one sequence only"
                        : fmt::format("steps have {} sequences only", *l_.batch);
}

bool WrapsAround(const Plan& plan) {
  return plan.rings || std::any_of(plan.steps.begin(), plan.steps.end(), [&](const StepSpec& step) {
           return step.longest() + step.new_tokens > plan.capacity;
         });
}

std::vector<Plan> MakePlans(const PlanLimits& limits) { return Planner(limits).Run(); }

}  // namespace kvlift
