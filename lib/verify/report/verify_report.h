// The report of `verify` on two models: the verdict, and what was proved, run and compared for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/assumptions.h"
#include "contract/kinds.h"
#include "contract/manifest.h"
#include "exec/session/session.h"
#include "proof/graphs/proof.h"

namespace kvlift {

enum class VerdictKind {
  kEqual,  // every fact of the proof holds, and every plan passed
  // Quantised caches hold exactly what the definition says, and outputs lie within the bound of
  // that rounding (verify_quantized.h).
  kEqualWithinQuantization,
  kEqualAsTested,  // every plan passed, but a fact is open, or nothing was proved
  kDifferent,  // an output or a cache differs, a fact is refuted, or the relation is contradicted
  kInconclusive,  // no difference was found, and what was run shows too little
};

// The verdicts that the user accepts.
enum class Accept {
  kProved,  // kEqual and kEqualWithinQuantization
  kTested,  // those and kEqualAsTested
};
bool Accepts(VerdictKind verdict, Accept accept);
// Returns true if `a` says less in favour of two models than `b`. From best to worst: equal, within
// quantisation, as tested, inconclusive, different.
bool IsWorse(VerdictKind a, VerdictKind b);

// Returns the first refuted fact, or else the first open fact; null: all facts hold, or there are
// none.
const ProofFact* FirstThatFails(const Proof& proof);

struct PlanResult {
  std::string name;
  std::string status;  // "bitwise", "within bound", "different", "skipped", "failed"
  int steps = 0;       // that were run and compared
  std::string note;    // what the plan shows, or why it was skipped or stopped
};

// The worst of all comparisons of one output.
struct OutputResult {
  std::string name;
  // The numbers of the comparison with the largest absolute difference (compare.h).
  double max_abs = 0, max_rel = 0, max_ulp = 0, bound = 0;
  std::string where;  // plan, step and sequence of that comparison; empty: all were bitwise
  double ratio = 0;   // the largest |difference| / bound over elements with a computed bound
  // How many comparisons were bitwise equal, were judged by computed bounds only, and were judged
  // by the fixed bound for at least one element.
  int bitwise = 0, by_bound = 0, by_fixed_bound = 0;

  void Merge(const OutputResult& other);
};

// Compares, by name, the bytes of all values of both models in one step that begins with equal
// caches. Rounding differences between the models arise behind the first node that differs.
struct RoundingReport {
  std::string step;            // plan and step; empty: no step was watched
  int values = 0;              // values that the converted model's nodes compute
  int unchanged = 0;           // those that equal the source's by construction (first_difference.h)
  int compared = 0;            // those with a value of the same name, type and shape in the source
  int bitwise = 0;             // those of `compared` with equal bytes
  std::string first;           // the first node with other bytes; empty: there is none
  std::string first_operator;  // its op_type
  std::string broken;          // an unchanged node with other bytes, a fault of the executor
};

// The work of the oracle, and how far it agrees with the executor.
struct OracleReport {
  int steps = 0, steps_seen = 0;  // steps that it ran, of all steps of both models
  // Operators that it does not implement, with the model's name.
  std::vector<std::string> without_meaning;
  std::set<std::string> doubtful;  // outputs that depend on a decision that rounding may change
  // Outputs of wide matrix products: how many columns were computed, and of how many.
  std::map<std::string, std::pair<int64_t, int64_t>> sampled;
  double worst_ratio = 0;     // the largest |executor - oracle| / bound that is within the bound
  int64_t disagreements = 0;  // elements beyond their bound, and outputs of other types or shapes
  std::optional<std::string> disagreement;  // a text about the first
};

struct ControlResult {
  std::string mutant;       // its name
  std::string group;        // "write", "wiring", ..., "relation", "comparer"
  std::string detected_by;  // plan and step, or another check; empty: not detected
  std::string not_run;      // why the mutant does not run, so that it shows nothing; empty: it runs
  std::string plan;         // where the first difference was found; empty if it was not by a plan
  std::optional<int> step;
  std::string output;
  // Why the mutant need not be detected: it is equivalent to the model, or the proof or an entry of
  // the ledger covers what it breaks. Empty: it has to be detected.
  std::string equivalent;

  bool missed() const { return detected_by.empty() && not_run.empty() && equivalent.empty(); }
};

// The evidence that a cache may, or may not, be updated in place: the node that writes it, the
// other nodes that read the past, and the order of the two that makes the update safe, or the
// reader that forbids it.
struct AliasCertificate {
  std::string cache;                     // the cache's id
  CacheAlias claim = CacheAlias::kCopy;  // what the relation says
  bool safe = false;                     // the executor updates the cache in place
  std::string writer;                    // a node's name; empty: no node was found
  std::vector<std::string> readers;      // nodes that read the past, without the writer
  std::vector<std::string> order;        // "reader (step 3) before writer (step 9)", if safe
  std::string reason;                    // "safe", or what forbids the update
};

// The feeds and outputs of a model in one step.
struct ReplayStep {
  exec::Feeds feeds;
  exec::Fetches fetches;
};

// A value that both models compute under one name, in one type and shape.
struct ComparedValue {
  std::string name;
  std::string before_node, after_node;  // what computes it: operator and name
  std::string before_id, after_id;      // the node's name in its graph, or `name` if it has none
  double distance = 0;                  // the largest |before - after| of its elements
  bool differs = false;                 // by more than rounding explains
};

struct Counterexample {
  std::string plan;              // the plan, or self check, that found the difference
  int step = 0;                  // index in the plan
  std::string output;            // an output's name; "caches" for rows that must not change
  std::vector<int64_t> element;  // index on each axis; empty: not one element
  // The element in the source and in the converted model, or in the two runs of a self check.
  double before = 0, after = 0;
  std::string text;
  bool hides_padding = false;  // the step has padding tokens that the mask hides
  // The smallest step that differs as well (shrink.h): its sizes, its first difference and that
  // output's name, and the feeds and outputs of both models. Empty: not found. The source may run
  // sequences of different lengths one by one, each a ReplayStep.
  std::vector<int64_t> past = {};
  int64_t new_tokens = 0, capacity = 0;
  std::string smallest = {}, smallest_output = {};
  std::string before_node = {}, after_node = {};  // the first nodes whose values differ
  std::vector<ComparedValue> values = {};         // in the order in which the converted model ran
  std::vector<ReplayStep> before_steps = {}, after_steps = {};
};

// A class of layers, of which one was judged (verify/layers/layer_pieces.h).
struct LayerVerdict {
  std::string name;                 // "layer 0"; "front" and "rest" are not layers
  std::vector<std::string> others;  // layers that differ in names and weights only
  bool same_nodes = false;          // both models have the same nodes and weights here: not run
};

// How models of half precision agree in their own types.
struct HalfTypesReport {
  bool computed_in_float32 = false;   // all else in the report but the proof is of float32 models
  std::vector<PlanResult> plans;      // run in the models' own types; empty: they were not run
  std::vector<OutputResult> outputs;  // of these plans, by output
  std::string not_run;                // why there are no plans; empty if there are
  // How many decisions that rounding may change (decisions.h) both models made in these plans, and
  // in how many of them the two models differ. The conversion follows the source in all of them.
  int64_t decisions = 0, unlike = 0;
};

struct VerifyReport {
  VerdictKind verdict = VerdictKind::kInconclusive;
  std::string reason;  // a KV code and why the verdict is not equal; empty if it is
  std::vector<PlanResult> plans;
  std::vector<OutputResult> outputs;
  std::vector<ControlResult> controls;
  std::vector<AliasCertificate> aliases;
  std::vector<std::pair<std::string, std::string>> coverage;  // lines, as name and value
  Assumptions assumptions;                                    // what the verdict takes for granted
  std::optional<Counterexample> counterexample;
  OracleReport oracle;
  RoundingReport rounding;
  Proof proof;                       // facts for all shapes, from the graphs alone
  std::vector<LayerVerdict> layers;  // empty: whole models were run
  // Why they could not be cut into layers; empty if they were cut, or if no cut was asked for.
  std::string whole_because;
  HalfTypesReport half_types;
  std::optional<uint64_t> random_weights;  // the seed; nullopt: weights are those of the files
};

}  // namespace kvlift
