#include "verify/explain/shrink.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "verify/inputs/ring_slots.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

constexpr int kMostRuns = 80;

// Returns the text of a number, of a NaN without its sign.
std::string Text(double number) {
  return std::isnan(number) ? "nan" : fmt::format("{:.9g}", number);
}

class Shrinker {
 public:
  Shrinker(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
           const PlanLimits& limits, int source_nodes, const DetectingCheck& check)
      : driver_(driver),
        source_(source),
        converted_(converted),
        relation_(relation),
        limits_(limits),
        source_nodes_(source_nodes),
        unused_(check.unused),
        mode_(check.mode) {}

  // Returns the smallest plan that differs: of one step, if the failing step differs by itself, or
  // else the plan up to that step.
  Plan Smallest(const Plan& plan, int step) {
    Plan best = plan;
    if (step + 1 < static_cast<int>(best.steps.size())) best.steps.resize(step + 1);
    Plan single = best;
    single.steps = {best.steps.back()};
    if (!Differs(single)) return best;
    best = std::move(single);
    for (bool smaller = true; smaller && runs_ < kMostRuns;) {
      smaller = false;
      for (Plan& candidate : Smaller(best)) {
        if (!Differs(candidate)) continue;
        best = std::move(candidate);
        smaller = true;
        break;
      }
    }
    return best;
  }

  std::optional<Counterexample> DifferenceOf(const Plan& plan) {
    ++runs_;
    const Record record = driver_.RunSource(source_, plan);
    if (record.steps.size() != plan.steps.size()) return std::nullopt;
    CacheState state = driver_.Fresh(converted_, plan, unused_);
    if (mode_ != nullptr) return DifferenceOfMode(plan, std::move(state));
    return driver_.RunConverted(converted_, record, &state).difference;
  }

  // Writes feeds and outputs of the last step, and the first nodes that differ there, into `found`.
  void RecordSmallest(const Plan& plan, Counterexample* found) {
    const StepSpec& step = plan.steps.back();
    found->past = step.past;
    found->new_tokens = step.new_tokens;
    found->capacity = plan.capacity;
    CacheState past, state = driver_.Fresh(converted_, plan, unused_);
    Record record = driver_.RunSource(source_, plan);
    if (record.steps.size() != plan.steps.size()) return;
    // The caches that the last step begins with are those that the earlier steps leave.
    if (plan.steps.size() > 1) {
      Plan earlier = plan;
      earlier.steps.pop_back();
      Record before = driver_.RunSource(source_, earlier);
      driver_.RunConverted(converted_, before, &state);
      if (before.steps.empty() || before.steps.back().groups.size() != 1) return;
      for (const ManifestCache& cache : relation_.caches) {
        exec::Tensor value = before.steps.back().outputs[0].at(cache.source.output).Clone();
        const int axis = SourceAxisOf(cache.source, 'S');
        if (cache.source.growing && value.shape()[axis] > step.past[0]) {
          value = Part(value.view(), axis, 0, step.past[0]);
        }
        past[cache.source.input] = std::move(value);
      }
    }
    NoteConverted(plan, state, found);
    const SourceStep& last = record.steps.back();
    for (size_t g = 0; g < last.groups.size(); ++g) {
      const bool alone = last.groups.size() > 1;
      const StepSpec own = alone ? step.Alone(last.groups[g][0]) : step;
      NoteSource(plan, own, alone || plan.steps.size() == 1 ? CacheState() : past, found);
    }
    if (last.groups.size() == 1) NoteNodes(found);
  }

 private:
  // Returns the first difference between the converted model and the converted model in `mode_`.
  std::optional<Counterexample> DifferenceOfMode(const Plan& plan, CacheState state) {
    for (size_t k = 0; k < plan.steps.size(); ++k) {
      const auto feeds = driver_.ConvertedFeeds(plan.steps[k], plan.capacity, state);
      if (!feeds.ok()) return std::nullopt;
      const auto mine = converted_.Step(Cloned(*feeds)), theirs = mode_->Step(Cloned(*feeds));
      if (!mine.ok() || !theirs.ok()) return std::nullopt;
      for (const ManifestOutput& output : relation_.outputs) {
        if (IsCache(output)) continue;
        const exec::View a = mine->at(output.name).view(), b = theirs->at(output.name).view();
        const Comparison c = Compare(a, b, source_nodes_);
        if (!c.difference) continue;
        Counterexample example;
        example.plan = plan.name;
        example.step = static_cast<int>(k);
        example.output = output.name;
        example.text = fmt::format("{} changes at step {}, element [{}]: {} instead of {}",
                                   output.name, k, fmt::join(c.difference->element, ", "),
                                   Text(c.difference->after), Text(c.difference->before));
        return example;
      }
      for (const ManifestCache& cache : relation_.caches) {
        state[cache.id] = mine->at(cache.output).Clone();
      }
    }
    return std::nullopt;
  }

  bool Differs(const Plan& plan) { return DifferenceOf(plan).has_value(); }

  // Returns smaller plans of one step, those with the largest reductions first.
  std::vector<Plan> Smaller(const Plan& plan) const {
    const StepSpec& step = plan.steps[0];
    std::vector<Plan> smaller;
    const auto add = [&](const StepSpec& to) {
      Plan candidate = plan;
      candidate.steps = {to};
      smaller.push_back(std::move(candidate));
    };
    if (!limits_.batch && step.batch() > 1) {
      for (int b = 0; b < step.batch(); ++b) add(step.Alone(b));
    }
    StepSpec plain = step;
    plain.pads.clear();
    plain.hidden.clear();
    plain.real.clear();
    if (!step.pads.empty() || !step.hidden.empty() || !step.real.empty()) add(plain);
    // Padding and hidden keys are given as absolute places, so such a step is not shortened.
    if (!step.pads.empty() || !step.hidden.empty()) return smaller;
    if (!limits_.tokens && step.new_tokens > 1) {
      for (const int64_t tokens : {int64_t{1}, step.new_tokens / 2, step.new_tokens - 1}) {
        plain = step;
        plain.real.clear();
        plain.new_tokens = tokens;
        if (tokens < step.new_tokens) add(plain);
      }
    }
    const int64_t unit = limits_.tokens.value_or(1), longest = step.longest() / unit;
    if (longest > 0 && step.pads.empty()) {
      for (const int64_t to : {int64_t{0}, longest / 2, longest - 1}) {
        plain = step;
        for (int64_t& p : plain.past) p = std::min(p, to * unit);
        if (to < longest) add(plain);
      }
    }
    const int64_t least = step.longest() + step.new_tokens;
    if (limits_.free_capacity && plan.capacity > least) {
      for (const int64_t to : {least, least + 1, (least + plan.capacity) / 2}) {
        Plan candidate = plan;
        candidate.capacity = to;
        if (to < plan.capacity) smaller.push_back(std::move(candidate));
      }
    }
    return smaller;
  }

  template <typename Tensors>
  static Tensors Cloned(const Tensors& tensors) {
    Tensors copy;
    for (const auto& [name, value] : tensors) copy[name] = value.Clone();
    return copy;
  }

  // Copies the rows that the mode left behind the step's tokens into the feeds.
  void TakeRowsBehind(const StepSpec& step, const exec::Fetches& fetches,
                      exec::Feeds* feeds) const {
    for (const ManifestCache& cache : relation_.caches) {
      exec::Tensor& past = feeds->at(cache.input);
      const exec::View present = fetches.at(cache.output).view();
      if (cache.ring || cache.grows || past.shape() != present.shape) continue;
      const int batch = AxisOf(cache.layout, 'B'), axis = static_cast<int>(cache.axis);
      const int64_t each = present.shape[batch] / step.batch(), slots = present.shape[axis];
      for (int64_t b = 0; b < step.batch(); ++b) {
        const int64_t end = step.past[static_cast<size_t>(b)] + step.new_tokens;
        if (end >= slots) continue;
        const int64_t first = b * each;
        const exec::Tensor own = Part(present, batch, first, first + each);
        exec::Tensor mine = Part(past.view(), batch, first, first + each);
        Place(mine.view(), axis, end, Part(own.view(), axis, end, slots).view());
        Place(past.view(), batch, first, mine.view());
      }
    }
  }

  void NoteConverted(const Plan& plan, const CacheState& state, Counterexample* found) {
    auto feeds = driver_.ConvertedFeeds(plan.steps.back(), plan.capacity, state);
    if (!feeds.ok()) return;
    exec::Feeds fed = Cloned(*feeds);
    after_.clear();
    const auto fetches = Observed(mode_ == nullptr ? converted_ : *mode_, *feeds, &after_);
    if (!fetches.ok()) return;
    if (mode_ != nullptr) TakeRowsBehind(plan.steps.back(), *fetches, &fed);
    found->after_steps.push_back({std::move(fed), Cloned(*fetches)});
  }

  void NoteSource(const Plan& plan, const StepSpec& step, CacheState past, Counterexample* found) {
    for (const ManifestCache& cache : relation_.caches) {
      exec::Tensor& value = past[cache.source.input];
      if (value.empty()) value = driver_.FirstPast(source_, plan, cache, step);
    }
    auto feeds = driver_.SourceFeeds(step, plan.capacity, past);
    if (!feeds.ok()) return;
    IntoSourceOrder(relation_, step, &*feeds);
    before_.clear();
    const auto fetches = Observed(source_, *feeds, &before_);
    if (!fetches.ok()) return;
    found->before_steps.push_back({*std::move(feeds), Cloned(*fetches)});
  }

  struct NodeValue {
    std::string value, node, id;
    exec::Tensor tensor;
  };

  // Runs one step and stores the values that each node computed, in the order in which nodes ran.
  static absl::StatusOr<exec::Fetches> Observed(Runner& runner, const exec::Feeds& feeds,
                                                std::vector<NodeValue>* values) {
    const Graph& graph = runner.program().graph();
    runner.session().set_observer([&](NodeId n, absl::Span<const exec::View> outputs) {
      for (size_t k = 0; k < outputs.size() && k < graph.outputs(n).size(); ++k) {
        const ValueId v = graph.outputs(n)[k];
        if (v == kNoValue || outputs[k].absent() || outputs[k].bytes() < 0) continue;
        exec::Tensor copy(outputs[k].type, outputs[k].shape);
        std::copy_n(outputs[k].data, outputs[k].bytes(), copy.data());
        values->push_back(
            {graph.name(v), fmt::format("{} \"{}\"", graph.node(n).op_type(), graph.NodeName(n)),
             graph.node(n).name().empty() ? graph.name(v) : graph.node(n).name(), std::move(copy)});
      }
    });
    auto fetches = runner.Step(feeds);
    runner.session().set_observer(nullptr);
    return fetches;
  }

  // Compares all values with the source's of the same name, and finds the first one that differs.
  // Caches are left out if their slots without tokens hold other numbers.
  void NoteNodes(Counterexample* found) const {
    std::map<std::string, const NodeValue*> twins;
    for (const NodeValue& value : before_) twins[value.value] = &value;
    for (const ManifestCache& cache : relation_.caches) {
      if (unused_ != 0 || mode_ != nullptr) twins.erase(cache.output);
    }
    for (const NodeValue& value : after_) {
      const auto twin = twins.find(value.value);
      if (twin == twins.end()) continue;
      const exec::View a = twin->second->tensor.view(), b = value.tensor.view();
      if (a.type != b.type || a.shape != b.shape) continue;
      const Comparison c = Compare(a, b, source_nodes_);
      found->values.push_back({value.value, twin->second->node, value.node, twin->second->id,
                               value.id, c.max_abs, c.difference.has_value()});
      if (!c.difference || !found->after_node.empty()) continue;
      found->before_node = twin->second->node;
      found->after_node = value.node;
    }
  }

  const Driver& driver_;
  Runner& source_;
  Runner& converted_;
  const Manifest& relation_;
  const PlanLimits& limits_;
  int source_nodes_;
  double unused_;
  Runner* mode_;
  int runs_ = 0;
  std::vector<NodeValue> before_, after_;
};

}  // namespace

void Shrink(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
            const PlanLimits& limits, const Plan& plan, int source_nodes,
            const DetectingCheck& check, Counterexample* found) {
  Shrinker shrinker(driver, source, converted, relation, limits, source_nodes, check);
  const Plan smallest = shrinker.Smallest(plan, found->step);
  if (check.self_check && !shrinker.DifferenceOf(smallest)) return;
  shrinker.RecordSmallest(smallest, found);
  const std::optional<Counterexample> small = shrinker.DifferenceOf(smallest);
  if (!small) return;
  found->smallest = small->text;
  found->smallest_output = small->output;
}

}  // namespace kvlift
