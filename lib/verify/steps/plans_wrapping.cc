#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "verify/steps/planner.h"

namespace kvlift {

void Planner::PastTheWindow() {
  Plan plan = Named("past the window", "tokens leave the window");
  if (!l_.kept) return Skip(std::move(plan), "the source keeps all rows");
  const int64_t step = l_.tokens.value_or(1);
  if (!l_.free_capacity && l_.capacity < *l_.kept + 3 * step) {
    return Skip(std::move(plan), "the capacity is no larger than the window");
  }
  plan.capacity = l_.free_capacity ? std::max(l_.capacity, *l_.kept + 8 * step) : l_.capacity;
  plan.rings = l_.most_tokens.has_value();
  std::vector<int64_t> past(l_.batch.value_or(1), 0);
  past.assign(past.size(), std::max<int64_t>(0, *l_.kept - 2 * step));
  if (l_.tokens) past.assign(past.size(), past[0] / step * step);
  for (int64_t length : Taken({1, 1, 1, 1, 3})) {
    if (past[0] + length <= plan.capacity) Add(&plan, &past, length);
  }
  plans_.push_back(std::move(plan));
}

void Planner::AroundTheRing(int64_t window) {
  const int64_t step = l_.tokens.value_or(1), longest = l_.tokens.value_or(3);
  const int64_t slots = window + std::min(longest, l_.most_tokens.value_or(longest));
  // The second step has a token in the last slot and others in the first ones.
  std::vector<int64_t> lengths = {1, 3, 1, 1, 2, 1};
  const auto run = [&](const std::string& name, int64_t first) {
    Plan plan = Named(name, "rows of a window wrap around the end of their ring");
    plan.rings = true;
    std::vector<int64_t> past(l_.batch.value_or(2), std::max<int64_t>(0, first) / step * step);
    if (!l_.uniform && past.size() > 1 && past[1] >= step) past[1] -= step;
    for (int64_t length : Taken(lengths)) Add(&plan, &past, length);
    if (!l_.free_capacity && past[0] > l_.capacity) {
      return Skip(std::move(plan), "another cache, or a mask, does not hold as many tokens");
    }
    plan.capacity = std::max(l_.capacity, past[0]);
    plans_.push_back(std::move(plan));
  };
  const std::string ring = "around a ring of " + std::to_string(slots) + " slots";
  run(ring, slots - 2 * step);
  run(ring + ", again", 2 * slots - 2 * step);
  run(ring + ", a third time", 3 * slots - 3 * step);
  // A ring of fixed size takes steps of as many tokens as leave room for the window.
  constexpr int64_t kMostStep = 256;
  const int64_t most =
      std::min(l_.most_tokens.value_or(0), l_.tokens_with_past.value_or(kMostStep));
  if (most > longest && most <= kMostStep && !one_by_one()) {
    const std::vector<int64_t> usual = std::exchange(lengths, {most, 1, most, 1});
    run(fmt::format("steps of {} tokens around a ring", most), window + most);
    lengths = usual;
  }
  constexpr int64_t kShort = 16;
  if (slots > kShort) return;
  lengths.clear();
  for (int64_t filled = 0; filled < 3 * slots; filled += 4) lengths.insert(lengths.end(), {3, 1});
  run(ring + ", from the start", 0);
}

void Planner::AroundTheEnd() {
  Around(Named("around the end", "rows wrap around the end of the buffer"), false);
  Plan ragged = Named("around the end, ragged", "each sequence wraps at a step of its own");
  if (l_.uniform) return Skip(std::move(ragged), "one length for the whole batch");
  if (l_.batch && *l_.batch < 2) return Skip(std::move(ragged), OnlyBatch());
  Around(std::move(ragged), true);
}

void Planner::Around(Plan plan, bool ragged) {
  const int64_t step = l_.tokens.value_or(1);
  const int64_t first = std::max<int64_t>(0, l_.capacity / step - 3) * step;
  std::vector<int64_t> past(l_.batch.value_or(ragged ? 2 : 1), first);
  Add(&plan, &past, step);
  if (ragged) past[1] -= step;
  for (int64_t length : Taken({1, 1, 1, 3, 1, 2, 1})) Add(&plan, &past, length);
  for (int64_t& p : past) p += std::max<int64_t>(0, l_.capacity / step - 7) * step;
  for (int64_t length : Taken({1, 1, 3, 1, 2, 1})) Add(&plan, &past, length);
  plans_.push_back(std::move(plan));
}

}  // namespace kvlift
