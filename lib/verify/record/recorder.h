// Records the feeds of both models and the expected outputs of the converted one, so that another
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
  exec::Feeds feeds;           // without the caches that `rows` names
  // Pasts that the last run of these sequences left as presents, by input: the number of rows of
  // the present, from row 0 on, that the past has.
  std::map<std::string, int64_t> rows;
};

// The expected value of an output of the converted model.
struct RecordedOutput {
  exec::Tensor want, bound;  // bound: doubles of the same shape; NaN: the element is not compared
};

struct RecordedStep {
  StepSpec spec;
  std::vector<RecordedRun> source;
  // The feeds of the converted model, without caches that are presents of the last step.
  exec::Feeds feeds;
  // The outputs of the converted model, by name. A cache has the rows of the step's new tokens
  // only, unless it grows.
  std::map<std::string, RecordedOutput> outputs;
};

struct RecordedPlan {
  std::string name, shows;
  int64_t capacity = 0;
  std::vector<RecordedStep> steps;
};

class Recorder : public PlanWatcher {
 public:
  // lengths: past lengths of the steps that AddLengths records, in tokens.
  explicit Recorder(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}

  // Sets the relation of the two models that run from now on.
  void Relate(const Manifest& relation) { relation_ = relation; }
  // Declares that the converted model that runs from now on stores the rows of these caches (by
  // input) unchanged, where the recorded model quantises them. Elements without a computed bound
  // are then not compared.
  void StoreRowsUnquantized(std::map<std::string, RowStorage> stored) {
    stored_ = std::move(stored);
  }

  void Begin(const Plan& plan) override;
  void SourceRan(const StepSpec& step, const exec::Feeds& feeds,
                 const exec::Fetches& fetches) override;
  void ConvertedRan(const StepSpec& step, const exec::Feeds& feeds,
                    const exec::Fetches& fetches) override;
  void Compared(const std::string& output, const std::vector<Range>& box, const exec::View& want,
                const exec::Tensor& bounds, const exec::View& computed) override;

  // Drops plans that did not pass, by the results of all plans.
  void KeepPassed(const std::vector<PlanResult>& results);
  // Records one step of one token (or as many as the models take) behind each of the lengths. This
  // recorder must be the driver's watcher (Driver::Watch).
  void AddLengths(const Driver& driver, Runner& source, Runner& converted,
                  const PlanLimits& limits);
  // Fills `large`, without running that step.
  void AddLarge(const Driver& driver, const Runner& converted, const PlanLimits& limits);
  // Quantises the fed caches as the recorded model, of this relation, stores them, and drops plans
  // in which no output besides caches is compared. The expected value of a quantised cache stays
  // that of its dequantised rows, in float32.
  void Store(const Manifest& relation);
  // Turns the feeds of the recorded source into those of the source that it was made from.
  // `restore` is called once for each run, with a report whose counterexample holds the feeds, and
  // changes them.
  void Restore(const std::function<void(VerifyReport*)>& restore);

  std::vector<RecordedPlan> plans;
  // One plan for each length that AddLengths ran. The values of the caches do not matter; they are
  // noise.
  std::vector<RecordedPlan> timed;
  // One step of the converted model alone with large caches, whose time shows whether they are
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
