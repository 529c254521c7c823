// The maker of the plans of one pair of models. Each member function below the helpers adds the
// plans that its comment names, or one that says why it is left out.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "verify/steps/plans.h"

namespace kvlift {

class Planner {
 public:
  // The limits must outlive the planner.
  explicit Planner(const PlanLimits& limits) : l_(limits) {}

  // Returns all plans, in the order in which they are run.
  std::vector<Plan> Run();

 private:
  // The caches of an extra plan take no more bytes than this.
  static constexpr int64_t kMostBytes = int64_t{128} << 20;
  // The caches of the longest plans take no more bytes than this.
  static constexpr int64_t kCheapBytes = int64_t{8} << 20;

  static constexpr char kHidesAll[] = "the mask would hide all keys of a token";

  bool one_by_one() const { return l_.tokens_with_past == 1; }

  // Returns a plan without steps.
  Plan Named(std::string name, std::string shows) const;

  // Adds a step of `tokens` new tokens behind the given pasts, which it moves on.
  static void Add(Plan* plan, std::vector<int64_t>* past, int64_t tokens);

  // Keeps the plan without its steps, and with the reason why none is run.
  void Skip(Plan plan, std::string why);

  // Returns the lengths split into steps that the models take: a chunk or a prompt may become
  // single tokens.
  std::vector<int64_t> Taken(const std::vector<int64_t>& lengths) const;

  // Returns the largest number of new tokens, up to `tokens`, of a step with a past.
  int64_t Chunk(int64_t tokens) const;

  // Returns a past of at most `tokens` tokens, a multiple of S if S is fixed.
  int64_t PastOf(int64_t tokens) const;

  // Returns true if `batch` caches of so many rows are small enough for an extra plan.
  bool Affordable(int64_t batch, int64_t rows) const;

  // Returns true if an extra plan may have so many tokens.
  bool Fits(int64_t tokens) const;

  // Returns true if the buffer of a plan may be as long as all its tokens, so that a step of
  // several tokens ends in its last slot.
  bool EndsWhereItsTokensEnd(const Plan& plan) const;

  // Returns an extra plan: steps of the given lengths behind a past of noise, as far as they fit
  // into the capacity; skipped if none does, or if they take too much memory.
  Plan Extra(const std::string& name, const std::string& shows, int64_t batch, int64_t past,
             const std::vector<int64_t>& lengths) const;

  // Keeps the first plan, with the others to be run in its place (Plan::instead).
  void PushFirst(std::vector<Plan> all);

  // Returns why a plan with another number of sequences is left out.
  std::string OnlyBatch() const;

  // Returns why no plan has padding tokens that the mask hides; empty if plans may have them.
  std::string WhyNoHiddenPads() const;

  // Defined in plans_usual.cc: prompts, decoding, ragged batches and padding.

  // All sequences have the same length.
  void Uniform(const std::string& name, const std::string& shows, int64_t batch,
               const std::vector<int64_t>& lengths);

  // The last step ends exactly in the last slot.
  void LastSlot();

  // If the capacity is given, steps of several tokens end in the last slot, behind a past and as
  // first steps.
  void LastChunk();

  // Lengths differ: after a prompt of one length each sequence goes back to an earlier slot and
  // continues from there.
  void Ragged();

  // Adds the steps of Ragged() with any number of sequences; the plan is an extra one unless its
  // name is "ragged".
  void RaggedWith(const std::string& name, const std::string& shows, int64_t batch);

  // Prompts of different lengths run in one step, with right padding.
  void RightPads();

  // Steps of fewer tokens than the converted model takes: it is given padding tokens behind them,
  // and each next step writes over their rows.
  void ShortSteps();

  // Sequence 0 has left padding that the mask hides; the rows of its padding tokens are not
  // compared.
  void LeftPads();

  // Prompts of different lengths run in one step. The mask hides their right padding in all later
  // steps, so that padding tokens stand between a prompt and its answer.
  void RaggedPrompt();

  // Each sequence takes over the past of another (beam search); in every other step two sequences
  // take over the same past.
  void ChangedPlaces();

  // The past is noise that neither model wrote. Slots behind it, if the source has any, hold noise
  // as well, as an earlier sequence may have left it.
  void Noise();

  // Defined in plans_wrapping.cc: windows and rows that wrap around.

  // The past grows from one that fits the window to one that does not.
  void PastTheWindow();

  // Rings have the fewest slots that the steps allow. They are filled from the start if they are
  // short, and wrap around for the first, second and third time, with steps of several tokens that
  // lie on both sides of the end.
  void AroundTheRing(int64_t window);

  // Writes wrap around the end of the buffer twice, in steps of one and of several tokens; in a
  // second plan each sequence wraps around in another step.
  void AroundTheEnd();

  // Adds the plan with rows that wrap around, in all sequences at once or one after the other.
  void Around(Plan plan, bool ragged);

  // Defined in plans_extra.cc: other sizes, and inputs that are fed freely (Plan::extra).

  // The plan has more sequences, and more tokens in a step, than the other plans. A source that
  // does not run three sequences may run two.
  void Nine();

  // A prompt is longer than those of the other plans.
  void LongPrompt();

  // Unless all facts are proved, a prompt is as long as tables of positions may be, so that a step
  // reads all of their rows.
  void LongerPrompt();

  // Returns `lengths` and, for each stored table, the number of its rows minus `less`, up to the
  // largest length, in descending order.
  std::vector<int64_t> WithTableRows(std::vector<int64_t> lengths, int64_t less) const;

  // A past of hundreds or thousands of tokens, where thresholds in a graph may lie.
  void LongPast();

  // Masks hide any pattern of keys, and hold any numbers where they are added to scores.
  void FreeMasks();

  // Positions have gaps and jumps. Tables of the source may be short, so smaller ranges are tried.
  void FreePositions();

  // Lengths that no step determines are other numbers than in all other plans: the smallest, a
  // larger one, and the thresholds.
  void FreeLengths();

  // Plans for a threshold c: a step of several tokens that begins before c and ends behind it,
  // steps of one token behind c - 1, c and c + 1 tokens, and, if c is small, steps of about c new
  // tokens and of about c sequences.
  void Near(int64_t c);

  const PlanLimits& l_;
  std::vector<Plan> plans_;
  std::set<int64_t> prompts_;  // the lengths of prompts that have a plan of their own
};

}  // namespace kvlift
