// The self checks that run other steps than those of the plans.
#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "verify/controls/self_checks.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/compare.h"

namespace kvlift {

// One prompt in a single step must give the same as the prompt in pieces.
SelfCheck SelfChecks::Chunks(Runner& source, Runner& converted) {
  const std::string name = "split prompt";
  const PlanLimits& l = facts_.limits;
  if (l.tokens || !l.prefill) return SkippedCheck(name, "no prompt of several tokens");
  if (!l.causal) return SkippedCheck(name, "tokens see later ones");
  constexpr int64_t kLength = 7;
  if (l.capacity < kLength) return SkippedCheck(name, "the capacity is too small");
  const int64_t batch = l.batch.value_or(2);
  Plan whole, pieces;
  whole.name = pieces.name = name;
  whole.capacity = pieces.capacity = l.capacity;
  whole.steps = {EvenStep(batch, 0, kLength)};
  const int64_t most = l.tokens_with_past.value_or(3);
  for (int64_t at = 0; at < kLength;) {
    const int64_t length = std::min({at == 0 ? int64_t{2} : most, int64_t{3}, kLength - at});
    StepSpec step = EvenStep(batch, at, length);
    step.first_token = at;
    pieces.steps.push_back(std::move(step));
    at += length;
  }
  SelfCheck check;
  check.result = {name, "bitwise", static_cast<int>(pieces.steps.size()),
                  "one prompt in pieces gives the same"};
  Record one, several;
  const Trace a = RunBoth(source, converted, whole, &one, &check);
  if (a.empty()) return check;
  const Trace b = RunBoth(source, converted, pieces, &several, &check);
  if (b.empty()) return check;
  // A source whose own results change (say, with the length of the prompt) is no reference.
  for (const ManifestOutput& output : relation_.outputs) {
    if (IsCache(output)) continue;
    const std::string& theirs = NameInSource(output);
    const exec::View all = a[0].at(output.name).view();
    if (all.shape.size() < 2 || all.shape[1] != kLength) continue;
    for (size_t k = 0; k < pieces.steps.size(); ++k) {
      const StepSpec& step = pieces.steps[k];
      const int64_t from = step.past[0], to = from + step.new_tokens;
      const exec::View now = b[k].at(output.name).view();
      if (now.shape.size() < 2 || now.shape[1] != step.new_tokens) continue;
      const Comparison own =
          Compare(Part(one.steps[0].outputs[0].at(theirs).view(), 1, from, to).view(),
                  several.steps[k].outputs[0].at(theirs).view(), facts_.source_nodes);
      if (own.difference) {
        return SkippedCheck(name, "the source itself gives other results in pieces");
      }
      Judge(Part(all, 1, from, to).view(), now, output.name, static_cast<int>(k), &check);
    }
  }
  for (const ManifestCache& cache : relation_.caches) {
    const int axis = static_cast<int>(cache.axis);
    Judge(Part(a.back().at(cache.output).view(), axis, 0, kLength).view(),
          Part(b.back().at(cache.output).view(), axis, 0, kLength).view(), cache.output,
          static_cast<int>(pieces.steps.size()) - 1, &check);
  }
  return check;
}

// Twice the slots must not change a result.
SelfCheck SelfChecks::Capacity(Runner& source, Runner& converted) {
  const std::string name = "twice the capacity";
  if (!facts_.limits.free_capacity) {
    return SkippedCheck(name, "the capacity is fixed by the models");
  }
  Plan larger = *longest_->plan;
  larger.capacity *= 2;
  SelfCheck check;
  check.result = {
      name, "bitwise", static_cast<int>(larger.steps.size()),
      fmt::format("{} slots give what {} give", larger.capacity, longest_->plan->capacity)};
  if (longest_->steps.size() != larger.steps.size()) {
    return SkippedCheck(name, "the source stops before the end of the plan");
  }
  Record record;
  const Trace b = RunBoth(source, converted, larger, &record, &check);
  if (b.empty()) return check;
  SelfCheck own;
  for (size_t k = 0; k < record.steps.size(); ++k) {
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const std::string& theirs = NameInSource(output);
      for (size_t g = 0; g < record.steps[k].outputs.size(); ++g) {
        Judge(longest_->steps[k].outputs[g].at(theirs).view(),
              record.steps[k].outputs[g].at(theirs).view(), theirs, static_cast<int>(k), &own);
      }
    }
  }
  if (own.difference) return SkippedCheck(name, "the source itself gives other results");
  Same(clean_, b, &check);
  return check;
}

SelfCheck SelfChecks::Overflow() const {
  const std::string name = "one past the end";
  auto aliased = make_(Pairs(), exec::AliasMode::kAuto);
  if (!aliased.ok()) return SkippedCheck(name, std::string(aliased.status().message()));
  const PlanLimits& l = facts_.limits;
  const int64_t tokens = l.tokens.value_or(1);
  const int64_t batch = l.batch.value_or(l.uniform ? 1 : 2);
  Plan plan;
  plan.capacity = l.capacity;
  plan.steps.push_back(EvenStep(batch, 0, tokens));
  const int64_t last = l.capacity - tokens;
  CacheState state = driver_.Fresh(*aliased, plan, 1);
  for (const auto& [id, tensor] : state) state[id] = tensor.Clone();
  SelfCheck check;
  check.result = {name, "bitwise", 0, "refused, caches untouched"};
  bool accepted = false;
  // Runs a step with updates in place. If it is refused, every cache must hold what it held before.
  // control: the number to put into all int64 control inputs; nullopt: those of the step. Returns
  // why the step cannot be fed, or empty.
  const auto attempt = [&](const std::string& what, const StepSpec& step,
                           std::optional<int64_t> control) {
    auto feeds = driver_.ConvertedFeeds(step, l.capacity, state);
    if (!feeds.ok()) return std::string(feeds.status().message());
    if (control) {
      bool any = false;
      for (const ManifestInput& input : relation_.inputs) {
        const ControlInput* fed = AsControl(input);
        const bool length =
            fed != nullptr && fed->dtype == "int64" && fed->value != ControlValue::kPositions;
        if (!length) continue;
        exec::Tensor& value = feeds->at(input.name);
        value = value.Clone();
        std::fill_n(value.view().as<int64_t>(), value.size(), *control);
        any = true;
      }
      if (!any) return std::string("no input says where to write");
    }
    CacheState kept;
    for (const ManifestCache& cache : relation_.caches) {
      kept[cache.id] = state[cache.id].Clone();
      if (!aliased->session().SetCache(cache.input, state[cache.id]).ok()) {
        return std::string("not held");
      }
      feeds->erase(cache.input);
    }
    ++check.result.steps;
    const auto fetches = aliased->Step(*feeds);
    if (check.result.steps == 1 && !fetches.ok()) {
      check.result.note =
          fmt::format("refused, caches untouched: {}", std::string(fetches.status().message()));
    }
    if (fetches.ok()) {
      accepted = true;
      if (relation_.mode == BufferMode::kLinear && (l.growing || control)) {
        check.failed = fmt::format("{}: a write outside the capacity was not refused", what);
      }
      return std::string();
    }
    for (const ManifestCache& cache : relation_.caches) {
      const auto now = aliased->session().Cache(cache.input);
      if (now.ok() && SameBytes(now->view(), kept.at(cache.id).view())) continue;
      check.failed = fmt::format("{}: a refused step changed cache {}", what, cache.id);
    }
    return std::string();
  };
  StepSpec over = EvenStep(batch, last + 1, tokens);
  const std::string unfed = attempt("one past the end", over, std::nullopt);
  if (!unfed.empty()) return SkippedCheck(name, unfed);
  if (accepted && check.failed.empty()) return SkippedCheck(name, "the model does not refuse it");
  if (batch > 1 && !l.uniform && check.failed.empty()) {
    over.past.assign(batch, 0);
    over.past.back() = last + 1;
    attempt("one sequence past the end", over, std::nullopt);
  }
  const StepSpec inside = EvenStep(batch, 0, tokens);
  if (check.failed.empty()) attempt("index -1", inside, -1);
  // An index cut to 32 bits would write slot 0.
  if (check.failed.empty()) attempt("index 2^32", inside, int64_t{1} << 32);
  if (!check.failed.empty()) check.result.status = "different";
  return check;
}

}  // namespace kvlift
