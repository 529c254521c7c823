// Runs the two sides of a plan. The source is run once and recorded; the converted model, and each
// mutant of it, is then held against the record.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/program.h"
#include "exec/session.h"
#include "onnxio/model.h"
#include "verify/compare.h"
#include "verify/plans.h"
#include "verify/referee.h"
#include "verify/rows.h"
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
  static absl::StatusOr<Runner> Create(std::shared_ptr<const Graph> graph,
                                       const std::string& base_dir,
                                       std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                       int threads);
  absl::StatusOr<exec::Fetches> Step(const exec::Feeds& feeds);
  // From now on each step is fed the next of these as well.
  void FeedAlso(std::vector<exec::Feeds> steps);
  const exec::Program& program() const { return *program_; }
  exec::Session& session() { return *session_; }
  int32_t TypeOf(const std::string& value) const;
  // A value of this shape may have a row per sequence, by what the model declares for it.
  bool MayHaveBatch(const std::string& output, const exec::Shape& shape,
                    std::optional<int64_t> fixed_batch) const;

 private:
  std::shared_ptr<const exec::Program> program_;
  std::unique_ptr<exec::Session> session_;
  std::vector<exec::Feeds> also_;
  size_t next_ = 0;  // of them
};

// What the source gave in one step: per group of sequences that were run together.
struct SourceStep {
  std::vector<std::vector<int>> groups;
  std::vector<exec::Fetches> outputs;  // per group
  // What the oracle says of them, and of the converted model's; null where it did not run.
  std::vector<OracleRun> oracle;
  OracleRun oracle_after;
};

// What both models were fed in one step.
struct StepFeeds {
  exec::Feeds source, converted;
  std::string where;
};

struct Record {
  const Plan* plan = nullptr;
  std::vector<SourceStep> steps;
  std::string stopped;   // why the source could not run on; then steps are what it could
  bool bitwise = false;  // the converted model gave the very same bits
  exec::Feeds first;     // of the first step, if all sequences ran together and a referee was there
};

// The caches of a model: the source's by input, the converted model's by id.
using CacheState = std::map<std::string, exec::Tensor>;

struct Outcome {
  bool bitwise = true;
  std::string failed;        // the executor's error
  bool unsupported = false;  // the error: no kernel, or over a limit of running
  std::string unfed;         // an input that takes no such values
  std::string unjudged;      // NaN in the source where the converted model has a number
  std::optional<Counterexample> difference;
  std::map<std::string, OutputResult> outputs;  // worst per output
  // First slots of the rows that were seen to change, by cache id.
  std::map<std::string, std::set<int64_t>> written;
  int steps = 0;
  std::vector<OracleRun> oracle;  // per step, if a referee was there
  exec::Feeds first;              // of the first step, then
};

class Driver {
 public:
  Driver(const Manifest& relation, const Stimulus& stimulus, int source_nodes)
      : relation_(relation), stimulus_(stimulus), source_nodes_(source_nodes) {}
  // The same but for the relation: what it lacks is not looked at.
  Driver(const Driver& other, const Manifest& relation)
      : relation_(relation),
        stimulus_(other.stimulus_),
        source_nodes_(other.source_nodes_),
        kept_rows_(other.kept_rows_),
        ring_slots_(other.ring_slots_),
        compare_(other.compare_) {}

  // Runs the source as long as it appends: what was in a cache stays, the new rows stand behind the
  // past, nothing else changes.
  Record RunSource(Runner& source, const Plan& plan) const;
  // Caches at the beginning of a plan: the rows that the source's hold, and behind them zeros, or
  // noise of the given amplitude. Where the source's own have slots behind, those of the source.
  CacheState Fresh(const Runner& converted, const Plan& plan, double amplitude = 0) const;
  // Holds a model against the record. `state` is what is left in the caches. A trace, if given,
  // receives all outputs of all steps.
  Outcome RunConverted(Runner& converted, const Record& record, CacheState* state,
                       std::vector<exec::Fetches>* trace = nullptr) const;
  absl::StatusOr<exec::Feeds> ConvertedFeeds(const StepSpec& step, int64_t capacity,
                                             const CacheState& state) const;

  // The source's cache before the first step of a plan, and all its feeds.
  exec::Tensor FirstPast(const Runner& source, const Plan& plan, const ManifestCache& cache,
                         const StepSpec& step) const;
  exec::Tensor FirstSlots(int32_t type, const Plan& plan, const ManifestCache& cache,
                          const StepSpec& step) const;
  absl::StatusOr<exec::Feeds> SourceFeeds(const StepSpec& step, int64_t capacity,
                                          const CacheState& past) const;

  // One step of the source; caches are in the order of slots on both sides (ring.h). If there is a
  // referee, `oracle` receives what it says.
  absl::StatusOr<exec::Fetches> StepSource(Runner& source, const StepSpec& step, exec::Feeds feeds,
                                           const std::string& where = "",
                                           OracleRun* oracle = nullptr) const;

  // Steps are run by the oracle as well, as long as there is a referee.
  void Attend(Referee* referee) { referee_ = referee; }
  // Compares with something else than Compare.
  void CompareBy(CompareFn compare) { compare_ = compare; }
  const Stimulus& stimulus() const { return stimulus_; }
  // A window's cache (by source input) never holds more rows than this.
  void KeepAtMost(const std::string& input, int64_t rows) { kept_rows_[input] = rows; }
  const std::map<std::string, int64_t>& kept_rows() const { return kept_rows_; }
  // A ring (by id) has this many slots, whatever the plan.
  void FixRing(const std::string& id, int64_t slots) { ring_slots_[id] = slots; }

 private:
  void AddNoise(const ManifestCache& cache, const StepSpec& step, int64_t first, int64_t rows,
                exec::Tensor* value) const;
  // Slots of the converted model's cache.
  int64_t SlotsOf(const ManifestCache& cache, const Plan& plan) const;
  int64_t RowsKept(const std::string& input, int64_t length) const;
  std::string Rewind(const ManifestCache& cache, const StepSpec& step, int64_t end,
                     exec::Tensor* value) const;
  std::string CheckAppended(const ManifestCache& cache, const StepSpec& step,
                            const exec::View& past, const exec::View& present) const;
  // What a step of the converted model gave, beside the source's.
  struct Given {
    const StepSpec& step;
    const SourceStep& source;
    const exec::Fetches& after;
    const OracleStep* oracle;  // null: the oracle did not run it
    const std::string& plan;
  };
  // An output of the source's, of the converted model's.
  static Bounded Theirs(const Given& given, size_t group, const std::string& output);
  static Bounded Mine(const Given& given, const std::string& output);
  // How far rows of caches are from the source's, by the converted model's input.
  using Gaps = std::map<std::string, exec::Tensor>;
  std::string CheckCaches(const Given& given, const CacheState& before, Gaps* gaps,
                          Outcome* outcome) const;
  bool KeepsOthers(const ManifestCache& cache, const exec::View& fed, const exec::View& now,
                   const Range& mine, int axis, int64_t begin, int64_t end) const;
  std::string CheckCache(const ManifestCache& cache, const Given& given, const Bounded& theirs,
                         const std::vector<int>& group, const exec::View& fed, const Bounded& now,
                         exec::Tensor* gap, Outcome* outcome) const;
  void CompareOutputs(const Given& given, Outcome* outcome) const;
  // New tokens of a sequence that are pads between its prompt and its answer, where a precondition
  // says that rows of pads may differ: [begin, end) of the step.
  std::pair<int64_t, int64_t> UnjudgedPads(const StepSpec& step, int sequence) const;
  void CompareTokens(const Given& given, const Bounded& want, const Bounded& got,
                     const std::string& name, int sequence, Outcome* outcome) const;
  void Judge(const Given& given, const Bounded& want, const Bounded& got, const std::string& name,
             int sequence, Outcome* outcome) const;

  const Manifest& relation_;
  const Stimulus& stimulus_;
  int source_nodes_;
  std::map<std::string, int64_t> kept_rows_;
  std::map<std::string, int64_t> ring_slots_;
  Referee* referee_ = nullptr;
  CompareFn compare_ = Compare;
};

}  // namespace kvlift
