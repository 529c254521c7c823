// Runs the two sides of a plan. The source is run once and recorded; the converted model, and each
// mutant of it, is then held against the record.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/program.h"
#include "exec/session.h"
#include "onnxio/model.h"
#include "verify/compare.h"
#include "verify/plans.h"
#include "verify/stimulus.h"
#include "verify/verify.h"

namespace kvlift {

// A model on the executor; a step is a pure function of its feeds.
class Runner {
 public:
  static absl::StatusOr<Runner> Create(const std::shared_ptr<const onnx::ModelProto>& model,
                                       const std::string& base_dir,
                                       std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                       int threads);
  absl::StatusOr<exec::Fetches> Step(const exec::Feeds& feeds);
  const exec::Program& program() const { return *program_; }

 private:
  std::shared_ptr<const exec::Program> program_;
  std::unique_ptr<exec::Session> session_;
};

// What the source gave in one step: per group of sequences that were run together.
struct SourceStep {
  std::vector<std::vector<int>> groups;
  std::vector<exec::Fetches> outputs;  // per group
};

struct Record {
  const Plan* plan = nullptr;
  std::vector<SourceStep> steps;
  std::string stopped;  // why the source could not run; then steps are what it could
};

// The converted caches by id.
using CacheState = std::map<std::string, exec::Tensor>;

struct Outcome {
  bool bitwise = true;
  std::string failed;        // the executor's error
  bool unsupported = false;  // the error: an operator without a kernel
  std::string unjudged;      // NaN or Inf in the source
  std::optional<Counterexample> difference;
  std::map<std::string, OutputResult> outputs;  // worst per output
  int steps = 0;
};

class Driver {
 public:
  Driver(const Manifest& relation, const Stimulus& stimulus, int source_nodes, int64_t capacity)
      : relation_(relation),
        stimulus_(stimulus),
        source_nodes_(source_nodes),
        capacity_(capacity) {}

  Record RunSource(Runner& source, const Plan& plan) const;
  // Fresh caches: zeros, or noise of the given amplitude.
  CacheState Fresh(int64_t batch, double amplitude) const;
  // Holds a model against the record. `state` is what is left in the caches. A trace, if given,
  // receives all outputs of all steps.
  Outcome RunConverted(Runner& converted, const Record& record, CacheState* state,
                       std::vector<exec::Fetches>* trace = nullptr) const;
  absl::StatusOr<exec::Feeds> ConvertedFeeds(const StepSpec& step, const CacheState& state) const;

 private:
  absl::StatusOr<exec::Feeds> SourceFeeds(const StepSpec& step,
                                          const std::map<std::string, exec::Tensor>& past) const;
  std::string CheckCaches(const StepSpec& step, const SourceStep& source, const CacheState& before,
                          const exec::Fetches& after, const std::string& plan,
                          Outcome* outcome) const;
  void CompareOutputs(const StepSpec& step, const SourceStep& source, const exec::Fetches& after,
                      const std::string& plan, Outcome* outcome) const;
  void Judge(const exec::View& want, const exec::View& got, const std::string& name,
             const std::string& plan, const StepSpec& step, int sequence, Outcome* outcome) const;

  const Manifest& relation_;
  const Stimulus& stimulus_;
  int source_nodes_;
  int64_t capacity_;
};

}  // namespace kvlift
