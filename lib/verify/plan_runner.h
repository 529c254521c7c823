// Runs plans, and keeps what they showed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/coverage.h"
#include "verify/drive.h"
#include "verify/pace.h"
#include "verify/plans.h"
#include "verify/referee.h"
#include "verify/verify.h"

namespace kvlift {

// The largest sizes that were run.
struct Reached {
  int64_t batch = 0, tokens = 0, past = 0, capacity = 0;
};

// Adds to the result of the same output, or as a new one.
void MergeOutput(const OutputResult& result, std::vector<OutputResult>* outputs);

class PlanRunner {
 public:
  // `proved`: all facts hold for all shapes. Results of plans are added to the report. `pace` is
  // told of each plan that begins.
  PlanRunner(bool proved, VerifyReport* report, Pace* pace)
      : proved_(proved), report_(report), pace_(pace) {}

  // Stops behind a plan that tells the models apart, or does not run. `referee` may be null.
  void Run(Driver* driver, Referee* referee, Runner& source, Runner& converted,
           std::vector<Plan>* plans);

  std::vector<Record> records;  // of plans that passed, but for extra ones
  Coverage coverage;
  Reached reached;
  StepFeeds equal_start;  // a step that both models began with equal caches
  std::string failure;    // the converted model does not run
  std::string unsupported, unjudged;
  bool free_masks = false, free_positions = false;  // such plans were run

 private:
  // What was run of a plan.
  struct Tried {
    Record record;
    Outcome outcome;
    bool ran = false;  // the source ran a step, and the converted model was fed it
  };
  static Tried Try(const Driver& driver, const Plan& plan, Runner& source, Runner& converted);
  // A plan that reaches farther than others: where the source does not run it, a shorter one.
  void RunExtra(const Driver& driver, Plan* plan, Runner& source, Runner& converted);
  void TakeExtra(const Plan& plan, const Tried& tried);
  void Reach(const Plan& plan, int steps);
  void Note(const Plan& plan, const std::string& status, int steps, std::string note);
  void Merge(const Outcome& outcome);
  bool failed() const { return !failure.empty() || !unsupported.empty(); }

  const bool proved_;
  VerifyReport* report_;
  Pace* pace_;
};

}  // namespace kvlift
