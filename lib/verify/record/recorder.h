// Records what plans feed to both models and what they expect of the converted one, so that another
// runtime can run the same steps and be judged by the same bounds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "exec/session/session.h"
#include "verify/record/quantized_rows.h"
#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"
#include "verify/steps/plan_watcher.h"
#include "verify/steps/plans.h"

namespace kvlift {

// A run of the source in one step.
struct RecordedRun {
  std::vector<int> sequences;  // numbers of the sequences that ran together
  exec::Feeds feeds;           // without caches that go on from the run before
  // By input, a cache that is the present of the run before: its first so many rows, if it grows.
  std::map<std::string, int64_t> rows;
};

// What an output of the converted model has to be.
struct RecordedOutput {
  exec::Tensor want, bound;  // bound: doubles of the same shape; NaN: the element is not compared
};

struct RecordedStep {
  StepSpec spec;
  std::vector<RecordedRun> source;
  exec::Feeds feeds;  // of the converted model, without caches that the last step left
  // By name. A cache has the rows of the step's new tokens only, unless it grows.
  std::map<std::string, RecordedOutput> outputs;
};

struct RecordedPlan {
  std::string name, shows;
  int64_t capacity = 0;
  std::vector<RecordedStep> steps;
};

class Recorder : public PlanWatcher {
 public:
  // lengths: past lengths of steps that are there to be timed.
  explicit Recorder(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}

  // Says how the two models correspond that run from now on.
  void Relate(const Manifest& relation) { relation_ = relation; }
  // Says that the converted model that runs from now on keeps the rows of its caches as they are,
  // where the recorded one stores them quantised. Elements without a computed bound are then not
  // compared.
  void StandFor(std::map<std::string, RowStorage> stored) { stored_ = std::move(stored); }

  void Begin(const Plan& plan) override;
  void SourceRan(const StepSpec& step, const exec::Feeds& feeds,
                 const exec::Fetches& fetches) override;
  void ConvertedRan(const StepSpec& step, const exec::Feeds& feeds,
                    const exec::Fetches& fetches) override;
  void Compared(const std::string& output, const std::vector<Range>& box, const exec::View& want,
                const exec::Tensor& bounds, const exec::View& computed) override;

  // Drops plans that did not pass, by the results of all plans.
  void KeepPassed(const std::vector<PlanResult>& results);
  // Records one step of one token (or as many as the models take) behind each of the lengths. Needs
  // a driver that watches for this recorder.
  void AddLengths(const Driver& driver, Runner& source, Runner& converted,
                  const PlanLimits& limits);
  // Records the step with large caches. It is not run.
  void AddLarge(const Driver& driver, const Runner& converted, const PlanLimits& limits);
  // Turns the caches that were fed into those of the recorded model, by its relation, and drops
  // plans of which no output but caches is compared. What has to come out of a quantised cache
  // stays its rows as they are read back, in float32.
  void Store(const Manifest& relation);
  // Turns the source's feeds back into those of another source, from which the recorded one was
  // made: `restore` gets a report whose counterexample has them, one step at a time.
  void Restore(const std::function<void(VerifyReport*)>& restore);

  std::vector<RecordedPlan> plans;
  // The same for each length. Values of caches do not matter and are those of noise.
  std::vector<RecordedPlan> timed;
  // One step of the converted model alone with large caches, which shows in time whether they are
  // copied; empty if their size is fixed.
  std::vector<RecordedPlan> large;
  std::vector<std::pair<int64_t, std::string>> skipped_lengths;  // with the reason

 private:
  RecordedStep& StepOf(const StepSpec& step);
  void StoreStep(const Manifest& relation, RecordedStep* step) const;

  Manifest relation_;
  std::map<std::string, RowStorage> stored_;  // by input of the converted model
  const std::vector<int64_t> lengths_;
  std::vector<RecordedPlan>* all_ = &plans;             // where the plan that runs is
  RecordedStep* compared_ = nullptr;                    // the step whose outputs are compared
  std::map<std::vector<int>, exec::Fetches> presents_;  // of the source's last runs, by sequences
  exec::Fetches buffers_;  // outputs of the converted model's last step
};

}  // namespace kvlift
