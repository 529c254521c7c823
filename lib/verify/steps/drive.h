// Runs a plan on both models. The source runs once and its outputs are recorded; the converted
// model, and each mutant of it, is then run and compared with the record.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "onnxio/model/model.h"
#include "proof/graphs/proof.h"
#include "verify/inputs/stimulus.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/compare.h"
#include "verify/report/verify_report.h"
#include "verify/steps/oracle_runner.h"
#include "verify/steps/plan_watcher.h"
#include "verify/steps/plans.h"

namespace kvlift {

// The shape of an output in a step of `batch` sequences.
struct BatchShape {
  exec::Shape shape;
  int64_t batch = 1, tokens = 1, past = 0;  // B, S and the longest P
};

// A model on the executor. Without cache pairs a step is a pure function of its feeds.
class Runner {
 public:
  // caches: the pairs whose values the session keeps from step to step; empty: each step is fed all
  // inputs. threads: 0: as many as the machine has. Errors are those of Graph::Build and
  // exec::Program::Compile (Unimplemented for an operator without a kernel).
  static absl::StatusOr<Runner> Create(const std::shared_ptr<const onnx::ModelProto>& model,
                                       const std::string& base_dir,
                                       std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                       int threads);
  static absl::StatusOr<Runner> Create(std::shared_ptr<const Graph> graph,
                                       const std::string& base_dir,
                                       std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                       int threads);
  // Runs one step and returns all outputs. Errors are those of exec::Session::Step.
  absl::StatusOr<exec::Fetches> Step(const exec::Feeds& feeds);
  // Feeds these values as well in the following steps, one element of `steps` for each step.
  void FeedAlso(std::vector<exec::Feeds> steps);
  const exec::Program& program() const { return *program_; }
  exec::Session& session() { return *session_; }
  int32_t TypeOf(const std::string& value) const;  // a TensorProto::DataType
  // Returns the axis of sequences of an output that had these shapes: the first that has as many
  // elements as each step had sequences, or axis 0 if it has as many rows for each sequence in any
  // batch; -1 if that is not so or is declared as a constant although the batch is dynamic
  // (`fixed_batch` is nullopt), or if the shapes are not those that are declared.
  int SequenceAxis(const std::string& output, absl::Span<const BatchShape> steps,
                   std::optional<int64_t> fixed_batch) const;

 private:
  std::shared_ptr<const exec::Program> program_;
  std::unique_ptr<exec::Session> session_;
  std::vector<exec::Feeds> also_;
  size_t next_ = 0;  // index in also_ of the feeds for the next step
};

// The source's outputs in one step. A source that takes one length for the whole batch runs
// sequences of different lengths one by one, each a group of its own.
struct SourceStep {
  std::vector<std::vector<int>> groups;  // batch indices of the sequences that ran together
  std::vector<exec::Fetches> outputs;    // per group; caches in the order of slots (ring_slots.h)
  std::vector<OracleRun> oracle;  // bounds of `outputs`, per group; empty without ErrorBounds
  OracleRun oracle_after;         // bounds of the converted model's outputs; may be null
};

// The feeds of both models in one step.
struct StepFeeds {
  exec::Feeds source, converted;
  std::string where;  // plan and step; empty: no step was kept
};

struct Record {
  const Plan* plan = nullptr;     // not owned
  std::vector<SourceStep> steps;  // as many of the plan's steps as the source ran
  std::string stopped;            // why the next step is not compared; empty: all are
  bool excluded = false;          // `stopped` is a bound of the ledger (Outcome::excluded)
  bool runs_on = false;           // the source ran that step, and did more than append, or less
  bool bitwise = false;           // every output of the converted model was equal
  // The source's feeds of the first step; empty unless all sequences ran together with ErrorBounds.
  exec::Feeds first;
};

// The values of a model's caches: the source's by input name, the converted model's by cache id.
using CacheState = std::map<std::string, exec::Tensor>;

struct Outcome {
  bool bitwise = true;  // every comparison was bitwise (compare.h)
  std::string failed;   // the executor's error; empty: every step ran
  // The bound of the ledger beyond which the converted model refuses the next step; empty: none.
  std::string excluded;
  bool unsupported = false;  // `failed` is for want of a kernel, or of memory
  std::string unfed;         // why a step's values cannot be fed to an input; empty: they can
  std::string unjudged;      // where the source gives NaN and the converted model a number
  std::optional<Counterexample> difference;  // the first one
  // Why rounding alone may have made `difference`: the oracle finds that the output depends on a
  // decision that rounding errors may change. It is empty if the difference is a fault or if
  // the models do not differ.
  std::string undecided;
  bool unbounded = false;                       // the oracle has not run the step of `difference`
  std::map<std::string, OutputResult> outputs;  // the worst comparison, by output
  // First slots of the writes that changed a row, by cache id.
  std::map<std::string, std::set<int64_t>> written;
  int steps = 0;                  // steps that were run and compared
  std::vector<OracleRun> oracle;  // per step; empty without ErrorBounds
  exec::Feeds first;              // the feeds of the first step; empty without ErrorBounds
};

class Driver {
 public:
  // The relation and the stimulus must outlive the driver. source_nodes: n of compare.h.
  Driver(const Manifest& relation, const Stimulus& stimulus, int source_nodes)
      : relation_(relation), stimulus_(stimulus), source_nodes_(source_nodes) {}
  // Copies `other` with another relation, whose outputs and caches alone are compared, and without
  // ErrorBounds.
  Driver(const Driver& other, const Manifest& relation)
      : relation_(relation),
        stimulus_(other.stimulus_),
        source_nodes_(other.source_nodes_),
        kept_rows_(other.kept_rows_),
        fixed_slots_(other.fixed_slots_),
        length_limits_(other.length_limits_),
        sequences_alone_(other.sequences_alone_),
        rules_(other.rules_),
        slot_outputs_(other.slot_outputs_),
        compare_(other.compare_) {}

  // Runs the source. Stops before a step that cannot be fed, and at one that fails or does more
  // than append to its caches: all rows of the past must stay as they are, the new rows must stand
  // behind them, and no other row may change.
  Record RunSource(Runner& source, const Plan& plan) const;
  // Returns the converted model's caches before a plan: the past that the source begins with, and
  // behind it zeros, or noise in [-amplitude, amplitude). With Plan::noise, a cache whose source
  // has slots behind the past gets the source's values there.
  CacheState Fresh(const Runner& converted, const Plan& plan, double amplitude = 0) const;
  // Runs a converted model through the steps of the record and compares each step, up to the first
  // difference or error. `state` holds the caches before the first step, and then after the last
  // step that agreed. `trace` receives all outputs of each step; it may be null.
  Outcome RunConverted(Runner& converted, const Record& record, CacheState* state,
                       std::vector<exec::Fetches>* trace = nullptr) const;
  // Returns all inputs of the converted model in one step. FailedPrecondition names an input that
  // takes one length for the whole batch where the step's lengths differ, or that cannot be fed.
  absl::StatusOr<exec::Feeds> ConvertedFeeds(const StepSpec& step, int64_t capacity,
                                             const CacheState& state) const;

  // Returns a cache input of the source before the first step of a plan, in the source's layout.
  exec::Tensor FirstPast(const Runner& source, const Plan& plan, const ManifestCache& cache,
                         const StepSpec& step) const;
  // Returns the same rows in a buffer of the converted model's number of slots, zeros behind them.
  exec::Tensor FirstSlots(int32_t type, const Plan& plan, const ManifestCache& cache,
                          const StepSpec& step) const;
  // Returns all inputs of the source in one step, with caches from `past`. Errors are those of
  // Stimulus::Feed.
  absl::StatusOr<exec::Feeds> SourceFeeds(const StepSpec& step, int64_t capacity,
                                          const CacheState& past) const;

  // Runs one step of the source. Caches in feeds and fetches are in the order of slots
  // (ring_slots.h). `oracle` receives the bounds if ErrorBounds are set; it may be null.
  absl::StatusOr<exec::Fetches> StepSource(Runner& source, const StepSpec& step, exec::Feeds feeds,
                                           const std::string& where = "",
                                           OracleRun* oracle = nullptr) const;

  // Sets the ErrorBounds that compute bounds in the steps that follow; null: the fixed bound is
  // used.
  void Attend(ErrorBounds* bounds) { bounds_ = bounds; }
  // Sets the watcher to which the steps that follow are reported; null: none. With a watcher, the
  // distance of each cache element from the source's includes its bound, so that bounds hold for
  // another runtime's caches too.
  void Watch(PlanWatcher* watcher) { watcher_ = watcher; }
  bool watched() const { return watcher_ != nullptr; }
  // Returns true if a cache grows in the converted model.
  bool Grows() const { return HasGrowingCaches(relation_); }
  // Sets the function that compares two tensors.
  void CompareBy(CompareFn compare) { compare_ = compare; }
  const Stimulus& stimulus() const { return stimulus_; }
  // Declares that a source's cache (by input) drops rows so as to hold at most `rows` of them.
  void KeepAtMost(const std::string& input, int64_t rows) { kept_rows_[input] = rows; }
  const std::map<std::string, int64_t>& kept_rows() const { return kept_rows_; }
  // Declares that the source runs each sequence of a batch alone, though the plans have a fixed
  // number of sequences.
  void RunSequencesAlone() { sequences_alone_ = true; }
  // Lets the converted model refuse steps beyond these bounds, which the ledger of assumptions
  // names (Outcome::excluded). Where it runs them, its results are compared.
  void AllowRefusalBeyond(std::vector<LengthLimit> limits) { length_limits_ = std::move(limits); }
  // Does not run a step whose feeds break these rules, which the ledger of assumptions states: the
  // record stops before it (Record::excluded). They must outlive the driver; null: no rules.
  void KeepTo(const FedRules* rules) { rules_ = rules; }
  // Names the outputs that hold the slots of a cache. Slots without tokens are not compared in them
  // once a plan had padding tokens, which stand in such slots.
  void HoldSlots(std::vector<SlotOutput> outputs) { slot_outputs_ = std::move(outputs); }
  // Gives a cache (by its id) this many slots in every plan, such as the number that it declares.
  void FixSlots(const std::string& id, int64_t slots) { fixed_slots_[id] = slots; }

 private:
  // Fills rows [0, rows) of a source's cache, whose row 0 holds token `first`, with noise.
  void AddNoise(const ManifestCache& cache, const StepSpec& step, int64_t first, int64_t rows,
                exec::Tensor* value) const;
  // Returns the number of slots of the converted model's cache.
  int64_t SlotsOf(const ManifestCache& cache, const Plan& plan) const;
  // Returns how many rows a source's cache holds after `length` tokens.
  int64_t RowsKept(const SourceCache& cache, int64_t length) const;
  // Cuts a growing cache that holds `end` tokens down to the past of the step, which may be
  // shorter. Returns why that is impossible, or empty.
  std::string Rewind(const ManifestCache& cache, const StepSpec& step, int64_t end,
                     exec::Tensor* value) const;
  // Returns why a source's present is not its past with the new rows appended, or empty.
  std::string CheckAppended(const ManifestCache& cache, const StepSpec& step,
                            const exec::View& past, const exec::View& present) const;
  // The outputs of both models in one step.
  struct Given {
    const StepSpec& step;
    const SourceStep& source;
    const exec::Fetches& after;
    const OracleStep* oracle;  // bounds of `after`; null: the oracle did not run the step
    const std::string& plan;
    // The axis of sequences of each output, as far as the steps so far determine it. Extents alone
    // do not determine it where a step has as many tokens as sequences.
    std::map<std::string, int>* sequence_axes;
    bool padded = false;  // this step or one in front of it has padding tokens behind a sequence
  };
  // The part of an output of the converted model that is compared.
  struct Spot {
    int sequence = -1;            // its number in texts; -1: all sequences
    std::vector<Range> box = {};  // which elements; empty: all
  };
  static std::string Where(const std::string& plan, const StepSpec& step, int sequence);
  // Theirs returns an output of the source, of one group, with its bounds; Mine one of the
  // converted model.
  static bool IsDoubtful(const Given& given, const std::string& output);
  static Bounded Theirs(const Given& given, size_t group, const std::string& output);
  static Bounded Mine(const Given& given, const std::string& output);
  // The distance of each cache element from the source's, by the converted model's input.
  using Gaps = std::map<std::string, exec::Tensor>;
  // Compares all caches, and notes the distances in `gaps` if it is not null. Returns what is wrong
  // with a cache apart from the values of the rows that the step writes, or empty.
  std::string CheckCaches(const Given& given, const CacheState& before, Gaps* gaps,
                          Outcome* outcome) const;
  // Returns true if the slots of one sequence, except those of the tokens [begin, end), keep the
  // bytes that were fed.
  bool KeepsOthers(const ManifestCache& cache, const exec::View& fed, const exec::View& now,
                   const Range& mine, int axis, int64_t begin, int64_t end) const;
  std::string CheckCache(const ManifestCache& cache, const Given& given, const Bounded& theirs,
                         const std::vector<int>& group, const exec::View& fed, const Bounded& now,
                         exec::Tensor* gap, Outcome* outcome) const;
  void CompareOutputs(const Given& given, Outcome* outcome) const;
  // Returns the rule of KeepTo() that feeding `step` breaks, a part of the step `whole`; empty if
  // it breaks none.
  std::string BrokenRule(const StepSpec& step, const StepSpec& whole, int64_t capacity,
                         const exec::Feeds& feeds) const;
  // Returns the bound of AllowRefusalBeyond() that the step exceeds; empty if it exceeds none.
  std::string ExceededLimit(const StepSpec& step) const;
  // Returns true if precondition KV303 says that rows of padding tokens may differ.
  bool PaddingMayDiffer() const;
  void JudgeGrown(const Given& given, const ManifestCache& cache, const Bounded& want,
                  const Bounded& got, Outcome* outcome) const;
  // Returns which of the step's new tokens are padding tokens between a sequence's prompt and its
  // answer, as [begin, end); [0, 0) unless precondition KV303 says that their rows may differ.
  std::pair<int64_t, int64_t> UnjudgedPads(const StepSpec& step, int sequence) const;
  // Compares the slots of one sequence that hold tokens. `axis`: where the slots are.
  void CompareSlots(const Given& given, const Bounded& want, const Bounded& got,
                    const std::string& name, int axis, const Spot& spot, Outcome* outcome) const;
  // Returns the axis of an output of the source on which it holds the slots of a cache; -1 if it
  // holds none.
  int SlotAxisOf(const std::string& output) const;
  // `axis`: where the new tokens are; -1: the output has none.
  void CompareTokens(const Given& given, const Bounded& want, const Bounded& got,
                     const std::string& name, int axis, const Spot& spot, Outcome* outcome) const;
  std::string OutputWithNan(const SourceStep& source) const;
  void Judge(const Given& given, const Bounded& want, const Bounded& got, const std::string& name,
             const Spot& spot, Outcome* outcome) const;
  // Writes the distance of `got` from `want` into `gap`, at the sequences of `batch` and from
  // `begin` of an axis on. Does nothing if `gap` is null or the shapes differ.
  void NoteGap(const Bounded& want, const Bounded& got, const Range& batch, int axis, int64_t begin,
               exec::Tensor* gap) const;

  const Manifest& relation_;
  const Stimulus& stimulus_;
  int source_nodes_;
  std::map<std::string, int64_t> kept_rows_;
  std::map<std::string, int64_t> fixed_slots_;
  std::vector<LengthLimit> length_limits_;
  bool sequences_alone_ = false;
  const FedRules* rules_ = nullptr;
  std::vector<SlotOutput> slot_outputs_;
  ErrorBounds* bounds_ = nullptr;
  PlanWatcher* watcher_ = nullptr;
  CompareFn compare_ = Compare;
};

}  // namespace kvlift
