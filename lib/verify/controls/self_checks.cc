#include "verify/controls/self_checks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/alias_claim.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

SelfCheck Named(std::string name, std::string shows, size_t steps) {
  SelfCheck check;
  check.result = {std::move(name), "bitwise", static_cast<int>(steps), std::move(shows)};
  return check;
}

exec::Fetches Copied(const exec::Fetches& fetches) {
  exec::Fetches copy;
  for (const auto& [name, value] : fetches) copy[name] = value.Clone();
  return copy;
}

// Copies the comparison with the source's record into the check.
void TakeOutcome(const Outcome& outcome, SelfCheck* check) {
  check->outputs = outcome.outputs;
  check->difference = outcome.difference;
  if (!check->difference) return;
  check->result.status = "different";
  check->difference->plan = check->result.name;
  check->difference->text = fmt::format("{}: {}", check->result.name, check->difference->text);
}

// Calls `judge` for each sequence with its rows in x and in y, where sequence k of y is sequence
// k + 1 of x.
template <typename Fn>
void ForRotated(const exec::View& x, const exec::View& y, int axis, int64_t batch, Fn judge) {
  if (axis < 0 || x.shape.size() <= static_cast<size_t>(axis) || x.shape != y.shape ||
      x.shape[axis] % batch != 0 || x.shape[axis] == 0) {
    return;
  }
  const int64_t each = x.shape[axis] / batch;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t from = (b + 1) % batch;
    judge(Part(x, axis, from * each, (from + 1) * each).view(),
          Part(y, axis, b * each, (b + 1) * each).view());
  }
}

}  // namespace

SelfCheck SkippedCheck(std::string name, std::string why) {
  SelfCheck check;
  check.result = {std::move(name), "skipped", 0, std::move(why)};
  return check;
}

std::vector<exec::CachePair> SelfChecks::Pairs() const {
  std::vector<exec::CachePair> pairs;
  for (const ManifestCache& c : relation_.caches) pairs.push_back({c.input, c.output});
  return pairs;
}

std::vector<SelfCheck> SelfChecks::Run(Runner& source, Runner& converted) {
  std::vector<SelfCheck> done;
  for (const Record& record : records_) {
    if (record.plan->noise || WrapsAround(*record.plan)) continue;
    if (longest_ == nullptr || record.steps.size() > longest_->steps.size()) longest_ = &record;
  }
  if (facts_.grows || longest_ == nullptr) return done;
  CacheState state = driver_.Fresh(converted, *longest_->plan);
  SelfCheck base = Named("again", "", 0);
  const Outcome outcome = driver_.RunConverted(converted, *longest_, &state, &clean_);
  if (outcome.difference || !outcome.failed.empty()) return done;

  std::vector<std::function<SelfCheck()>> checks;
  checks.emplace_back([&] { return DirtyBuffer(converted); });
  checks.emplace_back([&] { return Garbage(converted); });
  checks.emplace_back([&] { return Alias(exec::AliasMode::kAuto, "in place"); });
  checks.emplace_back([&] { return Alias(exec::AliasMode::kGuard, "guard"); });
  checks.emplace_back([&] { return Alias(exec::AliasMode::kPoison, "poison"); });
  checks.emplace_back([&] { return Permuted(source, converted); });
  if (facts_.limits.full) {
    checks.emplace_back([&] { return Chunks(source, converted); });
    checks.emplace_back([&] { return Capacity(source, converted); });
  }
  for (const auto& check : checks) {
    done.push_back(check());
    if (done.back().difference || !done.back().failed.empty()) break;
  }
  return done;
}

absl::StatusOr<SelfChecks::Trace> SelfChecks::RunAlone(Runner& converted, const Plan& plan,
                                                       size_t steps) const {
  Trace trace;
  CacheState state = driver_.Fresh(converted, plan);
  for (size_t k = 0; k < steps; ++k) {
    const StepSpec& step = plan.steps[k];
    KV_ASSIGN_OR_RETURN(exec::Feeds feeds, driver_.ConvertedFeeds(step, plan.capacity, state));
    KV_ASSIGN_OR_RETURN(exec::Fetches fetches, converted.Step(feeds));
    trace.push_back(Copied(fetches));
    for (const ManifestCache& cache : relation_.caches) {
      state[cache.id] = fetches.at(cache.output);
    }
  }
  return trace;
}

SelfChecks::Trace SelfChecks::RunBoth(Runner& source, Runner& converted, const Plan& plan,
                                      Record* record, SelfCheck* check) const {
  Trace trace;
  check->plan = plan;
  *record = driver_.RunSource(source, plan);
  if (record->steps.size() != plan.steps.size()) {
    *check = SkippedCheck(check->result.name, "the source does not run it: " + record->stopped);
    return {};
  }
  CacheState state = driver_.Fresh(converted, plan);
  const Outcome outcome = driver_.RunConverted(converted, *record, &state, &trace);
  check->outputs = outcome.outputs;
  if (outcome.difference) {
    check->difference = outcome.difference;
    check->result.status = "different";
  } else if (outcome.unsupported) {
    *check = SkippedCheck(check->result.name, outcome.failed);
  } else if (!outcome.failed.empty()) {
    check->failed = fmt::format("{}: {}", check->result.name, outcome.failed);
    check->result.status = "failed";
  } else if (!outcome.unfed.empty() || !outcome.unjudged.empty()) {
    *check =
        SkippedCheck(check->result.name, outcome.unfed.empty() ? outcome.unjudged : outcome.unfed);
  } else {
    return trace;
  }
  return {};
}

void SelfChecks::Judge(const exec::View& a, const exec::View& b, const std::string& output,
                       int step, SelfCheck* check) const {
  if (SameBytes(a, b)) return;
  const Comparison c = Compare(a, b, facts_.source_nodes);
  if (!c.difference && !c.source_not_finite) {
    if (check->result.status == "bitwise") check->result.status = "within bound";
    return;
  }
  check->result.status = "different";
  if (check->difference) return;
  Counterexample example;
  example.plan = check->result.name;
  example.step = step;
  example.output = output;
  if (c.difference) {
    example.element = c.difference->element;
    example.before = c.difference->before;
    example.after = c.difference->after;
  }
  example.text = fmt::format("{}: {} changes at step {}", check->result.name, output, step);
  check->difference = std::move(example);
}

void SelfChecks::Same(const Trace& a, const Trace& b, SelfCheck* check) const {
  const size_t steps = std::min(a.size(), b.size());
  for (size_t k = 0; k < steps; ++k) {
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      Judge(a[k].at(output.name).view(), b[k].at(output.name).view(), output.name,
            static_cast<int>(k), check);
    }
  }
  if (a.size() == b.size() || check->difference) return;
  check->result.status = "failed";
  check->failed =
      fmt::format("{}: the converted model stopped after {} steps", check->result.name, b.size());
}

void SelfChecks::SameRows(const Plan& plan, const Trace& a, const Trace& b,
                          SelfCheck* check) const {
  Same(a, b, check);
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
    const StepSpec& step = plan.steps[k];
    for (const ManifestCache& cache : relation_.caches) {
      const exec::View x = a[k].at(cache.output).view(), y = b[k].at(cache.output).view();
      const int batch = AxisOf(cache.layout, 'B'), axis = static_cast<int>(cache.axis);
      const int64_t each = x.shape[batch] / step.batch();
      for (int64_t s = 0; s < step.batch(); ++s) {
        const int64_t rows = step.past[s] + step.new_tokens;
        if (SameInBox(x, y, {batch, s * each, (s + 1) * each}, {axis, 0, rows})) continue;
        const exec::Tensor mine = Part(x, batch, s * each, (s + 1) * each);
        const exec::Tensor theirs = Part(y, batch, s * each, (s + 1) * each);
        Judge(Part(mine.view(), axis, 0, rows).view(), Part(theirs.view(), axis, 0, rows).view(),
              cache.output, static_cast<int>(k), check);
      }
    }
  }
}

SelfCheck SelfChecks::DirtyBuffer(Runner& converted) {
  if (facts_.reads_unused) {
    return SkippedCheck("dirty buffer", "the source itself reads slots that hold no token");
  }
  const Plan& plan = *longest_->plan;
  SelfCheck check = Named("dirty buffer", "a used buffer gives the same bits", clean_.size());
  check.plan = plan;
  check.unused = 1;
  CacheState used;
  for (const ManifestCache& cache : relation_.caches) {
    used[cache.id] = clean_.back().at(cache.output).Clone();
  }
  // A plan that begins with a past keeps its own rows there.
  const CacheState fresh = driver_.Fresh(converted, plan);
  const int64_t past = plan.steps[0].longest();
  for (const ManifestCache& cache : relation_.caches) {
    if (past == 0) break;
    const int axis = static_cast<int>(cache.axis);
    Place(used[cache.id].view(), axis, 0, Part(fresh.at(cache.id).view(), axis, 0, past).view());
  }
  Trace again;
  const Outcome outcome = driver_.RunConverted(converted, *longest_, &used, &again);
  TakeOutcome(outcome, &check);
  Same(clean_, again, &check);
  return check;
}

SelfCheck SelfChecks::Garbage(Runner& converted) {
  if (facts_.reads_unused || facts_.reads_garbage) {
    return SkippedCheck("garbage",
                        facts_.reads_unused
                            ? "the source itself reads slots that hold no token"
                            : "the source itself lets very large numbers through its mask");
  }
  SelfCheck check = Named("garbage", "unused slots change no result", clean_.size());
  check.plan = *longest_->plan;
  check.unused = facts_.garbage;
  CacheState noisy = driver_.Fresh(converted, *longest_->plan, facts_.garbage);
  Trace again;
  const Outcome outcome = driver_.RunConverted(converted, *longest_, &noisy, &again);
  TakeOutcome(outcome, &check);
  Same(clean_, again, &check);
  return check;
}

SelfCheck SelfChecks::Alias(exec::AliasMode mode, const std::string& name) {
  if (mode == exec::AliasMode::kPoison && facts_.reads_unused) {
    return SkippedCheck(name, "the source itself reads slots that hold no token");
  }
  auto aliased = make_(Pairs(), mode);
  if (!aliased.ok()) return SkippedCheck(name, std::string(aliased.status().message()));
  const size_t shared = AliasedCaches(aliased->program());
  if (mode == exec::AliasMode::kAuto) aliases_ = CertifyAliases(relation_, aliased->program());
  const char* how = mode == exec::AliasMode::kAuto    ? "updated in place"
                    : mode == exec::AliasMode::kGuard ? "unreadable once written"
                                                      : "with NaN behind the valid rows";
  const std::string done = fmt::format("{} of {} caches {}", shared, relation_.caches.size(), how);
  SelfCheck check = Named(name, done + ", same bits", clean_.size());
  if (const std::string claim = FalseAliasClaim(relation_, aliased->program()); !claim.empty()) {
    check.failed = claim;
    check.result = {name, "different", 0, claim};
    return check;
  }
  const auto again = RunAlone(*aliased, *longest_->plan, clean_.size());
  if (!again.ok() && exec::IsOverBudget(again.status())) {
    return SkippedCheck(name, std::string(again.status().message()));
  }
  if (!again.ok()) {
    check.result.status = "failed";
    check.failed = fmt::format("KV431 {}: {}", name, std::string(again.status().message()));
    return check;
  }
  check.plan = *longest_->plan;
  check.mode = mode;
  SameRows(*longest_->plan, clean_, *again, &check);
  if (!check.difference) return check;
  check.difference->text = "KV431 " + check.difference->text;
  check.result.note = done + ", other results";
  return check;
}

std::vector<BatchShape> SelfChecks::ShapesOf(const std::string& output) const {
  std::vector<BatchShape> shapes;
  for (const Record& record : records_) {
    for (size_t k = 0; k < record.steps.size(); ++k) {
      const SourceStep& step = record.steps[k];
      if (step.groups.size() != 1 || step.outputs.empty()) continue;
      const StepSpec& spec = record.plan->steps[k];
      shapes.push_back(
          {step.outputs[0].at(output).shape(), spec.batch(), spec.new_tokens, spec.longest()});
    }
  }
  return shapes;
}

bool SelfChecks::SourceMixesSequences(Runner& source, const Record& record, const Plan& plan) {
  const Record rotated = driver_.RunSource(source, plan);
  const int64_t batch = plan.steps[0].batch();
  bool mixes = false;
  for (size_t k = 0; k < std::min(record.steps.size(), rotated.steps.size()); ++k) {
    if (record.steps[k].groups.size() > 1) return false;  // each sequence ran by itself
    const auto compare = [&](const std::string& output, int axis) {
      ForRotated(record.steps[k].outputs[0].at(output).view(),
                 rotated.steps[k].outputs[0].at(output).view(), axis, batch,
                 [&](const exec::View& x, const exec::View& y) {
                   mixes = mixes || Compare(x, y, facts_.source_nodes).difference.has_value();
                 });
    };
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const std::string& theirs = NameInSource(output);
      const int axis = source.SequenceAxis(theirs, ShapesOf(theirs), facts_.limits.batch);
      if (axis >= 0) compare(theirs, axis);
    }
    for (const ManifestCache& cache : relation_.caches) {
      if (!facts_.limits.batch) compare(cache.source.output, SourceAxisOf(cache.source, 'B'));
    }
  }
  return mixes;
}

// Each sequence must give the same results in a batch with another order.
SelfCheck SelfChecks::Permuted(Runner& source, Runner& converted) {
  const Record* record = nullptr;
  for (const Record& r : records_) {
    if (r.plan->steps[0].batch() < 2 || r.steps.size() != r.plan->steps.size()) continue;
    if (WrapsAround(*r.plan)) continue;
    if (record == nullptr || r.plan->name == "ragged") record = &r;
  }
  const std::string name = "permuted batch";
  if (record == nullptr) return SkippedCheck(name, "no plan has several sequences");
  SelfCheck check = Named(name, "sequences in another order, the same bits", record->steps.size());
  const int64_t batch = record->plan->steps[0].batch();
  Plan plan = *record->plan;
  const auto rotate = [](auto& v) {
    if (!v.empty()) std::rotate(v.begin(), v.begin() + 1, v.end());
  };
  for (StepSpec& step : plan.steps) {
    rotate(step.past);
    rotate(step.real);
    rotate(step.pads);
    rotate(step.hidden);
    rotate(step.sequences);
  }
  check.plan = plan;
  const size_t steps = plan.steps.size();
  const auto before = RunAlone(converted, *record->plan, steps);
  const auto after = RunAlone(converted, plan, steps);
  if (!before.ok() || !after.ok()) {
    const absl::Status& status = before.ok() ? after.status() : before.status();
    return SkippedCheck(name, std::string(status.message()));
  }
  for (size_t k = 0; k < steps; ++k) {
    const auto compare = [&](const std::string& output, int axis) {
      ForRotated((*before)[k].at(output).view(), (*after)[k].at(output).view(), axis, batch,
                 [&](const exec::View& x, const exec::View& y) {
                   Judge(x, y, output, static_cast<int>(k), &check);
                 });
    };
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const int axis =
          converted.SequenceAxis(output.name, ShapesOf(NameInSource(output)), facts_.limits.batch);
      if (axis >= 0) compare(output.name, axis);
    }
    // With a fixed batch the relation may name a wrong axis as the batch: caches are not compared.
    for (const ManifestCache& cache : relation_.caches) {
      if (!facts_.limits.batch) compare(cache.output, AxisOf(cache.layout, 'B'));
    }
  }
  if (check.difference && SourceMixesSequences(source, *record, plan)) {
    return SkippedCheck(name, "the source itself gives other results in another order");
  }
  return check;
}

}  // namespace kvlift
