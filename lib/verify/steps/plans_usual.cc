#include <algorithm>
#include <numeric>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "verify/steps/planner.h"

namespace kvlift {
namespace {

constexpr char kRuledOut[] = "a precondition rules out steps with padding";

// If filling a cache takes more steps than this, the plan begins near its end, behind a given past.
constexpr int64_t kManySlots = 48;

}  // namespace

void Planner::Uniform(const std::string& name, const std::string& shows, int64_t batch,
                      const std::vector<int64_t>& lengths) {
  Plan plan = Named(name, shows);
  if (l_.batch && *l_.batch != batch) {
    if (batch != 1) return Skip(std::move(plan), OnlyBatch());
    batch = *l_.batch;
  }
  std::vector<int64_t> past(batch, 0);
  for (int64_t length : Taken(lengths)) {
    if (past[0] + length > l_.capacity) break;
    Add(&plan, &past, length);
  }
  if (plan.steps.empty()) return Skip(std::move(plan), "the capacity is too small");
  if (batch > 1 && EndsWhereItsTokensEnd(plan)) plan.capacity = past[0];
  // If a prompt or a chunk was split, the text says the lengths that are run.
  if (plan.steps.size() != lengths.size()) {
    std::vector<int64_t> run;
    for (const StepSpec& step : plan.steps) run.push_back(step.new_tokens);
    plan.shows = fmt::format("steps of {} tokens", fmt::join(run, ", "));
  }
  plans_.push_back(std::move(plan));
}

void Planner::LastSlot() {
  Plan plan = Named("last slot", "the buffer filled to the end");
  const int64_t step = l_.tokens.value_or(1);
  std::vector<int64_t> past(l_.batch.value_or(1), 0);
  const bool far = l_.capacity / step > kManySlots;
  if (l_.kept && (far || l_.capacity % step != 0)) {
    return Skip(std::move(plan), "the window does not reach it");
  }
  if (far) {
    past.assign(past.size(), l_.capacity - 4 * step);
  } else if (l_.capacity % step != 0) {
    past.assign(past.size(), l_.capacity % step);
  } else if (l_.prefill && !l_.tokens && l_.capacity > 2) {
    for (int64_t length : Taken({l_.capacity - 2})) Add(&plan, &past, length);
  }
  while (past[0] < l_.capacity) Add(&plan, &past, step);
  if (plan.steps.empty()) return Skip(std::move(plan), "the capacity is too small");
  plans_.push_back(std::move(plan));
}

void Planner::LastChunk() {
  constexpr int64_t kMostPrompt = 64;
  if (l_.free_capacity || l_.circular || l_.kept || l_.tokens) return;
  std::vector<int64_t> past(l_.batch.value_or(1), l_.capacity - 2);
  if (Chunk(2) == 2 && l_.capacity > 2) {
    Plan plan = Named("last chunk", "a chunk that ends in the last slot");
    Add(&plan, &past, 2);
    plans_.push_back(std::move(plan));
  }
  if (!l_.prefill || l_.capacity > std::min(kMostPrompt, l_.most_tokens.value_or(kMostPrompt))) {
    return;
  }
  Plan plan = Named("whole buffer", "a prompt that fills the buffer");
  past.assign(past.size(), 0);
  Add(&plan, &past, l_.capacity);
  plans_.push_back(std::move(plan));
}

void Planner::Ragged() {
  RaggedWith("ragged", "each sequence has its own write index", l_.batch.value_or(3));
}

void Planner::RaggedWith(const std::string& name, const std::string& shows, int64_t batch) {
  Plan plan = Named(name, shows);
  plan.extra = name != "ragged";
  if (l_.uniform) return Skip(std::move(plan), "one length for the whole batch");
  if (l_.batch && *l_.batch < 2) return Skip(std::move(plan), OnlyBatch());
  const int64_t tokens = l_.tokens.value_or(1);
  std::vector<int64_t> past(batch, 0);
  for (int64_t length : Taken({5 * tokens})) Add(&plan, &past, length);
  // Sequence 0 is neither the longest nor the shortest, so that its length is wrong for the
  // others.
  constexpr int64_t kBack[] = {2, 0, 3};
  for (int64_t b = 0; b < batch; ++b) past[b] -= kBack[b % 3] * tokens;
  Add(&plan, &past, tokens);
  Add(&plan, &past, tokens);
  if (!l_.tokens && !one_by_one()) Add(&plan, &past, 3);
  if (*std::max_element(past.begin(), past.end()) > l_.capacity) {
    return Skip(std::move(plan), "the capacity is too small");
  }
  plans_.push_back(std::move(plan));
}

void Planner::RightPads() {
  Plan plan = Named("right pads", "prompts of different lengths in one step");
  if (!l_.pads) return Skip(std::move(plan), kRuledOut);
  if (l_.tokens || !l_.prefill) return Skip(std::move(plan), "no prompt of several tokens");
  if (!l_.causal) return Skip(std::move(plan), "tokens see later ones");
  if (l_.batch && *l_.batch < 2) return Skip(std::move(plan), OnlyBatch());
  const int64_t batch = l_.batch.value_or(3);
  if (l_.capacity < 12) return Skip(std::move(plan), "the capacity is too small");
  std::vector<int64_t> past(batch, 0);
  constexpr int64_t kReal[][3] = {{3, 5, 2}, {1, 1, 1}, {2, 3, 1}, {1, 1, 1}};
  for (const auto& lengths : kReal) {
    const int64_t longest = *std::max_element(std::begin(lengths), std::end(lengths));
    if (longest > 1 && !plan.steps.empty() && one_by_one()) continue;
    if (l_.uniform && !plan.steps.empty()) break;  // from the second step on lengths differ
    std::vector<int64_t> starts = past;
    Add(&plan, &past, longest);
    plan.steps.back().real.clear();
    for (int64_t b = 0; b < batch; ++b) {
      plan.steps.back().real.push_back(lengths[b % 3]);
      past[b] = starts[b] + lengths[b % 3];
    }
  }
  plans_.push_back(std::move(plan));
}

void Planner::ShortSteps() {
  if (!l_.short_steps || !l_.tokens || *l_.tokens < 2) return;
  Plan plan = Named("short steps", "steps of fewer tokens, with padding tokens behind them");
  if (!l_.pads) return Skip(std::move(plan), kRuledOut);
  if (!l_.causal) return Skip(std::move(plan), "tokens see later ones");
  const int64_t tokens = *l_.tokens;
  std::vector<int64_t> past(l_.batch.value_or(1), 0);
  for (int64_t real : {tokens - 1, int64_t{1}, tokens, tokens / 2}) {
    if (past[0] + tokens > l_.capacity || (one_by_one() && !plan.steps.empty())) break;
    const std::vector<int64_t> starts = past;
    Add(&plan, &past, tokens);
    plan.steps.back().real.assign(past.size(), real);
    for (size_t b = 0; b < past.size(); ++b) past[b] = starts[b] + real;
  }
  if (plan.steps.empty()) return Skip(std::move(plan), "the capacity is too small");
  plans_.push_back(std::move(plan));
}

std::string Planner::WhyNoHiddenPads() const {
  if (!l_.pads) return kRuledOut;
  if (!l_.mask) return "no mask input";
  return l_.shows_a_key ? "" : kHidesAll;
}

void Planner::LeftPads() {
  Plan plan = Named("left pads", "the mask hides what it hid");
  if (std::string why = WhyNoHiddenPads(); !why.empty()) {
    return Skip(std::move(plan), std::move(why));
  }
  std::vector<int64_t> past(l_.batch.value_or(2), 0);
  for (int64_t length : Taken({5, 1, 3})) {
    if (past[0] + length > l_.capacity) return Skip(std::move(plan), "the capacity is too small");
    Add(&plan, &past, length);
    plan.steps.back().pads.assign(past.size(), 0);
    plan.steps.back().pads[0] = 2;
  }
  plans_.push_back(std::move(plan));
}

void Planner::RaggedPrompt() {
  Plan plan = Named("ragged prompt", "pads between a prompt and its answer, hidden by the mask");
  if (std::string why = WhyNoHiddenPads(); !why.empty()) {
    return Skip(std::move(plan), std::move(why));
  }
  if (l_.tokens || !l_.prefill) return Skip(std::move(plan), "no prompt of several tokens");
  if (!l_.causal) return Skip(std::move(plan), "tokens see later ones");
  constexpr int64_t kLongest = 5;
  constexpr int64_t kReal[] = {3, 5, 2};
  std::vector<int64_t> past(l_.batch.value_or(3), 0);
  for (int64_t length : Taken({kLongest, 1, 2, 1})) {
    if (past[0] + length > l_.capacity) return Skip(std::move(plan), "the capacity is too small");
    Add(&plan, &past, length);
    for (size_t b = 0; b < past.size(); ++b) {
      plan.steps.back().hidden.emplace_back(kReal[b % 3], kLongest);
    }
  }
  plans_.push_back(std::move(plan));
}

void Planner::ChangedPlaces() {
  Plan plan = Named("changed places", "sequences go on from each other's past");
  if (!l_.reorders) return Skip(std::move(plan), "no input says where each one goes on");
  if (l_.batch && *l_.batch < 2) return Skip(std::move(plan), OnlyBatch());
  const int64_t batch = l_.batch.value_or(3);
  std::vector<int64_t> past(batch, 0);
  for (int64_t length : Taken({5, 1, 2, 1})) {
    if (past[0] + length > l_.capacity) break;
    Add(&plan, &past, length);
    StepSpec& step = plan.steps.back();
    if (step.number == 0) continue;
    const int by = step.number % 2 == 0 ? 0 : 1;
    for (int64_t b = 0; b < batch; ++b) {
      step.order.push_back(by > 0 ? static_cast<int>((b + 1) % batch) : static_cast<int>(b / 2));
    }
  }
  if (plan.steps.size() < 2) return Skip(std::move(plan), "the capacity is too small");
  plans_.push_back(std::move(plan));
}

void Planner::Noise() {
  Plan plan = l_.growing ? Named("given past", "a past that neither model wrote")
                         : Named("used slots", "slots behind the past hold noise in both models");
  plan.noise = !l_.growing;
  const int64_t step = l_.tokens.value_or(1);
  std::vector<int64_t> past(l_.batch.value_or(2), 0);
  past.assign(past.size(), l_.capacity > 8 * step ? 3 * step : 0);
  for (int64_t length : Taken({1, 2, 1})) {
    if (past[0] + length <= l_.capacity) Add(&plan, &past, length);
  }
  if (plan.steps.empty()) return Skip(std::move(plan), "the capacity is too small");
  plans_.push_back(std::move(plan));
}

}  // namespace kvlift
