// Drives two models step by step with caches threaded and says equal, different or inconclusive.
// Knows nothing of rewrite rules: only the two models and the relation of the manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "exec/session.h"
#include "onnxio/model.h"
#include "proof/proof.h"
#include "verify/compare.h"

namespace kvlift {

enum class VerdictKind {
  kEqual,  // every fact of the proof holds, and every plan passed
  // Caches are kept in few bits, exactly as defined, and outputs lie within the bound of that
  // (verify_quantized.h).
  kEqualWithinQuantization,
  kEqualAsTested,  // every plan passed; some fact is open, or none was looked at
  kDifferent,
  kInconclusive,
};

// What the user takes for equal.
enum class Accept {
  kProved,  // models whose facts all hold
  kTested,  // models that are equal as tested as well
};
bool Accepts(VerdictKind verdict, Accept accept);
// Whether a says less of two models than b does: different is the worst.
bool IsWorse(VerdictKind a, VerdictKind b);

// The first fact that is refuted, else the first that is open; null: all hold.
const ProofFact* FirstThatFails(const Proof& proof);

struct VerifyOptions {
  bool full = false;
  uint64_t seed = 1;
  int threads = 0;       // 0: as the machine has
  bool controls = true;  // run the mutants
  bool proof = true;     // look for facts that hold for all shapes
  bool source = false;   // hold the relation's digest of its source against the source
  bool whole = false;    // run the models whole even where they can be cut into layers
  // Numbers are drawn, with this seed, for weights in files (verify/drawn_weights.h).
  std::optional<uint64_t> random_weights = std::nullopt;
  // Called with what is run next, where that may take long; may be empty.
  std::function<void(std::string)> say = nullptr;
  CompareFn compare = nullptr;  // instead of Compare: a test's double
};

struct PlanResult {
  std::string name;
  std::string status;  // "bitwise", "within bound", "different", "skipped", "failed"
  int steps = 0;
  std::string note;
};

// Worst over all comparisons of an output. `ratio` is the largest |difference| / bound among the
// elements with a computed bound; the counts say how comparisons were judged.
struct OutputResult {
  std::string name;
  double max_abs = 0, max_rel = 0, max_ulp = 0, bound = 0;
  std::string where;
  double ratio = 0;
  int bitwise = 0, by_bound = 0, by_fixed_bound = 0;

  void Merge(const OutputResult& other);
};

// Which values of the converted model are, by name, bit for bit those of the source in one step
// that both begin with equal caches. Between equal values no rounding difference can arise.
struct RoundingReport {
  std::string step;   // empty: none could be watched
  int values = 0;     // of the converted model's nodes
  int unchanged = 0;  // made by the source's nodes from what is unchanged
  int compared = 0;   // of equal name, type and shape
  int bitwise = 0;    // ... and equal bytes
  std::string first;  // the first node in topological order with other bytes
  std::string first_operator;
  std::string broken;  // an unchanged node with other bytes: the executor's fault
};

// What the oracle was asked, and what it said of the executor.
struct OracleReport {
  int steps = 0, steps_seen = 0;             // of both models
  std::vector<std::string> without_meaning;  // operators, or forms of them, by model
  std::set<std::string> doubtful;            // outputs behind a decision that rounding may turn
  // Outputs that are wide products: how many of how many columns were computed.
  std::map<std::string, std::pair<int64_t, int64_t>> sampled;
  double worst_ratio = 0;  // |executor - oracle| / bound
  int64_t disagreements = 0;
  std::optional<std::string> disagreement;  // the first
};

struct ControlResult {
  std::string mutant;
  std::string group;        // "write", "wiring", ..., "relation"
  std::string detected_by;  // plan and step, or who else; empty: not detected
  std::string not_run;      // why the mutant does not run; then it tells nothing
  std::string plan;         // of the first difference, with its step and output
  std::optional<int> step;
  std::string output;
  // Why the mutant need not be detected: it is the same model, or the proof or an entry of the
  // ledger covers what it breaks.
  std::string equivalent;

  bool missed() const { return detected_by.empty() && not_run.empty() && equivalent.empty(); }
};

// Whether a cache may be updated in place: who writes it, who else reads the past, and the order
// that makes it safe, or the reader that forbids it.
struct AliasCertificate {
  std::string cache, claim;  // its id; "safe" or "copy" as the relation says
  bool safe = false;
  std::string writer;
  std::vector<std::string> readers;  // of the past, besides the writer
  std::vector<std::string> order;    // "reader (step 3) before writer (step 9)", where safe
  std::string reason;                // "safe", or what forbids it
};

// What a model was fed in one step, and what it gave.
struct ReplayStep {
  exec::Feeds feeds;
  exec::Fetches fetches;
};

struct Counterexample {
  std::string plan;
  int step = 0;
  std::string output;
  std::vector<int64_t> element;
  double before = 0, after = 0;
  std::string text;
  // The smallest step that differs as well: its lengths, what differs there, and all that is fed
  // and given. The source may run sequences of different lengths one by one.
  std::vector<int64_t> past = {};
  int64_t new_tokens = 0, capacity = 0;
  std::string smallest = {}, smallest_output = {};
  std::string before_node = {}, after_node = {};  // the first that give different values
  std::vector<ReplayStep> before_steps = {}, after_steps = {};
};

// Layers that were judged together (verify/layers/pieces.h).
struct LayerVerdict {
  std::string name;                 // "layer 0"; "front" and "rest" of what is no layer
  std::vector<std::string> others;  // the same but for names and the numbers of weights
  bool same_nodes = false;          // the same operators on the same weights: not run
};

// How models of half precision agree in their own types.
struct HalfTypesReport {
  bool computed_in_float32 = false;   // the plans of the report, and all but agreement
  std::vector<PlanResult> plans;      // run in the models' own types
  std::vector<OutputResult> outputs;  // by output, then
};

struct VerifyReport {
  VerdictKind verdict = VerdictKind::kInconclusive;
  std::string reason;  // why not equal
  std::vector<PlanResult> plans;
  std::vector<OutputResult> outputs;
  std::vector<ControlResult> controls;
  std::vector<AliasCertificate> aliases;
  std::vector<std::pair<std::string, std::string>> coverage;
  Assumptions assumptions;  // what the verdict takes for granted
  std::optional<Counterexample> counterexample;
  OracleReport oracle;
  RoundingReport rounding;
  Proof proof;                       // what holds for all shapes, read from the graphs alone
  std::vector<LayerVerdict> layers;  // empty: the models were run whole
  std::string whole_because;         // why; empty where they were cut, or where nobody asked
  HalfTypesReport half_types;
  std::optional<uint64_t> random_weights;  // the seed, where weights were drawn
};

// Errors only for models that cannot be indexed at all; an operator without a kernel, a plan that
// cannot run, or an undetected mutant make the verdict inconclusive.
absl::StatusOr<VerifyReport> Verify(const Model& before, const Model& after,
                                    const Manifest& relation, const VerifyOptions& options);

}  // namespace kvlift
