#include "verify/steps/plan_runner.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "verify/inputs/input_meanings.h"
#include "verify/inputs/ledger.h"

namespace kvlift {

void MergeOutput(const OutputResult& result, std::vector<OutputResult>* outputs) {
  auto it = std::find_if(outputs->begin(), outputs->end(),
                         [&](const OutputResult& o) { return o.name == result.name; });
  if (it == outputs->end()) it = outputs->insert(it, OutputResult());
  it->Merge(result);
}

namespace {

// Returns why a plan was not run to its end: at all, or behind its first steps.
std::string WhyNotRun(const Record& record) {
  if (record.excluded) return "the ledger excludes it: " + record.stopped;
  return "the source does not run it: " + record.stopped;
}
std::string WhyNotToItsEnd(const Record& record) {
  if (record.excluded) return "then the ledger excludes more: " + record.stopped;
  return "then the source stops: " + record.stopped;
}

}  // namespace

void PlanRunner::AddResult(const Plan& plan, const std::string& status, int steps,
                           std::string note) {
  report_->plans.push_back({plan.name, status, steps, std::move(note)});
}

void PlanRunner::Merge(const Outcome& outcome) {
  for (const auto& entry : outcome.outputs) MergeOutput(entry.second, &report_->outputs);
  if (outcome.difference && !report_->counterexample) report_->counterexample = outcome.difference;
}

std::string PlanRunner::WhyUndecided(const Outcome& outcome) {
  if (!proved_ || !outcome.difference) return "";
  const std::string& output = outcome.difference->output;
  if (!outcome.undecided.empty()) {
    doubtful_.insert(output);
    return outcome.undecided;
  }
  if (!outcome.unbounded || doubtful_.count(output) == 0) return "";
  return RoundingMayDecide(output);
}

PlanRunner::Tried PlanRunner::Try(const Driver& driver, const Plan& plan, Runner& source,
                                  Runner& converted) const {
  Tried tried;
  tried.record = driver.RunSource(source, plan);
  if (tried.record.steps.empty()) return tried;
  if (!Follow(driver, plan, &tried)) {
    CacheState state = driver.Fresh(converted, plan);
    tried.outcome = driver.RunConverted(converted, tried.record, &state);
  }
  if (!tried.outcome.excluded.empty()) {
    tried.record.stopped = tried.outcome.excluded;
    tried.record.excluded = true;
    tried.record.steps.resize(static_cast<size_t>(tried.outcome.steps));
  }
  tried.ran = tried.outcome.unfed.empty() && !tried.record.steps.empty();
  return tried;
}

bool PlanRunner::Follow(const Driver& driver, const Plan& plan, Tried* tried) const {
  if (follower_ == nullptr) return false;
  auto fed = follower_->decisions->FeedsOf(tried->record);
  if (!fed) return false;
  Runner& model = *follower_->model;
  std::vector<exec::Fetches> own;
  CacheState state = driver.Fresh(model, plan);
  model.FeedAlso(*fed);
  tried->outcome = driver.RunConverted(model, tried->record, &state, &own);
  if (!tried->outcome.failed.empty()) return false;
  follower_->decisions->Count(tried->record, *fed, own);
  return true;
}

// A difference stands only if it exceeds computed bounds: behind an operator such as Log, rounding
// errors may be larger than the fixed bound.
PlanRunner::Tried PlanRunner::TryExtra(Driver* driver, ErrorBounds* bounds, const Plan& plan,
                                       Runner& source, Runner& converted) const {
  const bool at_once = driver->watched() || (bounds != nullptr && bounds->IsCheap());
  driver->Attend(at_once ? bounds : nullptr);
  Tried tried = Try(*driver, plan, source, converted);
  if (!tried.outcome.difference || at_once || bounds == nullptr) return tried;
  driver->Attend(bounds);
  return Try(*driver, plan, source, converted);
}

void PlanRunner::RunExtra(Driver* driver, ErrorBounds* bounds, Plan* plan, Runner& source,
                          Runner& converted) {
  std::string why = plan->skipped;
  std::vector<Plan> shorter = std::move(plan->instead);
  size_t next = 0;
  for (;;) {
    if (plan->skipped.empty()) {
      const Tried tried = TryExtra(driver, bounds, *plan, source, converted);
      const Outcome& outcome = tried.outcome;
      const std::string why_undecided = WhyUndecided(outcome);
      if (tried.ran && outcome.unjudged.empty() && !outcome.unsupported && why_undecided.empty()) {
        return TakeExtra(*plan, tried);
      }
      if (why.empty()) {
        why = !tried.record.stopped.empty() ? WhyNotRun(tried.record)
              : !outcome.unfed.empty()      ? outcome.unfed
              : !outcome.unjudged.empty()   ? outcome.unjudged
              : !why_undecided.empty()      ? why_undecided
                                            : outcome.failed;
      }
      // A plan that lacks a kernel or memory, or a number to compare with, shows no fault.
      if (outcome.unsupported || !outcome.unjudged.empty() || !why_undecided.empty()) break;
    }
    if (next == shorter.size()) break;
    *plan = std::move(shorter[next++]);
  }
  AddResult(*plan, "skipped", 0, why);
  // Where all facts hold, the plan was not needed.
  if (proved_) return;
  report_->assumptions.Add(
      NotRun(AssumptionKind::kCapacity, "",
             plan->covers.empty() ? fmt::format("not run: {}", plan->shows) : plan->covers));
}

void PlanRunner::TakeExtra(const Plan& plan, const Tried& tried) {
  const Outcome& outcome = tried.outcome;
  Merge(outcome);
  if (!outcome.failed.empty()) {
    failure = fmt::format("{}: the converted model does not run: {}", plan.name, outcome.failed);
    return AddResult(plan, "failed", outcome.steps, outcome.failed);
  }
  AddResult(plan,
            outcome.difference ? "different"
            : outcome.bitwise  ? "bitwise"
                               : "within bound",
            outcome.steps,
            tried.record.stopped.empty() ? plan.shows : WhyNotToItsEnd(tried.record));
  StateStop(plan, tried.record);
  if (outcome.steps == 0) return;
  Reach(plan, outcome.steps);
  coverage.AddSizes(plan, outcome);
  free_masks = free_masks || plan.steps[0].free_masks;
  free_positions = free_positions || plan.steps[0].reach > 0;
}

// Steps that the source does not run are in the ledger, unless all is proved.
void PlanRunner::StateStop(const Plan& plan, const Record& record) {
  if (record.stopped.empty() || proved_) return;
  if (record.runs_on && no_append.empty()) {
    no_append = fmt::format("{}, step {}: {}", plan.name, record.steps.size(), record.stopped);
  }
  report_->assumptions.Add(
      NotRun(AssumptionKind::kCapacity, "",
             fmt::format("not run: the plan \"{}\" behind {} of {} steps, {}", plan.name,
                         record.steps.size(), plan.steps.size(),
                         record.excluded ? "beyond " + record.stopped : "where the source stops")));
}

void PlanRunner::Reach(const Plan& plan, int steps) {
  for (int k = 0; k < steps; ++k) {
    const StepSpec& step = plan.steps[k];
    reached.batch = std::max(reached.batch, step.batch());
    reached.tokens = std::max(reached.tokens, step.new_tokens);
    reached.past = std::max(reached.past, step.longest());
    reached.free_lengths.insert(step.free_length > 0 ? step.free_length : kFreeLength);
  }
  reached.capacity = std::max(reached.capacity, plan.capacity);
}

void PlanRunner::Run(Driver* driver, ErrorBounds* bounds, Runner& source, Runner& converted,
                     std::vector<Plan>* plans) {
  pace_->Begin("plan", plans->size());
  for (Plan& plan : *plans) {
    pace_->Next(plan.name);
    if (plan.extra) {
      RunExtra(driver, bounds, &plan, source, converted);
      if (report_->counterexample || failed()) return;
      continue;
    }
    driver->Attend(bounds);
    if (!plan.skipped.empty()) {
      AddResult(plan, "skipped", 0, plan.skipped);
      continue;
    }
    Tried tried = Try(*driver, plan, source, converted);
    Record& record = tried.record;
    const Outcome& outcome = tried.outcome;
    if (record.steps.empty()) {
      AddResult(plan, "skipped", 0, WhyNotRun(record));
      report_->assumptions.Add(NotRun(AssumptionKind::kOther, plan.name,
                                      fmt::format("not run: {} ({})", plan.name, plan.shows)));
      continue;
    }
    if (!outcome.unfed.empty()) {
      AddResult(plan, "skipped", 0, outcome.unfed);
      const bool ragged = std::any_of(plan.steps.begin(), plan.steps.end(),
                                      [](const StepSpec& step) { return step.ragged(); });
      // The ledger has this entry already if the plans have one length for another reason.
      if (ragged && !driver->Grows()) {
        report_->assumptions.Add({AssumptionKind::kOneLength, "",
                                  fmt::format("all sequences of a batch have the same number of "
                                              "past tokens: {}",
                                              outcome.unfed),
                                  AssumptionSource::kHost, false});
      }
      continue;
    }
    if (const std::string why = WhyUndecided(outcome); !why.empty()) {
      AddResult(plan, "skipped", 0, why);
      report_->assumptions.Add(NotRun(AssumptionKind::kOther, plan.name, "not judged: " + why));
      if (undecided.empty()) undecided = why;
      continue;
    }
    // The source may give NaN for a padding token that sees no key.
    if (!outcome.unjudged.empty() && !outcome.difference) {
      if (unjudged.empty() && plan.steps.back().pads.empty()) unjudged = outcome.unjudged;
      AddResult(plan, "skipped", 0, outcome.unjudged);
      continue;
    }
    Merge(outcome);
    if (outcome.unsupported) {
      unsupported = outcome.failed;
      AddResult(plan, "failed", outcome.steps, outcome.failed);
      return;
    }
    if (!outcome.failed.empty()) {
      failure = fmt::format("{}: the converted model does not run: {}", plan.name, outcome.failed);
      AddResult(plan, "failed", outcome.steps, outcome.failed);
      return;
    }
    AddResult(plan,
              outcome.difference ? "different"
              : outcome.bitwise  ? "bitwise"
                                 : "within bound",
              outcome.steps, record.stopped.empty() ? plan.shows : WhyNotToItsEnd(record));
    if (outcome.difference) return;
    StateStop(plan, record);
    if (!record.first.empty() && (equal_start.where.empty() || plan.steps[0].past[0] > 0)) {
      equal_start = {std::move(record.first), outcome.first, plan.name + ", step 0"};
    }
    record.first.clear();
    for (size_t k = 0; k < outcome.oracle.size(); ++k) {
      record.steps[k].oracle_after = outcome.oracle[k];
    }
    record.bitwise = outcome.bitwise;
    Reach(plan, outcome.steps);
    coverage.Add(plan, outcome);
    records.push_back(std::move(record));
  }
  if (records.empty() && unjudged.empty()) unjudged = undecided;
}

}  // namespace kvlift
