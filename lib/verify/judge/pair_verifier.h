// Judges one pair of models: the class behind JudgePair. Internal to lib/verify/judge.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "verify/controls/self_checks.h"
#include "verify/judge/judge_pair.h"
#include "verify/judge/plan_limits.h"
#include "verify/steps/coverage.h"
#include "verify/steps/drive.h"
#include "verify/steps/plan_runner.h"

namespace kvlift::internal {

// Runs plans, checks and mutants one after another, and collects what they give in a report.
class PairVerifier {
 public:
  // A control is judged without oracle and shrinking, since its relation is wrong on purpose.
  PairVerifier(const Model& before, const Model& after, const Manifest& relation,
               const VerifyOptions& options, bool control, const VerifyPart& part);

  absl::StatusOr<VerifyReport> Run();

 private:
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  VerifyReport Inconclusive(std::string reason);

  bool Failed() const { return !failure_.empty() || !unsupported_.empty(); }

  absl::StatusOr<Runner> MakeRunner(const Model& model, std::vector<exec::CachePair> caches,
                                    exec::AliasMode alias) const;
  absl::StatusOr<VerifyReport> RunPlansAndChecks(Driver* driver, const Graph& before,
                                                 const Graph& after, Runner& source,
                                                 Runner& converted);
  absl::StatusOr<VerifyReport> Agree(Driver* driver, const Graph& before, const Graph& after,
                                     Runner& source, Runner& converted);

  // Returns true if only a part of a verdict is asked for: on a wrong relation, or within given
  // bounds.
  bool judged_alone() const { return control_ || part_.bounds != nullptr; }

  void Prove();
  double Garbage() const;
  void FindExtras(Stimulus* stimulus);
  void FindLimits(const Stimulus& stimulus, const SourceFacts& facts);

  void Worst(const OutputResult& result) { MergeOutput(result, &report_.outputs); }

  void RunPlans(Driver* driver, ErrorBounds* bounds, Runner& source, Runner& converted,
                const PlanRunner::Follower* follower = nullptr);
  void RecordLengths(Driver* driver, Runner& source, Runner& converted);
  void ShrinkDifference(const Driver& driver, Runner& source, Runner& converted);
  CoverageExcuses Excuses() const;
  bool TakesSeveral() const;
  void RunSensitivity(const Driver& driver, ErrorBounds* bounds, Runner& source, Runner& converted);
  void RunSelfChecks(const Driver& driver, Runner& source, Runner& converted);
  void Take(const SelfCheck& check);
  void RunMutants(const Driver& driver, const Graph& source, const Graph& after);
  std::string NoteOf(const std::string& name) const;
  std::string OneLength() const;
  std::string Refusal(const Manifest& relation) const;
  VerifyReport Finish();
  bool OfAnotherSource() const;
  void AddAliases();
  void AsTested();

  const Model& before_;
  const Model& after_;
  const Manifest& relation_;
  const VerifyOptions& options_;
  const bool control_;  // a wrong relation is judged, without oracle and shrinking
  const VerifyPart part_;
  Pace pace_;
  const int threads_;
  int source_nodes_ = 0;
  PlanLimits limits_;
  std::vector<Plan> plans_;
  std::vector<Record> records_;
  Reached reached_;
  std::vector<std::string> free_positions_, added_masks_;  // inputs that can be fed freely
  std::vector<std::string> fed_freely_;
  std::vector<std::string> unread_;  // inputs of which the models read the shape only
  StepFeeds equal_start_;
  VerifyReport report_;
  std::string failure_, unsupported_, unjudged_, unrefused_, no_append_, undecided_;
  std::string false_role_;  // see RoleContradiction
  SelfCheckFacts facts_;
  Coverage coverage_;
  std::vector<std::pair<std::string, std::string>> sensitivity_;
  std::string weak_;  // slots and tokens that hardly move the outputs
};

}  // namespace kvlift::internal
