#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "fmt/format.h"
#include "verify/inputs/input_meanings.h"
#include "verify/steps/planner.h"

namespace kvlift {

void Planner::Nine() {
  constexpr int64_t kNine = 9, kTwo = 2;
  if (l_.batch_was_found) {
    const int64_t tokens = Chunk(3), past = PastOf(tokens > 1 ? 3 : 2);
    Plan plan = Extra("two sequences", "two sequences, several tokens and one, and any masks", kTwo,
                      past, {tokens, Chunk(1)});
    for (StepSpec& step : plan.steps) step.free_masks = l_.mask && l_.shows_a_key;
    plans_.push_back(std::move(plan));
  }
  if (l_.batch) return Skip(Named("nine sequences", "nine sequences"), OnlyBatch());
  const int64_t tokens = Chunk(kNine), past = PastOf(tokens > 1 ? 3 : 2);
  plans_.push_back(Extra("nine sequences",
                         fmt::format("nine sequences of {} new tokens each", tokens), kNine, past,
                         {tokens}));
  if (!l_.uniform && !l_.proved) {
    RaggedWith("nine ragged", "nine sequences, each with its own write index", kNine);
  }
}

void Planner::LongPrompt() {
  constexpr int64_t kLength = 11;
  if (l_.tokens || !l_.prefill || (l_.most_tokens && *l_.most_tokens < kLength)) return;
  Plan plan = Extra("prefill of 11", "a prompt of 11 tokens", l_.batch.value_or(1), 0, {kLength});
  if (EndsWhereItsTokensEnd(plan)) plan.capacity = kLength;
  plans_.push_back(std::move(plan));
}

std::vector<int64_t> Planner::WithTableRows(std::vector<int64_t> lengths, int64_t less) const {
  const int64_t most = *std::max_element(lengths.begin(), lengths.end());
  for (int64_t rows : l_.table_rows) {
    if (rows - less > 0 && rows - less <= most) lengths.push_back(rows - less);
  }
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

void Planner::LongPast() {
  // bfloat16 rounds whole numbers above 256, float16 above 2048, and by more above 4096. Tables of
  // positions often have 2^n rows: the 8 tokens of the steps end with them.
  const auto pasts = WithTableRows({4200, 2040, 1016, 600, 504, 300, 248, 120, 100, 56, 40, 24}, 8);
  constexpr int64_t kLong = 600;
  std::vector<Plan> all;
  for (int64_t past : pasts) {
    if (past > kLong && past * l_.row_bytes > kCheapBytes) continue;
    const int64_t step = l_.tokens.value_or(1);
    // With several tokens, a type that rounds positions also loses the order among them.
    const std::vector<int64_t> lengths = {step, Chunk(7)};
    all.push_back(Extra("long past", fmt::format("a past of {} tokens", past), l_.batch.value_or(1),
                        PastOf(past), lengths));
  }
  // Lengths beyond the capacity are dropped, unless no length fits.
  while (all.size() > 1 && !all.front().skipped.empty()) all.erase(all.begin());
  PushFirst(std::move(all));
}

void Planner::LongerPrompt() {
  if (l_.proved || l_.tokens || !l_.prefill || l_.most_tokens) return;
  std::vector<Plan> all;
  for (int64_t length : WithTableRows({256, 128, 64, 32}, 0)) {
    if (length * l_.row_bytes > kCheapBytes) continue;
    all.push_back(Extra("longer prompt", fmt::format("a prompt of {} tokens", length),
                        l_.batch.value_or(1), 0, {length}));
  }
  while (all.size() > 1 && !all.front().skipped.empty()) all.erase(all.begin());
  if (!all.empty() && all.front().skipped.empty()) PushFirst(std::move(all));
}

void Planner::FreeMasks() {
  if (!l_.mask) return;
  Plan plan = Extra("free masks", "masks hide any keys, and add any numbers where they are added",
                    l_.batch.value_or(2), PastOf(l_.tokens.value_or(1) * 5), {Chunk(3)});
  if (!l_.shows_a_key) return Skip(std::move(plan), kHidesAll);
  for (StepSpec& step : plan.steps) step.free_masks = true;
  plans_.push_back(std::move(plan));
  if (l_.proved) return;
  // Each of many keys is hidden in some of many sequences.
  constexpr int64_t kNine = 9, kPast = 60;
  Plan more = Extra("many free masks", "masks hide any keys of nine sequences and of a longer past",
                    l_.batch.value_or(kNine), PastOf(l_.tokens.value_or(1) * kPast), {Chunk(3)});
  for (StepSpec& step : more.steps) step.free_masks = true;
  plans_.push_back(std::move(more));
}

void Planner::FreePositions() {
  if (!l_.free_positions) return;
  std::vector<Plan> all;
  for (int64_t reach : {8192, 500, 60, 16}) {
    all.push_back(Extra("free positions", fmt::format("any positions below {}", reach),
                        l_.batch.value_or(2), PastOf(l_.tokens.value_or(1) * 5), {Chunk(3)}));
    for (StepSpec& step : all.back().steps) step.reach = reach;
  }
  PushFirst(std::move(all));
}

void Planner::FreeLengths() {
  constexpr int64_t kMostLength = 4200;
  constexpr size_t kMostPlans = 12;
  std::vector<int64_t> lengths = {1, kFreeLength + 5};
  for (int64_t c : l_.thresholds) {
    if (c <= kMostLength) lengths.insert(lengths.end(), {c, c + 1});
  }
  lengths.resize(std::min(lengths.size(), kMostPlans));
  for (int64_t first : lengths) {
    Plan plan = Extra(fmt::format("lengths from {}", first),
                      fmt::format("inputs with lengths of their own, from {} on", first),
                      l_.batch.value_or(2), PastOf(3), {Chunk(2), l_.tokens.value_or(1)});
    for (StepSpec& step : plan.steps) step.free_length = first;
    plans_.push_back(std::move(plan));
  }
}

void Planner::Near(int64_t c) {
  const std::string name = fmt::format("around {}", c);
  const int64_t step = l_.tokens.value_or(1);
  Plan plan =
      Extra(name, fmt::format("pasts from {} tokens on", PastOf(c - 2)), l_.batch.value_or(1),
            PastOf(std::max<int64_t>(0, c - 2)), {step, Chunk(4), step, step});
  plan.covers = fmt::format("steps of {} tokens or more are not run", c);
  plans_.push_back(std::move(plan));
  if (Chunk(4) > step) {
    plans_.push_back(Extra(fmt::format("{} one by one", name),
                           fmt::format("pasts of {} to {} tokens", PastOf(c - 1), PastOf(c + 1)),
                           l_.batch.value_or(1), PastOf(std::max<int64_t>(0, c - 1)),
                           {step, step, step}));
  }
  constexpr int64_t kMostTokens = 2100, kMostSequences = 16;
  if (c <= kMostTokens && !l_.tokens && (l_.prefill || !one_by_one())) {
    std::vector<int64_t> lengths =
        one_by_one() ? std::vector<int64_t>{c} : std::vector<int64_t>{c - 1, c, c + 1};
    // A ring of fixed size does not take longer steps.
    std::erase_if(lengths, [&](int64_t n) { return l_.most_tokens && n > *l_.most_tokens; });
    const auto steps_of = [&](const std::string& title, const std::vector<int64_t>& some) {
      plans_.push_back(
          Extra(title, fmt::format("steps of about {} tokens", c), l_.batch.value_or(1), 0, some));
    };
    if (Fits(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}))) {
      if (!lengths.empty()) steps_of(name + " new tokens", lengths);
    } else {
      for (int64_t n : lengths) {
        if (prompts_.insert(n).second) steps_of(fmt::format("{} new tokens", n), {n});
      }
    }
  }
  if (c > kMostSequences || l_.batch) return;
  for (int64_t batch : {c, c + 1}) {
    plans_.push_back(Extra(fmt::format("{} sequences", batch), "as many sequences", batch,
                           PastOf(3), {Chunk(2)}));
    if (l_.uniform || batch < 2) continue;
    RaggedWith(fmt::format("{} ragged", batch), "as many sequences, each with its own write index",
               batch);
  }
}

}  // namespace kvlift
