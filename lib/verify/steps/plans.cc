#include "verify/steps/plans.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "verify/inputs/input_meanings.h"

namespace kvlift {
namespace {

constexpr char kRuledOut[] = "a precondition rules out steps with padding";
constexpr char kHidesAll[] = "the mask would hide all keys of a token";

// If filling a cache takes more steps than this, the plan begins near its end, behind a given past.
constexpr int64_t kManySlots = 48;

class Planner {
 public:
  explicit Planner(const PlanLimits& limits) : l_(limits) {}

  std::vector<Plan> Run() {
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

 private:
  Plan Named(std::string name, std::string shows) const {
    Plan plan;
    plan.name = std::move(name);
    plan.shows = std::move(shows);
    plan.capacity = l_.capacity;
    return plan;
  }

  static void Add(Plan* plan, std::vector<int64_t>* past, int64_t tokens) {
    StepSpec step;
    step.number = static_cast<int>(plan->steps.size());
    step.past = *past;
    step.new_tokens = tokens;
    step.sequences.resize(past->size());
    std::iota(step.sequences.begin(), step.sequences.end(), 0);
    plan->steps.push_back(std::move(step));
    for (int64_t& p : *past) p += tokens;
  }

  void Skip(Plan plan, std::string why) {
    plan.skipped = std::move(why);
    plan.steps.clear();
    plans_.push_back(std::move(plan));
  }

  bool one_by_one() const { return l_.tokens_with_past == 1; }

  // Returns the lengths split into steps that the models take: a chunk or a prompt may become
  // single tokens.
  std::vector<int64_t> Taken(const std::vector<int64_t>& lengths) const {
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

  // Returns the largest number of new tokens, up to `tokens`, of a step with a past.
  int64_t Chunk(int64_t tokens) const {
    if (l_.tokens) return *l_.tokens;
    int64_t most = std::min(tokens, l_.tokens_with_past.value_or(tokens));
    if (l_.most_tokens) most = std::min(most, *l_.most_tokens);
    return std::max<int64_t>(1, most);
  }

  // Returns a past of at most `tokens` tokens, a multiple of S if S is fixed.
  int64_t PastOf(int64_t tokens) const {
    const int64_t step = l_.tokens.value_or(1);
    return tokens / step * step;
  }

  // The caches of an extra plan take no more bytes than this.
  static constexpr int64_t kMostBytes = int64_t{128} << 20;

  bool Affordable(int64_t batch, int64_t rows) const {
    return l_.full || batch * rows * l_.row_bytes <= kMostBytes;
  }

  // Returns true if an extra plan may have so many tokens.
  bool Fits(int64_t tokens) const {
    return l_.free_capacity || l_.circular || tokens <= l_.capacity;
  }

  // Returns an extra plan: steps of the given lengths behind a past of noise, as far as they fit
  // into the capacity; skipped if none does, or if they take too much memory.
  Plan Extra(const std::string& name, const std::string& shows, int64_t batch, int64_t past,
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

  // The plan has more sequences, and more tokens in a step, than the other plans. A source that
  // does not run three sequences may run two.
  void Nine() {
    constexpr int64_t kNine = 9, kTwo = 2;
    if (l_.batch_was_found) {
      const int64_t tokens = Chunk(3), past = PastOf(tokens > 1 ? 3 : 2);
      Plan plan = Extra("two sequences", "two sequences, several tokens and one, and any masks",
                        kTwo, past, {tokens, Chunk(1)});
      for (StepSpec& step : plan.steps) step.free_masks = l_.mask && l_.shows_a_key;
      plans_.push_back(std::move(plan));
    }
    if (l_.batch) return Skip(Named("nine sequences", "nine sequences"), OnlyBatch());
    const int64_t tokens = Chunk(kNine), past = PastOf(tokens > 1 ? 3 : 2);
    plans_.push_back(Extra("nine sequences",
                           fmt::format("nine sequences of {} new tokens each", tokens), kNine, past,
                           {tokens}));
  }

  void LongPrompt() {
    constexpr int64_t kLength = 11;
    if (l_.tokens || !l_.prefill || (l_.most_tokens && *l_.most_tokens < kLength)) return;
    Plan plan = Extra("prefill of 11", "a prompt of 11 tokens", l_.batch.value_or(1), 0, {kLength});
    if (EndsWhereItsTokensEnd(plan)) plan.capacity = kLength;
    plans_.push_back(std::move(plan));
  }

  // Masks hide any pattern of keys, and hold any numbers where they are added to scores.
  void FreeMasks() {
    if (!l_.mask) return;
    Plan plan = Extra("free masks", "masks hide any keys, and add any numbers where they are added",
                      l_.batch.value_or(2), PastOf(l_.tokens.value_or(1) * 5), {Chunk(3)});
    if (!l_.shows_a_key) return Skip(std::move(plan), kHidesAll);
    for (StepSpec& step : plan.steps) step.free_masks = true;
    plans_.push_back(std::move(plan));
  }

  // Positions have gaps and jumps. Tables of the source may be short, so smaller ranges are tried.
  void FreePositions() {
    if (!l_.free_positions) return;
    std::vector<Plan> all;
    for (int64_t reach : {8192, 500, 60, 16}) {
      all.push_back(Extra("free positions", fmt::format("any positions below {}", reach),
                          l_.batch.value_or(2), PastOf(l_.tokens.value_or(1) * 5), {Chunk(3)}));
      for (StepSpec& step : all.back().steps) step.reach = reach;
    }
    PushFirst(std::move(all));
  }

  void PushFirst(std::vector<Plan> all) {
    Plan plan = std::move(all.front());
    all.erase(all.begin());
    plan.instead = std::move(all);
    plans_.push_back(std::move(plan));
  }

  // Plans for a threshold c: a step of several tokens that begins before c and ends behind it,
  // steps of one token behind c - 1, c and c + 1 tokens, and, if c is small, steps of about c new
  // tokens and of about c sequences.
  void Near(int64_t c) {
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
        plans_.push_back(Extra(title, fmt::format("steps of about {} tokens", c),
                               l_.batch.value_or(1), 0, some));
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
    }
  }

  // Lengths that no step determines are other numbers than in all other plans: the smallest, a
  // larger one, and the thresholds.
  void FreeLengths() {
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

  // Returns why a plan with another number of sequences is left out.
  std::string OnlyBatch() const {
    return *l_.batch == 1 ? "steps have one sequence only"
                          : fmt::format("steps have {} sequences only", *l_.batch);
  }

  // All sequences have the same length.
  void Uniform(const std::string& name, const std::string& shows, int64_t batch,
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

  // The last step ends exactly in the last slot.
  void LastSlot() {
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

  // Returns true if the buffer of a plan may be as long as all its tokens, so that a step of
  // several tokens ends in its last slot.
  bool EndsWhereItsTokensEnd(const Plan& plan) const {
    return l_.free_capacity && !l_.circular && !l_.kept && !plan.steps.empty() &&
           plan.steps.back().new_tokens > 1;
  }

  // Where the capacity is given: steps of several tokens that end in the last slot, behind a past
  // and as the first ones.
  void LastChunk() {
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

  // Lengths differ: after a prompt of one length each sequence goes back to an earlier slot and
  // continues from there.
  void Ragged() {
    Plan plan = Named("ragged", "each sequence has its own write index");
    if (l_.uniform) return Skip(std::move(plan), "one length for the whole batch");
    if (l_.batch && *l_.batch < 2) return Skip(std::move(plan), OnlyBatch());
    const int64_t batch = l_.batch.value_or(3), tokens = l_.tokens.value_or(1);
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

  // Prompts of different lengths run in one step, with right padding.
  void RightPads() {
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

  // Steps of fewer tokens than the converted model takes: it is given padding tokens behind them,
  // and each next step writes over their rows.
  void ShortSteps() {
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

  // Sequence 0 has left padding that the mask hides; the rows of its padding tokens are not
  // compared.
  void LeftPads() {
    Plan plan = Named("left pads", "the mask hides what it hid");
    if (!l_.pads) return Skip(std::move(plan), kRuledOut);
    if (!l_.mask) return Skip(std::move(plan), "no mask input");
    if (!l_.shows_a_key) return Skip(std::move(plan), kHidesAll);
    std::vector<int64_t> past(l_.batch.value_or(2), 0);
    for (int64_t length : Taken({5, 1, 3})) {
      if (past[0] + length > l_.capacity) return Skip(std::move(plan), "the capacity is too small");
      Add(&plan, &past, length);
      plan.steps.back().pads.assign(past.size(), 0);
      plan.steps.back().pads[0] = 2;
    }
    plans_.push_back(std::move(plan));
  }

  // Prompts of different lengths run in one step. The mask hides their right padding in all later
  // steps, so that padding tokens stand between a prompt and its answer.
  void RaggedPrompt() {
    Plan plan = Named("ragged prompt", "pads between a prompt and its answer, hidden by the mask");
    if (!l_.pads) return Skip(std::move(plan), kRuledOut);
    if (!l_.mask) return Skip(std::move(plan), "no mask input");
    if (!l_.shows_a_key) return Skip(std::move(plan), kHidesAll);
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

  // Each sequence takes over the past of another (beam search); in every other step two sequences
  // take over the same past.
  void ChangedPlaces() {
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

  // The past grows from one that fits the window to one that does not.
  void PastTheWindow() {
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

  // Rings have the fewest slots that the steps allow. They are filled from the start if they are
  // short, and wrap around for the first, second and third time, with steps of several tokens that
  // lie on both sides of the end.
  void AroundTheRing(int64_t window) {
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
    constexpr int64_t kShort = 16;
    if (slots > kShort) return;
    lengths.clear();
    for (int64_t filled = 0; filled < 3 * slots; filled += 4) lengths.insert(lengths.end(), {3, 1});
    run(ring + ", from the start", 0);
  }

  // Writes wrap around the end of the buffer twice, in steps of one and of several tokens; in a
  // second plan each sequence wraps around in another step.
  void AroundTheEnd() {
    Around(Named("around the end", "rows wrap around the end of the buffer"), false);
    Plan ragged = Named("around the end, ragged", "each sequence wraps at a step of its own");
    if (l_.uniform) return Skip(std::move(ragged), "one length for the whole batch");
    if (l_.batch && *l_.batch < 2) return Skip(std::move(ragged), OnlyBatch());
    Around(std::move(ragged), true);
  }

  void Around(Plan plan, bool ragged) {
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

  // The past is noise that neither model wrote. Slots behind it, if the source has any, hold noise
  // as well, as an earlier sequence may have left it.
  void Noise() {
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

  // A past of hundreds or thousands of tokens, where thresholds in a graph may lie.
  void LongPast() {
    // bfloat16 rounds whole numbers above 256, float16 above 2048, and by more above 4096.
    constexpr int64_t kLongest = 4200, kCheapBytes = int64_t{8} << 20;
    std::vector<Plan> all;
    for (int64_t past : {kLongest, int64_t{600}, int64_t{300}, int64_t{100}, int64_t{40}}) {
      if (past == kLongest && past * l_.row_bytes > kCheapBytes) continue;
      const int64_t step = l_.tokens.value_or(1);
      // With several tokens, a type that rounds positions also loses the order among them.
      const std::vector<int64_t> lengths = {step, Chunk(7)};
      all.push_back(Extra("long past", fmt::format("a past of {} tokens", past),
                          l_.batch.value_or(1), PastOf(past), lengths));
    }
    // Lengths beyond the capacity are dropped, unless no length fits.
    while (all.size() > 1 && !all.front().skipped.empty()) all.erase(all.begin());
    PushFirst(std::move(all));
  }

  const PlanLimits& l_;
  std::vector<Plan> plans_;
  std::set<int64_t> prompts_;  // the lengths of prompts that have a plan of their own
};

}  // namespace

bool WrapsAround(const Plan& plan) {
  return plan.rings || std::any_of(plan.steps.begin(), plan.steps.end(), [&](const StepSpec& step) {
           return step.longest() + step.new_tokens > plan.capacity;
         });
}

std::vector<Plan> MakePlans(const PlanLimits& limits) { return Planner(limits).Run(); }

}  // namespace kvlift
