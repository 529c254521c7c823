// Runs the plans of a verdict and collects their results.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "verify/report/pace.h"
#include "verify/report/verify_report.h"
#include "verify/steps/coverage.h"
#include "verify/steps/decisions.h"
#include "verify/steps/drive.h"
#include "verify/steps/oracle_runner.h"
#include "verify/steps/plans.h"

namespace kvlift {

// The largest sizes of the steps that were run: sequences, new tokens, past tokens, slots.
struct Reached {
  int64_t batch = 0, tokens = 0, past = 0, capacity = 0;
  std::set<int64_t> free_lengths;  // the first of the free lengths (Axis::free_length)
};

// Merges the result into the entry of the same output, or appends it.
void MergeOutput(const OutputResult& result, std::vector<OutputResult>* outputs);

class PlanRunner {
 public:
  // A converted model that follows the source's decisions (decisions.h). It runs in place of the
  // converted model where it can.
  struct Follower {
    Decisions* decisions;
    Runner* model;
  };
  // proved: every fact of the proof holds, so that an extra plan that cannot be run adds no entry
  // to the ledger. report: receives results, coverage of outputs and assumptions. pace: is notified
  // of each plan that begins. follower: null if the converted model makes its own decisions. All
  // three must outlive the runner.
  PlanRunner(bool proved, VerifyReport* report, Pace* pace, const Follower* follower = nullptr)
      : proved_(proved), report_(report), pace_(pace), follower_(follower) {}

  // Runs the plans in order, up to the first in which the models differ or the converted model does
  // not run. bounds: computes bounds; may be null. Extra plans have them where they are cheap or
  // where the models differ without them. An extra plan that the source does not run is replaced,
  // in `plans` too, by the first of `instead` that it runs.
  void Run(Driver* driver, ErrorBounds* bounds, Runner& source, Runner& converted,
           std::vector<Plan>* plans);

  std::vector<Record> records;  // of the plans that passed, without extra ones
  Coverage coverage;
  Reached reached;
  StepFeeds equal_start;  // a step that both models began with equal caches; empty: none was run
  std::string failure;    // why the converted model does not run; empty: it runs
  // Why the executor cannot run the converted model (no kernel, no memory), and where the source
  // gives NaN for a number, or why no plan could be judged; empty: neither.
  std::string unsupported, unjudged;
  // Why the first plan that was not judged was not: rounding may decide its result; empty: all were
  // judged.
  std::string undecided;
  // The step that the source runs without appending, though it appends in others; empty: there is
  // none, or every fact of the proof holds.
  std::string no_append;
  bool free_masks = false, free_positions = false;  // a plan with free masks, or positions, was run

 private:
  // The results of a plan on both models.
  struct Tried {
    Record record;
    Outcome outcome;
    bool ran = false;  // the source ran a step, and it could be fed to the converted model
  };
  Tried Try(const Driver& driver, const Plan& plan, Runner& source, Runner& converted) const;
  // Runs the follower through the record. False if it cannot run.
  bool Follow(const Driver& driver, const Plan& plan, Tried* tried) const;
  // Runs an extra plan, with bounds where it needs them.
  Tried TryExtra(Driver* driver, ErrorBounds* bounds, const Plan& plan, Runner& source,
                 Runner& converted) const;
  // Runs an extra plan, or the first of `instead` that the source runs.
  void RunExtra(Driver* driver, ErrorBounds* bounds, Plan* plan, Runner& source, Runner& converted);
  // Adds the results of an extra plan to the report.
  void TakeExtra(const Plan& plan, const Tried& tried);
  // Adds to the ledger that the plan was not run to its last step, and sets no_append.
  void StateStop(const Plan& plan, const Record& record);
  // Raises `reached` to the sizes of the plan's first `steps` steps.
  void Reach(const Plan& plan, int steps);
  void AddResult(const Plan& plan, const std::string& status, int steps, std::string note);
  void Merge(const Outcome& outcome);
  // Returns why rounding alone may have made the difference that was found: the oracle says so of
  // this step, or it has not run this step and said so of the output in another. Returns an empty
  // text if the difference counts, as it always does between models that are not proved equal, and
  // if the models do not differ.
  std::string WhyUndecided(const Outcome& outcome);
  bool failed() const { return !failure.empty() || !unsupported.empty(); }

  const bool proved_;
  VerifyReport* report_;
  Pace* pace_;
  const Follower* follower_;
  std::set<std::string> doubtful_;  // outputs that the oracle found to depend on rounding
};

}  // namespace kvlift
