// Checks of the converted model by itself: unused slots, the order of sequences and updates in
// place must not change its results, and a step outside the capacity must be refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"
#include "verify/steps/plans.h"

namespace kvlift {

// The result of one check.
struct SelfCheck {
  PlanResult result;                            // its line in the report
  std::optional<Counterexample> difference;     // the first output that differs
  std::string failed;                           // what is wrong apart from outputs; empty: nothing
  std::map<std::string, OutputResult> outputs;  // comparisons with the source, by output
  // The steps of the check, if comparing with the source may show the difference as well.
  std::optional<Plan> plan;
  double unused = 0;                    // amplitude of the noise in slots that hold no token
  std::optional<exec::AliasMode> mode;  // the executor's mode that was checked; nullopt: kOff
};

SelfCheck SkippedCheck(std::string name, std::string why);

struct SelfCheckFacts {
  PlanLimits limits;
  double garbage = 1e4;        // amplitude of the noise that unused slots are filled with
  bool reads_unused = false;   // the source reads slots that hold no token
  bool reads_garbage = false;  // the source does so if they hold very large numbers
  bool grows = false;          // a cache grows in the converted model as well
  int source_nodes = 1;        // n of the fixed bound (compare.h)
};

class SelfChecks {
 public:
  // Compiles the converted model with these cache pairs in this mode.
  using MakeRunner =
      std::function<absl::StatusOr<Runner>(std::vector<exec::CachePair>, exec::AliasMode)>;

  SelfChecks(const Driver& driver, const Manifest& relation, const SelfCheckFacts& facts,
             const std::vector<Record>& records, MakeRunner make)
      : driver_(driver),
        relation_(relation),
        facts_(facts),
        records_(records),
        make_(std::move(make)) {}

  // Runs all checks that apply, on the longest record without noise and without wrapping around, up
  // to the first that fails. Empty if there is no such record or a cache grows.
  std::vector<SelfCheck> Run(Runner& source, Runner& converted);
  // Runs steps that begin or end outside the cache (also with the write indices -1 and 2^32). Each
  // must be refused without changing a byte of a cache. Skipped if the model accepts them and the
  // source's caches have fixed sizes or wrap around.
  SelfCheck Overflow() const;
  // Returns the certificates of updates in place; empty before Run.
  const std::vector<AliasCertificate>& aliases() const { return aliases_; }
  // Returns the relation's caches as pairs of input and output.
  std::vector<exec::CachePair> Pairs() const;

 private:
  using Trace = std::vector<exec::Fetches>;

  // Runs the longest record with the rows of an earlier run in the slots behind the past.
  SelfCheck DirtyBuffer(Runner& converted);
  // Runs the longest record with large noise in the slots behind the past.
  SelfCheck Garbage(Runner& converted);
  // Runs the longest record with the caches of the executor in this mode.
  SelfCheck Alias(exec::AliasMode mode, const std::string& name);
  // Runs a record with the sequences of each batch rotated by one.
  SelfCheck Permuted(Runner& source, Runner& converted);
  // Returns the shapes of an output of the source in the records' steps that ran in one batch.
  std::vector<BatchShape> ShapesOf(const std::string& output) const;
  // Returns true if the source's results change when sequences are rotated. plan: the record's plan
  // with its sequences rotated by one.
  bool SourceMixesSequences(Runner& source, const Record& record, const Plan& plan);
  // Runs one prompt in pieces.
  SelfCheck Chunks(Runner& source, Runner& converted);
  // Runs a plan with caches of twice the capacity.
  SelfCheck Capacity(Runner& source, Runner& converted);

  // Runs the first `steps` steps of the plan on the converted model only, and returns its outputs.
  absl::StatusOr<Trace> RunAlone(Runner& converted, const Plan& plan, size_t steps) const;
  // Runs the plan on both models, compares them, and returns the converted model's outputs. Empty
  // if the source does not run all steps or the models differ; `check` then says so.
  Trace RunBoth(Runner& source, Runner& converted, const Plan& plan, Record* record,
                SelfCheck* check) const;
  // Compares the outputs of two runs, caches excluded.
  void Same(const Trace& a, const Trace& b, SelfCheck* check) const;
  // Compares the outputs of two runs, and the rows of caches that hold tokens.
  void SameRows(const Plan& plan, const Trace& a, const Trace& b, SelfCheck* check) const;
  // Compares one output of two runs and notes the result in `check`.
  void Judge(const exec::View& a, const exec::View& b, const std::string& output, int step,
             SelfCheck* check) const;

  const Driver& driver_;
  const Manifest& relation_;
  const SelfCheckFacts& facts_;
  const std::vector<Record>& records_;
  MakeRunner make_;
  const Record* longest_ = nullptr;
  Trace clean_;  // the converted model's outputs on the longest record, with clean buffers
  std::vector<AliasCertificate> aliases_;
};

}  // namespace kvlift
