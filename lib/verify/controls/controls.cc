#include "verify/controls/controls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "lint/lint.h"
#include "verify/controls/mutant_cone.h"
#include "verify/controls/observe.h"
#include "verify/controls/relation_mutants.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/relation_check.h"
#include "verify/mutants/mutant_guards.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutants.h"
#include "verify/report/alias_claim.h"

namespace kvlift {
namespace {

constexpr char kProved[] = "no plan tells; every fact of the proof holds for all shapes";
constexpr char kPlansSayNothing[] = "hidden otherwise, too; with nothing hidden: ";

std::string TextOf(SeenFact fact) {
  switch (fact) {
    case SeenFact::kRowsEqual:
      return "in every step that mutants run all rows of the mask are the same";
    case SeenFact::kSequencesEqual:
      return "in every step that mutants run the mask is the same for all sequences";
    case SeenFact::kWhole:
      return "in every step that mutants run the valid length is the number of keys";
    default:
      return "in every step that mutants run the mask holds nothing but 0 and numbers that hide";
  }
}

class Controls {
 public:
  Controls(const Driver& driver, const Model& model, const Graph& after, const Manifest& relation,
           const std::vector<Record>& records, const ControlOptions& options)
      : driver_(driver),
        model_(model),
        after_(after),
        relation_(relation),
        records_(records),
        options_(options) {
    // Records with many steps detect most mutants.
    for (const Record& record : records) order_.push_back(&record);
    std::stable_sort(order_.begin(), order_.end(), [](const Record* a, const Record* b) {
      return a->steps.size() > b->steps.size();
    });
  }

  std::vector<ControlResult> Run() {
    if (auto whole = Make(model_.proto, {}, exec::AliasMode::kOff); whole.ok()) {
      whole_ = *std::move(whole);
      prelude_.emplace(driver_, *whole_, relation_);
    }
    const MutantLimits limits = Limits();
    const bool none_hidden = !options_.many_tokens && limits.one_length.size() && !options_.pads;
    std::vector<ControlResult> results;
    std::optional<std::string> unguarded;
    const std::vector<Mutant> mutants = MakeMutants(after_, relation_, limits);
    const std::vector<RelationMutant> relations = MakeRelationMutants(after_, relation_);
    options_.pace->Begin("mutant", mutants.size() + relations.size());
    for (const Mutant& mutant : mutants) {
      options_.pace->Next(mutant.name);
      ControlResult result = Detect(mutant);
      if (result.missed()) result.equivalent = Argument(mutant, limits);
      if (result.missed() && mutant.guard) {
        // Another condition may hide the same keys, or no step hides a key.
        if (!unguarded) unguarded = DetectUnguarded();
        if (unguarded->empty() && none_hidden) continue;
        if (!unguarded->empty()) result.detected_by = kPlansSayNothing + *unguarded;
      }
      if (result.missed() && options_.proved) result.equivalent = kProved;
      results.push_back(std::move(result));
    }
    for (const RelationMutant& mutant : relations) {
      options_.pace->Next(mutant.name);
      ControlResult result;
      result.mutant = mutant.name;
      result.group = "relation";
      result.detected_by = options_.judge(mutant.relation);
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  MutantLimits Limits() {
    MutantLimits limits;
    limits.ragged = options_.one_length.empty();
    limits.one_length = options_.one_length;
    limits.many_tokens = options_.many_tokens;
    limits.last_slot = options_.last_slot;
    limits.last_start = options_.last_start;
    limits.everywhere = options_.everywhere;
    FindPositions(driver_.stimulus(), &limits);
    if (whole_) limits.seen = ObserveOperands(driver_, *whole_, records_);
    return limits;
  }

  // Compiles a ModelProto or a Graph.
  template <typename M>
  absl::StatusOr<Runner> Make(const std::shared_ptr<const M>& model,
                              std::vector<exec::CachePair> pairs, exec::AliasMode mode) const {
    return Runner::Create(model, model_.base_dir, std::move(pairs), mode, options_.threads);
  }

  // Returns why an undetected mutant is equivalent to the model; empty if it is not known to be.
  std::string Argument(const Mutant& mutant, const MutantLimits& limits) const {
    if (!mutant.equivalent.empty()) return mutant.equivalent;
    if (mutant.detector == Detector::kOverflow) return options_.unrefused;
    const auto seen = limits.seen.find(mutant.equivalent_value);
    if (!mutant.equivalent_if || seen == limits.seen.end() || options_.proved) return {};
    if (seen->second.facts.count(*mutant.equivalent_if) == 0) return {};
    // The mutant would differ in steps where the fact does not hold. None was run, so the verdict
    // assumes the fact.
    std::string text = TextOf(*mutant.equivalent_if);
    options_.ledger->Add(NotRun(AssumptionKind::kOther, mutant.equivalent_value,
                                fmt::format("{}: {}", mutant.equivalent_value, text)));
    return text;
  }

  // Finds the inputs of the converted model that hold lengths or positions.
  void FindPositions(const Stimulus& stimulus, MutantLimits* limits) const {
    for (const ManifestInput& input : relation_.inputs) {
      if (!IsFedToBoth(input)) continue;
      const std::string& theirs = NameInSource(input);
      const auto it = stimulus.interface().inputs.find(theirs);
      if (it == stimulus.interface().inputs.end() || !it->second.position) continue;
      const Meaning meaning = it->second.reading().meaning;
      const bool total = meaning == Meaning::kLast || meaning == Meaning::kTotal;
      if (total || meaning == Meaning::kPositions) limits->positions.push_back(input.name);
      if (total) limits->totals.insert(input.name);
    }
  }

  std::string DetectUnguarded() {
    for (const Mutant& mutant : MakeUnguarded(after_)) {
      const std::string detected = Detect(mutant).detected_by;
      if (!detected.empty()) return detected;
    }
    return {};
  }

  ControlResult Detect(const Mutant& mutant) {
    ControlResult result;
    result.mutant = mutant.name;
    result.group = mutant.group;
    const auto model = BuildMutant(after_, mutant);
    switch (mutant.detector) {
      case Detector::kRules:
        result.detected_by = BrokenRule(model, &result.not_run);
        break;
      case Detector::kAlias:
        result.detected_by = FalseAlias(model, &result.not_run);
        break;
      case Detector::kOverflow: {
        Model whole = model_;
        whole.proto = model;
        const SelfCheck check = options_.overflow(whole);
        if (!check.failed.empty()) {
          result.plan = check.result.name;
          result.detected_by = check.result.name + ": " + check.failed;
        } else if (check.result.status == "skipped" && options_.unrefused.empty()) {
          result.plan = check.result.name;
          result.detected_by = check.result.name + ": " + check.result.note;
        } else if (check.result.status != "skipped") {
          // Another node refuses the same steps.
          result.equivalent = "a step that leads outside is " + check.result.note;
        }
        break;
      }
      default:
        ByPlans(model, !mutant.finish, &result);
        break;
    }
    return result;
  }

  // Returns a finding of the linter, or a misfit of the relation, that the mutant has and the model
  // has not; empty if there is none.
  std::string BrokenRule(const std::shared_ptr<const onnx::ModelProto>& mutant,
                         std::string* not_run) {
    const auto graph = Graph::Build(mutant);
    if (!graph.ok()) return "check: " + std::string(graph.status().message());
    Model whole = model_;
    whole.proto = mutant;
    const auto lints = LintModel(whole, &relation_), own = LintModel(model_, &relation_);
    if (!lints.ok()) return "check: " + std::string(lints.status().message());
    for (const Lint& lint : *lints) {
      const bool known = own.ok() && std::any_of(own->begin(), own->end(), [&](const Lint& l) {
                           return l.finding == lint.finding;
                         });
      if (!known) return fmt::format("check: {} {}", lint.finding.code, lint.finding.text);
    }
    const std::string misfit = Misfit(*options_.source, *graph, relation_);
    if (!misfit.empty()) return "relation: KV403 " + misfit;
    const auto runner = Make(mutant, {}, exec::AliasMode::kOff);
    if (!runner.ok()) *not_run = std::string(runner.status().message());
    return {};
  }

  std::string FalseAlias(const std::shared_ptr<const onnx::ModelProto>& mutant,
                         std::string* not_run) {
    std::vector<exec::CachePair> pairs;
    for (const ManifestCache& c : relation_.caches) pairs.push_back({c.input, c.output});
    const auto runner = Make(mutant, pairs, exec::AliasMode::kAuto);
    if (!runner.ok()) {
      *not_run = std::string(runner.status().message());
      return {};
    }
    const std::string claim = FalseAliasClaim(relation_, runner->program());
    return claim.empty() ? "" : "in place: " + claim;
  }

  // Runs the mutant, or the part of it that differs, on the records.
  void ByPlans(const std::shared_ptr<const onnx::ModelProto>& mutant, bool nodes_only,
               ControlResult* result) {
    auto built = Graph::Build(mutant);
    if (!built.ok()) {
      result->not_run = std::string(built.status().message());
      return;
    }
    const auto graph = std::make_shared<const Graph>(*std::move(built));
    if (nodes_only && ByAffectedPart(*graph, result)) return;
    auto runner = Make(graph, {}, exec::AliasMode::kOff);
    if (!runner.ok()) {
      result->not_run = std::string(runner.status().message());
      return;
    }
    for (const Record* record : order_) {
      if (Tells(driver_, *runner, *record, result)) return;
    }
  }

  // Runs only the part of the mutant that differs. False, and `result` unchanged, if there is no
  // such part or it does not run.
  bool ByAffectedPart(const Graph& mutant, ControlResult* result) {
    const auto part = FindAffectedPart(after_, mutant, relation_, options_.most_affected);
    if (!part || !prelude_) return false;
    const Driver driver(driver_, part->relation);
    ControlResult of_part = *result;
    std::optional<Runner> runner;
    for (const Record* record : order_) {
      auto feeds = prelude_->Of(*record, part->fed);
      if (!feeds) return false;
      if (!runner) {
        auto made =
            Make(BuildAffectedPart(mutant, *part, feeds->front()), {}, exec::AliasMode::kOff);
        if (!made.ok()) return false;
        runner = *std::move(made);
      }
      runner->FeedAlso(*std::move(feeds));
      if (Tells(driver, *runner, *record, &of_part)) break;
      // An error is reported by running the whole mutant.
      if (of_part.step && of_part.output.empty()) return false;
    }
    *result = std::move(of_part);
    return true;
  }

  // Runs the mutant on a record. True if an output or a cache differs; weaker signs and errors are
  // only noted in `result`.
  bool Tells(const Driver& driver, Runner& runner, const Record& record, ControlResult* result) {
    // No step writes into its feeds, so that one initial state serves all mutants.
    CacheState& fresh = fresh_[&record];
    if (fresh.empty()) fresh = driver_.Fresh(whole_ ? *whole_ : runner, *record.plan);
    CacheState state = fresh;
    const Outcome outcome = driver.RunConverted(runner, record, &state);
    if (outcome.difference) {
      result->not_run.clear();
      result->plan = record.plan->name;
      result->step = outcome.difference->step;
      result->output = outcome.difference->output;
      result->detected_by = fmt::format("{}, step {}", result->plan, *result->step);
      return true;
    }
    // Where the model agrees with the source bit for bit, any other bit detects the mutant, even
    // within the bound; so does a number where the source gives NaN.
    const bool other = (record.bitwise && !outcome.bitwise) || !outcome.unjudged.empty();
    if (other && result->detected_by.empty()) {
      result->not_run.clear();
      result->plan = record.plan->name;
      result->detected_by = fmt::format("{}, other bits than the source's", result->plan);
    }
    // An error does not show that the comparison detects the mutant.
    if (!outcome.failed.empty() && result->detected_by.empty() && result->not_run.empty()) {
      result->plan = record.plan->name;
      result->step = outcome.steps;
      result->not_run = fmt::format("{}, {}", result->plan, outcome.failed);
    }
    return false;
  }

  const Driver& driver_;
  const Model& model_;
  const Graph& after_;
  const Manifest& relation_;
  const std::vector<Record>& records_;
  const ControlOptions& options_;
  std::vector<const Record*> order_;
  std::map<const Record*, CacheState> fresh_;
  std::optional<Runner> whole_;           // the converted model, not mutated
  std::optional<ValueRecorder> prelude_;  // the values that it computes
};

}  // namespace

std::vector<ControlResult> RunControls(const Driver& driver, const Model& model, const Graph& after,
                                       const Manifest& relation, const std::vector<Record>& records,
                                       const ControlOptions& options) {
  return Controls(driver, model, after, relation, records, options).Run();
}

}  // namespace kvlift
