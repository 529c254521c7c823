#include "verify/judge/judge_pair.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "proof/graphs/frozen_sizes.h"
#include "proof/prove/prove_conversion.h"
#include "verify/controls/comparer_controls.h"
#include "verify/controls/controls.h"
#include "verify/controls/self_checks.h"
#include "verify/controls/sensitivity.h"
#include "verify/controls/trees.h"
#include "verify/explain/first_difference.h"
#include "verify/explain/shrink.h"
#include "verify/inputs/cache_claims.h"
#include "verify/inputs/input_uses.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/relation_check.h"
#include "verify/judge/pair_verifier.h"
#include "verify/judge/same_arithmetic.h"
#include "verify/record/loose_bounds.h"
#include "verify/steps/coverage.h"
#include "verify/steps/decisions.h"
#include "verify/steps/drive.h"
#include "verify/steps/half_bounds.h"
#include "verify/steps/plan_runner.h"
#include "verify/steps/source_probe.h"
#include "verify/steps/thresholds.h"
#include "verify/variants/quantized.h"

namespace kvlift::internal {
namespace {

constexpr double kGarbage = 1e4;
constexpr double kHalfGarbage = 30;

int CountNodes(const onnx::GraphProto& graph) {
  int count = graph.node_size();
  for (const auto& node : graph.node()) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) count += CountNodes(attribute.g());
    }
  }
  return count;
}

int64_t WeightsOf(const onnx::GraphProto& graph) {
  int64_t weights = 0;
  for (const auto& tensor : graph.initializer()) {
    int64_t size = 1;
    for (int64_t d : tensor.dims()) size *= d;
    weights += size;
  }
  return weights;
}

// Models with at most so many numbers in their weights run in milliseconds.
constexpr int64_t kSmall = 20'000'000;

// Returns 1 for a small model, which several threads would slow down.
int ThreadsFor(const onnx::GraphProto& graph, int wanted) {
  return wanted != 0 || WeightsOf(graph) > kSmall ? wanted : 1;
}

}  // namespace

PairVerifier::PairVerifier(const Model& before, const Model& after, const Manifest& relation,
                           const VerifyOptions& options, bool control, const VerifyPart& part)
    : before_(before),
      after_(after),
      relation_(relation),
      options_(options),
      control_(control),
      part_(part),
      pace_(control ? nullptr : options.say),
      threads_(ThreadsFor(before.proto->graph(), options.threads)) {}

absl::StatusOr<VerifyReport> PairVerifier::Run() {
  KV_ASSIGN_OR_RETURN(Graph source_graph, Graph::Build(before_.proto));
  if (const auto fixed = SizesFixedByOperators(*before_.proto); !fixed.empty()) {
    KV_ASSIGN_OR_RETURN(source_graph, Graph::Build(WithSizes(*before_.proto, fixed)));
  }
  KV_ASSIGN_OR_RETURN(Graph after_graph, Graph::Build(after_.proto));
  // The larger count: a fused operator stands for the nodes that the other model has instead.
  source_nodes_ = std::max(CountNodes(before_.proto->graph()), CountNodes(after_.proto->graph()));
  if (std::string missing = Misfit(source_graph, after_graph, relation_); !missing.empty()) {
    return Inconclusive("KV403 " + missing);
  }
  report_.assumptions = ClaimsOf(relation_, source_graph, after_graph);
  if (relation_.caches.empty()) return Inconclusive("KV403 the relation names no cache");
  if (const std::string claim = Contradiction(relation_, after_graph); !claim.empty()) {
    report_.verdict = VerdictKind::kDifferent;
    report_.reason = "KV411 " + claim;
    return std::move(report_);
  }
  false_role_ = RoleContradiction(relation_, after_graph);
  if (options_.proof) Prove();
  // Inputs are fed the sizes that the converted model declares; the source itself runs others, too,
  // such as a sequence alone, or without its padding tokens.
  const auto sizes = FrozenSizesOf(source_graph.model(), *after_.proto, relation_);
  report_.assumptions.Add(RestrictionsTo(sizes, source_graph.model(), relation_));
  std::optional<Graph> restricted;
  if (!sizes.empty()) {
    KV_ASSIGN_OR_RETURN(restricted, Graph::Build(WithSizes(source_graph.model(), sizes)));
  }
  auto stimulus = Stimulus::Create(restricted ? *restricted : source_graph, after_graph, relation_,
                                   options_.seed);
  if (!stimulus.ok()) return Inconclusive("KV402 " + Text(stimulus.status()));
  Driver driver(relation_, *stimulus, source_nodes_);
  driver.KeepTo(&report_.proof.fed);
  driver.HoldSlots(report_.proof.slot_outputs);
  if (restricted) {
    const auto open = Stimulus::Create(source_graph, after_graph, relation_, options_.seed);
    limits_.short_steps = open.ok() && !open->fixed_tokens();
    if (open.ok() && !open->fixed_batch()) driver.RunSequencesAlone();
  }
  driver.AllowRefusalBeyond(report_.proof.lengths);
  LimitByCaches(relation_, after_graph, &driver, &limits_);
  // Several steps of a fixed number of tokens have to fit.
  constexpr int64_t kMostSteps = 6, kMostSlots = 4096;
  if (limits_.free_capacity && stimulus->fixed_tokens()) {
    const int64_t slots = std::min(kMostSteps * *stimulus->fixed_tokens(), kMostSlots);
    limits_.capacity = std::max(limits_.capacity, slots);
  }
  AddReadingsWithinRules(report_.proof.fed, restricted ? *restricted : source_graph, relation_,
                         limits_.capacity, &stimulus->interface());
  facts_.grows = HasGrowingCaches(relation_);
  auto source = MakeRunner(before_, {}, exec::AliasMode::kOff);
  if (!source.ok()) return Inconclusive("KV401 " + Text(source.status()));
  auto converted = MakeRunner(after_, {}, exec::AliasMode::kOff);
  if (!converted.ok()) return Inconclusive("KV401 " + Text(converted.status()));
  const auto facts = ProbeSource(*source, after_graph, relation_, limits_.capacity, Garbage(),
                                 &*stimulus, &driver);
  if (!facts.ok()) return Inconclusive("KV402 " + Text(facts.status()));
  FindLimits(*stimulus, *facts);
  unread_ = InputsReadForShapes(relation_, source_graph, after_graph);
  if (!judged_alone()) FindExtras(&*stimulus);
  plans_ = MakePlans(limits_);
  // Where all facts hold, extra plans only guard against faults of the proof, and the run in
  // float32 has them.
  const bool in_own_types = part_.agreement != nullptr && HoldsWhole(report_.proof);
  if (judged_alone() || in_own_types) {
    std::erase_if(plans_, [](const Plan& plan) { return plan.extra; });
  }
  if (options_.compare != nullptr) {
    driver.CompareBy(options_.compare);
  } else if (DifferInStoredBoolsOnly(source_graph, after_graph, relation_)) {
    driver.CompareBy(CompareNarrowly);
  }
  if (part_.agreement != nullptr) {
    return Agree(&driver, source_graph, after_graph, *source, *converted);
  }
  return RunPlansAndChecks(&driver, source_graph, after_graph, *source, *converted);
}

// Runs the plans, and behind them each check, up to the first that fails.
absl::StatusOr<VerifyReport> PairVerifier::RunPlansAndChecks(Driver* driver, const Graph& before,
                                                             const Graph& after, Runner& source,
                                                             Runner& converted) {
  OracleBounds bounds(before_, part_.bounds != nullptr ? *part_.bounds : after_, options_.full,
                      part_.bounds != nullptr ? 1 : oracle::kDeviations);
  LooseBounds loose(&bounds, part_.stored);
  ErrorBounds* const used = part_.recorder != nullptr ? static_cast<ErrorBounds*>(&loose) : &bounds;
  RunPlans(driver, control_ ? nullptr : used, source, converted);
  RecordLengths(driver, source, converted);
  fed_freely_.insert(fed_freely_.end(), unread_.begin(), unread_.end());
  report_.assumptions.Add(RestrictionsOf(driver->stimulus().interface(), fed_freely_));
  report_.oracle = bounds.report();
  if (part_.bounds != nullptr || part_.recorder != nullptr) return Finish();
  if (report_.counterexample && !control_) ShrinkDifference(*driver, source, converted);
  driver->Attend(nullptr);
  if (!equal_start_.where.empty() && !control_) {
    report_.rounding = FindFirstDifference(source, converted, equal_start_, relation_);
  }
  if (report_.counterexample || Failed()) return Finish();
  RunSelfChecks(*driver, source, converted);
  if (report_.counterexample || Failed()) return Finish();
  if (TakesTrees(relation_) && !control_) {
    Take(CheckTrees(*driver, source, converted, relation_, limits_, source_nodes_, options_.seed));
  }
  if (report_.counterexample || Failed()) return Finish();
  if (part_.sensitivity) {
    RunSensitivity(*driver, control_ ? nullptr : &bounds, source, converted);
  }
  if (report_.counterexample) return Finish();
  if (options_.controls) {
    RunMutants(*driver, before, after);
    const auto more = RunComparerControls(*driver, converted, records_, relation_, options_.full);
    report_.controls.insert(report_.controls.end(), more.begin(), more.end());
  }
  return Finish();
}

absl::StatusOr<Runner> PairVerifier::MakeRunner(const Model& model,
                                                std::vector<exec::CachePair> caches,
                                                exec::AliasMode alias) const {
  return Runner::Create(model.proto, model.base_dir, std::move(caches), alias, threads_);
}

// Runs the plans in the models' own half types, with bounds of HalfBounds. The run in float32
// has the restrictions of the inputs in its report, with those of the extra plans.
absl::StatusOr<VerifyReport> PairVerifier::Agree(Driver* driver, const Graph& before,
                                                 const Graph& after, Runner& source,
                                                 Runner& converted) {
  Decisions decisions(before, after);
  auto bounds = HalfBounds::Create(before_, *part_.agreement, decisions, threads_);
  if (!bounds.ok()) return Inconclusive("KV401 " + Text(bounds.status()));
  if (decisions.empty()) {
    RunPlans(driver, &*bounds, source, converted);
    RecordLengths(driver, source, converted);
    return Finish();
  }
  const auto shown = decisions.WithDecisionsAsOutputs(before_),
             following = decisions.Following(after_);
  if (!shown.ok()) return Inconclusive("KV401 " + Text(shown.status()));
  if (!following.ok()) return Inconclusive("KV401 " + Text(following.status()));
  auto theirs = MakeRunner(*shown, {}, exec::AliasMode::kOff);
  if (!theirs.ok()) return Inconclusive("KV401 " + Text(theirs.status()));
  auto mine = MakeRunner(*following, {}, exec::AliasMode::kOff);
  if (!mine.ok()) return Inconclusive("KV401 " + Text(mine.status()));
  const PlanRunner::Follower follower{&decisions, &*mine};
  RunPlans(driver, &*bounds, *theirs, converted, &follower);
  report_.half_types.decisions = decisions.made();
  report_.half_types.unlike = decisions.unlike();
  RecordLengths(driver, source, converted);
  return Finish();
}

void PairVerifier::Prove() {
  report_.proof = part_.proof != nullptr
                      ? *part_.proof
                      : ProveConversion(*before_.proto, *after_.proto, relation_);
  report_.assumptions.Add(report_.proof.assumptions);
  for (const ProofFact& fact : report_.proof.facts) {
    for (const Assumption& given : fact.given) report_.assumptions.Add(given);
  }
}

double PairVerifier::Garbage() const {
  const std::string& type = relation_.caches.front().dtype;
  return type == "float32" || type == "float64" ? kGarbage : kHalfGarbage;
}

// Finds the inputs that can be fed freely, and the numbers that occur in one model only.
void PairVerifier::FindExtras(Stimulus* stimulus) {
  const InputUses theirs(*before_.proto), mine(*after_.proto);
  for (const ManifestInput& input : relation_.inputs) {
    if (!IsFedToBoth(input)) continue;
    const std::string& name = NameInSource(input);
    const auto it = stimulus->interface().inputs.find(name);
    const bool is_unread = std::find(unread_.begin(), unread_.end(), name) != unread_.end();
    if (it == stimulus->interface().inputs.end() || is_unread) continue;
    SourceInput& fed = it->second;
    if (fed.reading().meaning != Meaning::kPositions || !fed.reading().Has(Extent::kTokens)) {
      continue;
    }
    fed.free = !theirs.SaysWhere(name) && !mine.SaysWhere(input.name);
    if (fed.free) free_positions_.push_back(name);
    limits_.free_positions = limits_.free_positions || fed.free;
  }
  for (const auto& [name, input] : stimulus->interface().inputs) {
    const std::vector<Axis>& axes = input.reading().axes;
    limits_.free_lengths = limits_.free_lengths ||
                           std::any_of(axes.begin(), axes.end(),
                                       [](const Axis& axis) { return !axis.free_length.empty(); });
    if (input.reading().IsAddedMask()) added_masks_.push_back(name);
  }
  for (const auto& [name, numbers] : stimulus->interface().numbers_of_caches) {
    if (!numbers.quantizer || HoldsWhole(report_.proof)) continue;
    report_.assumptions.Add(
        NotRun(AssumptionKind::kNumberType, name,
               fmt::format("no new row of {} is beyond the range of its quantiser", name)));
  }
  // Where all facts hold, a few thresholds suffice to guard against faults of the proof.
  const size_t most = HoldsWhole(report_.proof) ? 3 : 12;
  constexpr int64_t kFarthest = 4200;
  auto [numbers, casts, compared] = FindUnmatched(*before_.proto, *after_.proto);
  if (!HoldsWhole(report_.proof)) {
    numbers.insert(numbers.begin(), casts.begin(), casts.end());
    numbers.insert(numbers.end(), compared.begin(), compared.end());
  }
  if (!HoldsWhole(report_.proof)) {
    for (const auto* model : {before_.proto.get(), after_.proto.get()}) {
      const std::vector<int64_t> rows = RowsOfTables(*model);
      limits_.table_rows.insert(limits_.table_rows.end(), rows.begin(), rows.end());
    }
  }
  for (int64_t number : numbers) {
    if (number <= kFarthest && limits_.thresholds.size() < most) {
      limits_.thresholds.push_back(number);
    } else if (!HoldsWhole(report_.proof)) {
      report_.assumptions.Add(
          NotRun(AssumptionKind::kCapacity, "",
                 fmt::format("no step is run because of the number {}", number)));
    }
  }
}

void PairVerifier::FindLimits(const Stimulus& stimulus, const SourceFacts& facts) {
  LimitBySource(relation_, stimulus, facts, &limits_);
  const bool excluded = LimitByProof(report_.proof.assumptions, &limits_);
  if (!limits_.pads && !excluded) {
    report_.assumptions.Add(NotRun(AssumptionKind::kPadding, "", "no step has padding tokens"));
  }
  const bool grows = std::any_of(relation_.caches.begin(), relation_.caches.end(),
                                 [](const ManifestCache& cache) { return cache.source.growing; });
  if (grows && limits_.pads && !limits_.causal && !limits_.kept) {
    report_.assumptions.Add(
        NotRun(AssumptionKind::kPadding, "", "no step has padding tokens: tokens see later ones"));
  }
  for (const SlotOutput& held : report_.proof.slot_outputs) {
    if (!limits_.pads) break;
    report_.assumptions.Add(
        NotRun(AssumptionKind::kPadding, held.output,
               fmt::format("slots of {} without tokens are not compared once a step had padding "
                           "tokens, which stand in them",
                           held.output)));
  }
  limits_.full = options_.full;
  limits_.proved = HoldsWhole(report_.proof);
  facts_.reads_unused = facts.reads_unused || part_.reads_unused;
  facts_.reads_garbage = facts.reads_garbage || part_.reads_unused;
  if (facts_.reads_unused) {
    report_.assumptions.Add({AssumptionKind::kFinite, "",
                             "slots without tokens, which the source reads, hold the same numbers "
                             "in both models",
                             AssumptionSource::kHost, false});
  }
  facts_.limits = limits_;
  facts_.garbage = Garbage();
  facts_.source_nodes = source_nodes_;
}

// Runs the plans and takes over their results.
void PairVerifier::RunPlans(Driver* driver, ErrorBounds* bounds, Runner& source, Runner& converted,
                            const PlanRunner::Follower* follower) {
  if (part_.recorder != nullptr) part_.recorder->Relate(relation_);
  driver->Watch(part_.recorder);
  PlanRunner runner(HoldsWhole(report_.proof), &report_, &pace_, follower);
  runner.Run(driver, bounds, source, converted, &plans_);
  records_ = std::move(runner.records);
  equal_start_ = std::move(runner.equal_start);
  coverage_ = std::move(runner.coverage);
  reached_ = runner.reached;
  failure_ = runner.failure;
  unsupported_ = runner.unsupported;
  unjudged_ = runner.unjudged;
  undecided_ = runner.undecided;
  no_append_ = runner.no_append;
  if (runner.free_masks) fed_freely_ = added_masks_;
  if (runner.free_positions) {
    fed_freely_.insert(fed_freely_.end(), free_positions_.begin(), free_positions_.end());
  }
}

// Keeps the plans that passed in the record, if one is made, and adds steps to be timed.
void PairVerifier::RecordLengths(Driver* driver, Runner& source, Runner& converted) {
  if (part_.recorder == nullptr) return;
  part_.recorder->KeepPassed(report_.plans);
  driver->Attend(nullptr);
  if (!report_.counterexample && !Failed()) {
    part_.recorder->AddLengths(*driver, source, converted, limits_);
    part_.recorder->AddLarge(*driver, converted, limits_);
  }
  driver->Watch(nullptr);
}

void PairVerifier::ShrinkDifference(const Driver& driver, Runner& source, Runner& converted) {
  Counterexample& found = *report_.counterexample;
  for (const Plan& plan : plans_) {
    if (plan.name != found.plan) continue;
    Shrink(driver, source, converted, relation_, limits_, plan, source_nodes_, {}, &found);
    return;
  }
}

// Whether a step of the source may have several new tokens.
bool PairVerifier::TakesSeveral() const {
  if (limits_.tokens) return *limits_.tokens > 1;
  if (limits_.most_tokens && *limits_.most_tokens < 2) return false;
  return limits_.prefill || limits_.tokens_with_past.value_or(2) > 1;
}

// Samples whether the outputs depend on each slot and token.
void PairVerifier::RunSensitivity(const Driver& driver, ErrorBounds* bounds, Runner& source,
                                  Runner& converted) {
  if (facts_.grows) return;
  const Sensitivity s =
      SampleSensitivity(driver, bounds, source, converted, relation_, limits_, source_nodes_);
  if (s.difference && s.undecided && HoldsWhole(report_.proof)) {
    report_.assumptions.Add(NotRun(AssumptionKind::kOther, "sensitivity",
                                   "not judged: " + RoundingMayDecide(s.difference->output)));
  } else if (s.difference && !report_.counterexample) {
    report_.counterexample = s.difference;
  }
  sensitivity_ = {
      {"sensitivity", fmt::format("{} of {} sampled slots and tokens change the outputs by "
                                  "more than the threshold, at least {:.3g} times as much",
                                  s.detected, s.sampled, s.least)}};
  if (!s.without_effect.empty()) {
    sensitivity_.emplace_back("without effect in the source",
                              fmt::format("{}", fmt::join(s.without_effect, " ")));
  }
  if (!s.weak.empty()) {
    weak_ = fmt::format("{}", fmt::join(s.weak, " "));
    sensitivity_.emplace_back("below the threshold", weak_);
  }
}

// Checks the converted model by itself, and shrinks what the source may show as well.
void PairVerifier::RunSelfChecks(const Driver& driver, Runner& source, Runner& converted) {
  SelfChecks checks(driver, relation_, facts_, records_,
                    [this](std::vector<exec::CachePair> pairs, exec::AliasMode mode) {
                      return MakeRunner(after_, std::move(pairs), mode);
                    });
  for (const SelfCheck& check : checks.Run(source, converted)) {
    Take(check);
    if (!check.difference || !check.plan || control_) continue;
    DetectingCheck told{true, check.unused};
    std::optional<Runner> mode;
    if (check.mode) {
      auto made = MakeRunner(after_, checks.Pairs(), *check.mode);
      if (!made.ok()) continue;
      told.mode = &mode.emplace(*std::move(made));
    }
    Shrink(driver, source, converted, relation_, limits_, *check.plan, source_nodes_, told,
           &*report_.counterexample);
  }
  report_.aliases = checks.aliases();
  if (report_.counterexample || Failed() || facts_.grows) return;
  if (limits_.circular || limits_.all_rings) return;
  const SelfCheck overflow = checks.Overflow();
  Take(overflow);
  if (overflow.result.status == "skipped") unrefused_ = overflow.result.note;
}

void PairVerifier::Take(const SelfCheck& check) {
  for (const auto& entry : check.outputs) Worst(entry.second);
  if (check.difference && !report_.counterexample) report_.counterexample = check.difference;
  if (!check.failed.empty() && failure_.empty()) failure_ = check.failed;
  report_.plans.push_back(check.result);
}

void PairVerifier::RunMutants(const Driver& driver, const Graph& source, const Graph& after) {
  ControlOptions options;
  options.source = &source;
  options.threads = threads_;
  options.many_tokens = coverage_.many_tokens();
  options.pads = coverage_.pads();
  options.everywhere = options_.full && WeightsOf(after_.proto->graph()) <= kSmall;
  options.one_length = Excuses().one_length;
  options.unrefused = unrefused_;
  options.last_slot = Excuses().last_slot;
  options.last_start =
      limits_.tokens.value_or(1) > 1
          ? fmt::format("steps of {} tokens never begin in the last slot", *limits_.tokens)
          : options.last_slot;
  options.overflow = [&](const Model& mutant) {
    const SelfChecks checks(driver, relation_, facts_, records_,
                            [&](std::vector<exec::CachePair> pairs, exec::AliasMode mode) {
                              return MakeRunner(mutant, std::move(pairs), mode);
                            });
    return checks.Overflow();
  };
  options.judge = [this](const Manifest& relation) { return Refusal(relation); };
  options.proved = HoldsWhole(report_.proof);
  options.ledger = &report_.assumptions;
  options.pace = &pace_;
  report_.controls = RunControls(driver, after_, after, relation_, records_, options);
}

// Judges the two models with another relation, without mutants and proof. Returns why they are
// not equal; empty if they are.
std::string PairVerifier::Refusal(const Manifest& relation) const {
  VerifyOptions options = options_;
  options.controls = false;
  options.proof = false;
  options.full = false;
  const auto report = PairVerifier(before_, after_, relation, options, true, {}).Run();
  if (!report.ok()) return Text(report.status());
  return Accepts(report->verdict, Accept::kTested) ? "" : report->reason;
}
}  // namespace kvlift::internal

namespace kvlift {

absl::StatusOr<VerifyReport> JudgePair(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyOptions& options,
                                       const VerifyPart& part) {
  return internal::PairVerifier(before, after, relation, options, false, part).Run();
}

}  // namespace kvlift
