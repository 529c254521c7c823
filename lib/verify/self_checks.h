// What a converted model must keep to whatever its source does: nothing but the rows of the step
// may matter to it, and nothing but they may change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "verify/drive.h"
#include "verify/plans.h"
#include "verify/verify.h"

namespace kvlift {

// A check with its line in the report.
struct SelfCheck {
  PlanResult result;
  std::optional<Counterexample> difference;
  std::string failed;  // what is wrong, where no output tells
  std::map<std::string, OutputResult> outputs;
  // Where the source may tell it, too: steps, and the amplitude of what slots without tokens hold.
  std::optional<Plan> plan;
  double unused = 0;
  std::optional<exec::AliasMode> mode;  // the executor's, that gives other results
};

struct SelfCheckFacts {
  PlanLimits limits;
  double garbage = 1e4;        // amplitude of what unused slots hold
  bool reads_unused = false;   // the source reads slots that hold no token
  bool reads_garbage = false;  // it does if they hold very large numbers
  bool grows = false;          // a cache grows in the converted model, too
  int source_nodes = 1;
};

class SelfChecks {
 public:
  using MakeRunner =
      std::function<absl::StatusOr<Runner>(std::vector<exec::CachePair>, exec::AliasMode)>;

  SelfChecks(const Driver& driver, const Manifest& relation, const SelfCheckFacts& facts,
             const std::vector<Record>& records, MakeRunner make)
      : driver_(driver),
        relation_(relation),
        facts_(facts),
        records_(records),
        make_(std::move(make)) {}

  // All that apply; stops behind the first that fails.
  std::vector<SelfCheck> Run(Runner& source, Runner& converted);
  // Steps that begin or end outside the cache: refused, and no byte of a cache changes.
  SelfCheck Overflow() const;
  const std::vector<AliasCertificate>& aliases() const { return aliases_; }
  // Inputs and outputs that runners in other modes keep.
  std::vector<exec::CachePair> Pairs() const;

 private:
  using Trace = std::vector<exec::Fetches>;

  SelfCheck DirtyBuffer(Runner& converted);
  SelfCheck Garbage(Runner& converted);
  SelfCheck Alias(exec::AliasMode mode, const std::string& name);
  SelfCheck Permuted(Runner& source, Runner& converted);
  bool SourceMixesSequences(Runner& source, const Record& record, const Plan& plan);
  SelfCheck Chunks(Runner& source, Runner& converted);
  SelfCheck Capacity(Runner& source, Runner& converted);

  // Runs the converted model alone, as many steps of the plan. Caches go from step to step in the
  // session's memory.
  absl::StatusOr<Trace> RunAlone(Runner& converted, const Plan& plan, size_t steps) const;
  // Runs both models; the converted one's trace. Empty with the check's note set if the source does
  // not run all of the plan.
  Trace RunBoth(Runner& source, Runner& converted, const Plan& plan, Record* record,
                SelfCheck* check) const;
  // Steps of two runs hold the same outputs.
  void Same(const Trace& a, const Trace& b, SelfCheck* check) const;
  // ... and, in the rows that hold tokens, the same caches.
  void SameRows(const Plan& plan, const Trace& a, const Trace& b, SelfCheck* check) const;
  void Judge(const exec::View& a, const exec::View& b, const std::string& output, int step,
             SelfCheck* check) const;

  const Driver& driver_;
  const Manifest& relation_;
  const SelfCheckFacts& facts_;
  const std::vector<Record>& records_;
  MakeRunner make_;
  const Record* longest_ = nullptr;
  Trace clean_;  // of the longest record
  std::vector<AliasCertificate> aliases_;
};

}  // namespace kvlift
