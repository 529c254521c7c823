#include "verify/controls/comparer_controls.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fmt/format.h"
#include "ir/types.h"
#include "verify/inputs/stimulus.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift {
namespace {

// How far an element is moved, in bounds: beyond the bounds of both models, and far less than a
// wrong rewrite changes.
constexpr double kBounds = 30;

struct Target {
  std::string output, source;
  const ManifestCache* cache = nullptr;
};

std::vector<Target> TargetsOf(const Manifest& relation, bool all) {
  std::vector<Target> caches, others;
  for (const ManifestOutput& output : relation.outputs) {
    const auto cache =
        std::find_if(relation.caches.begin(), relation.caches.end(),
                     [&](const ManifestCache& c) { return c.output == output.name; });
    if (cache != relation.caches.end()) {
      caches.push_back({output.name, cache->source.output, &*cache});
    } else {
      others.push_back({output.name, NameInSource(output), nullptr});
    }
  }
  if (!all && caches.size() > 1) caches.erase(caches.begin(), caches.end() - 1);
  if (!all && others.size() > 1) others.erase(others.begin(), others.end() - 1);
  others.insert(others.end(), caches.begin(), caches.end());
  return others;
}

// Returns the best record whose steps have no padding tokens and run all sequences together: one
// with several sequences and several steps. Null if there is none.
const Record* Choose(const std::vector<Record>& records) {
  const Record* best = nullptr;
  int best_score = -1;
  for (const Record& record : records) {
    bool plain = !record.steps.empty() && record.plan->capacity > 0;
    for (size_t k = 0; k < record.steps.size(); ++k) {
      const StepSpec& step = record.plan->steps[k];
      plain = plain && step.pads.empty() && step.real.empty() && record.steps[k].groups.size() == 1;
    }
    if (!plain) continue;
    const int score =
        (record.plan->steps[0].batch() > 1 ? 2 : 0) + (record.steps.size() > 1 ? 1 : 0);
    if (score > best_score) {
      best = &record;
      best_score = score;
    }
  }
  return best;
}

// Returns the index of the last element that is compared: it belongs to the last new token of the
// last sequence.
int64_t LastElement(const exec::View& view, const Target& target, const StepSpec& step) {
  if (target.cache == nullptr || target.cache->source.growing || target.cache->grows) {
    return view.size() - 1;
  }
  const auto axis = static_cast<size_t>(SourceAxisOf(target.cache->source, 'S'));
  int64_t inner = 1;
  for (size_t k = axis + 1; k < view.shape.size(); ++k) inner *= view.shape[k];
  const int64_t row = (step.past.back() + step.new_tokens - 1) % view.shape[axis];
  return view.size() - 1 - (view.shape[axis] - 1 - row) * inner;
}

// Returns the largest bound of the converted model's output where it lies elsewhere than in the
// source, else that of the element; 0 if none is known.
double BoundAfter(const SourceStep& step, const Target& target, const exec::View& view,
                  int64_t element) {
  const exec::Tensor* bound = step.oracle_after->BoundOf(target.output);
  if (bound == nullptr) return 0;
  const auto bounds = bound->span<double>();
  if (bound->shape() == view.shape) return bounds[element];
  double largest = 0;
  for (const double b : bounds) {
    if (std::isfinite(b)) largest = std::max(largest, b);
  }
  return largest;
}

// Returns by how much an element is moved so that the comparison must detect it.
double Distance(const SourceStep& step, const Target& target, const exec::View& view,
                int64_t element) {
  if (!step.oracle.empty() && step.oracle[0] != nullptr && step.oracle_after != nullptr) {
    if (const exec::Tensor* bound = step.oracle[0]->BoundOf(target.source); bound != nullptr) {
      const double b = bound->span<double>()[element];
      const double after = BoundAfter(step, target, view, element);
      if (std::isfinite(b + after) && b > 0) return std::max(kBounds * b, 2 * (b + after));
    }
  }
  const Comparison c = Compare(view, view, 1 << 10);
  return kBounds * c.bound;
}

}  // namespace

std::vector<ControlResult> RunComparerControls(const Driver& driver, Runner& converted,
                                               const std::vector<Record>& records,
                                               const Manifest& relation, bool all) {
  std::vector<ControlResult> results;
  const Record* record = Choose(records);
  if (record == nullptr) return results;
  const size_t last = record->steps.size() - 1;
  const auto detect = [&](const Target& target, const std::string& what, size_t k,
                          const auto& edit) {
    Record wrong = *record;
    exec::Tensor& value = wrong.steps[k].outputs[0].at(target.source);
    value = value.Clone();
    edit(value.view());
    CacheState state = driver.Fresh(converted, *record->plan);
    const Outcome outcome = driver.RunConverted(converted, wrong, &state);
    ControlResult result;
    result.mutant = fmt::format("{} of {}", what, target.output);
    result.group = "comparer";
    if (outcome.difference) {
      result.plan = record->plan->name;
      result.step = outcome.difference->step;
      result.output = outcome.difference->output;
      result.detected_by = fmt::format("{}, step {}", result.plan, *result.step);
    }
    results.push_back(std::move(result));
  };
  for (const Target& target : TargetsOf(relation, all)) {
    const exec::View view = record->steps[last].outputs[0].at(target.source).view();
    if (!IsFloatType(view.type) || ElementBits(view.type) < 16 || view.size() == 0) continue;
    const int64_t element = LastElement(view, target, record->plan->steps[last]);
    const double old = exec::ElementAsDouble(view, element);
    const double distance = Distance(record->steps[last], target, view, element);
    if (!std::isfinite(old) || !std::isfinite(distance)) continue;
    detect(target, "one element moved", last, [&](const exec::View& v) {
      StoreDouble(v, element, old + (old > 0 ? -distance : distance));
    });
    // A number within the bound of 0 may have either sign.
    if (std::fabs(old) <= distance) continue;
    detect(target, "all signs turned", last, [](const exec::View& v) {
      for (int64_t i = 0; i < v.size(); ++i) StoreDouble(v, i, -exec::ElementAsDouble(v, i));
    });
  }
  return results;
}

}  // namespace kvlift
