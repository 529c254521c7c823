#include "verify/plans.h"

#include <algorithm>
#include <numeric>

namespace kvlift {
namespace {

class Planner {
 public:
  explicit Planner(const PlanLimits& limits) : l_(limits) {}

  std::vector<Plan> Run() {
    Uniform("prefill of 1", "a first token", 1, {1});
    Uniform("prefill of 2", "a short prompt", 1, {2});
    Uniform("decode", "a prompt of 7, three tokens, a chunk of 3", 1, {7, 1, 1, 1, 3});
    Uniform("batch", "the same with three sequences", 3, {7, 1, 1, 1, 3});
    LastSlot();
    Ragged();
    LeftPads();
    if (l_.full) {
      Uniform("chunks", "a prompt in chunks of 2 and 3", 2, {2, 3, 2, 3, 1, 1});
      Uniform("long decode", "one token at a time", 2, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    }
    return std::move(plans_);
  }

 private:
  StepSpec Step(int number, std::vector<int64_t> past, int64_t tokens) const {
    StepSpec step;
    step.number = number;
    step.past = std::move(past);
    step.new_tokens = tokens;
    step.sequences.resize(step.past.size());
    std::iota(step.sequences.begin(), step.sequences.end(), 0);
    return step;
  }

  // One sequence length for all; a model that takes one token at a time gets that.
  void Uniform(const std::string& name, const std::string& shows, int64_t batch,
               std::vector<int64_t> lengths) {
    Plan plan{name, shows, {}, {}};
    if (l_.batch && *l_.batch != batch) {
      if (batch != 1) return Skip(std::move(plan), "the batch is fixed");
      batch = *l_.batch;
    }
    if (l_.tokens) {
      const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
      lengths.assign(static_cast<size_t>(std::max<int64_t>(1, total / *l_.tokens)), *l_.tokens);
    }
    int64_t past = 0;
    for (int64_t length : lengths) {
      if (past + length > l_.capacity) break;
      plan.steps.push_back(
          Step(static_cast<int>(plan.steps.size()), std::vector<int64_t>(batch, past), length));
      past += length;
    }
    if (plan.steps.empty()) return Skip(std::move(plan), "the capacity is too small");
    plans_.push_back(std::move(plan));
  }

  void Skip(Plan plan, std::string why) {
    plan.skipped = std::move(why);
    plans_.push_back(std::move(plan));
  }

  // To the last slot exactly.
  void LastSlot() {
    constexpr int64_t kMaxSteps = 64;
    Plan plan{"last slot", "the buffer filled to the end", {}, {}};
    const int64_t step = l_.tokens.value_or(1), batch = l_.batch.value_or(1);
    const int64_t first = l_.tokens ? *l_.tokens : std::max<int64_t>(1, l_.capacity - 2);
    if ((l_.capacity - first) / step > kMaxSteps) {
      return Skip(std::move(plan), "the capacity is too large to fill");
    }
    int64_t past = 0;
    for (int64_t length = first; past + length <= l_.capacity; length = step) {
      plan.steps.push_back(
          Step(static_cast<int>(plan.steps.size()), std::vector<int64_t>(batch, past), length));
      past += length;
    }
    if (past != l_.capacity) return Skip(std::move(plan), "the capacity is no multiple of a step");
    plans_.push_back(std::move(plan));
  }

  // Lengths that differ: after a common prompt each sequence goes on from an earlier slot.
  void Ragged() {
    Plan plan{"ragged", "each sequence has its own write index", {}, {}};
    if (l_.uniform) return Skip(std::move(plan), "one length for the whole batch");
    if (l_.batch && *l_.batch < 2) return Skip(std::move(plan), "the batch is fixed at one");
    const int64_t batch = l_.batch.value_or(3), tokens = l_.tokens.value_or(1);
    std::vector<int64_t> past(batch, 0);
    const auto add = [&](int64_t length) {
      plan.steps.push_back(Step(static_cast<int>(plan.steps.size()), past, length));
      for (int64_t& p : past) p += length;
    };
    if (l_.tokens) {
      for (int k = 0; k < 5; ++k) add(tokens);
    } else {
      add(5);
    }
    // The first sequence is neither the longest nor the shortest: its numbers suit no other.
    constexpr int64_t kBack[] = {2, 0, 3};
    for (int64_t b = 0; b < batch; ++b) past[b] -= kBack[b % 3] * tokens;
    add(tokens);
    add(tokens);
    if (!l_.tokens) add(3);
    if (*std::max_element(past.begin(), past.end()) > l_.capacity) {
      return Skip(std::move(plan), "the capacity is too small");
    }
    plans_.push_back(std::move(plan));
  }

  // Pads in front of one sequence, hidden by the mask; rows of pads are not compared.
  void LeftPads() {
    Plan plan{"left pads", "the mask hides what it hid", {}, {}};
    if (!l_.mask) return Skip(std::move(plan), "no mask input");
    if (l_.tokens) return Skip(std::move(plan), "one token at a time");
    const int64_t batch = l_.batch.value_or(2);
    int64_t past = 0;
    for (int64_t length : {5, 1, 3}) {
      if (past + length > l_.capacity) return Skip(std::move(plan), "the capacity is too small");
      StepSpec step =
          Step(static_cast<int>(plan.steps.size()), std::vector<int64_t>(batch, past), length);
      step.pads.assign(batch, 0);
      step.pads[0] = 2;
      plan.steps.push_back(std::move(step));
      past += length;
    }
    plans_.push_back(std::move(plan));
  }

  const PlanLimits& l_;
  std::vector<Plan> plans_;
};

}  // namespace

std::vector<Plan> MakePlans(const PlanLimits& limits) { return Planner(limits).Run(); }

}  // namespace kvlift
