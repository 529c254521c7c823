#include "verify/controls/sensitivity.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "ir/types.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

// Returns how many fixed bounds a detected change of an output exceeds, given the types of the
// output and of the numbers that were changed. In half types the bound is some hundredths of the
// largest value, and no change exceeds that a hundred times; neither need a change of numbers of 8
// bits, which cannot be made larger than their range.
double FeltBounds(int32_t output, int32_t changed) {
  return IsHalfType(output) || ElementBits(changed) <= 8 ? 5 : 100;
}
constexpr size_t kMostCaches = 16, kMostCachesFull = 64;

using Change = std::function<double(double value, int64_t element)>;

// Changes every element in the intersection of all ranges of `box`.
void ChangeBox(const exec::View& view, std::vector<Range> box, const Change& change) {
  if (box.empty()) {
    for (int64_t i = 0; i < view.size(); ++i) {
      StoreDouble(view, i, change(exec::ElementAsDouble(view, i), i));
    }
    return;
  }
  const Range range = box.back();
  box.pop_back();
  const exec::Tensor part = Part(view, range.axis, range.begin, range.end);
  ChangeBox(part.view(), box, change);
  Place(view, range.axis, range.begin, part.view());
}

// Returns changes of a number, each stronger than the one before. They do not depend on the
// element, and so not on the layout.
std::vector<Change> ChangesOf(int32_t type) {
  if (type == onnx::TensorProto::UINT8) return {[](double v, int64_t) { return 255 - v; }};
  if (ElementBits(type) <= 8) return {[](double v, int64_t) { return -v; }};
  return {[](double v, int64_t) { return -4 * v; }, [](double v, int64_t) { return 40 * v; },
          [](double v, int64_t) { return -400 * v; }};
}

class Sampler {
 public:
  Sampler(const Driver& driver, ErrorBounds* bounds, Runner& source, Runner& converted,
          const Manifest& relation, const PlanLimits& limits, int source_nodes)
      : driver_(driver),
        bounds_(bounds),
        source_(source),
        converted_(converted),
        relation_(relation),
        limits_(limits),
        source_nodes_(source_nodes) {}

  Sensitivity Run() {
    MakePlan();
    if (plan_.steps.empty()) return {};
    const StepSpec& step = plan_.steps[0];
    CacheState past, state = driver_.Fresh(converted_, plan_);
    for (const ManifestCache& cache : relation_.caches) {
      past[cache.source.input] = driver_.FirstPast(source_, plan_, cache, step);
    }
    auto theirs = driver_.SourceFeeds(step, plan_.capacity, past);
    auto mine = driver_.ConvertedFeeds(step, plan_.capacity, state);
    if (!theirs.ok() || !mine.ok()) return {};
    source_feeds_ = *std::move(theirs);
    feeds_ = *std::move(mine);
    auto before = Outputs(source_feeds_, feeds_);
    if (!before) return {};
    before_ = *std::move(before);
    Slots();
    Tokens();
    return std::move(result_);
  }

 private:
  struct Pair {
    exec::Feeds theirs, mine;
    exec::Fetches source, converted;
  };

  void MakePlan() {
    plan_.name = "sensitivity";
    plan_.capacity = limits_.capacity;
    const int64_t tokens = limits_.tokens                             ? *limits_.tokens
                           : limits_.tokens_with_past.value_or(2) > 1 ? 2
                                                                      : 1;
    const int64_t most = limits_.tokens ? 2 * tokens : 5;
    const int64_t past = std::min(most, limits_.capacity - tokens);
    if (past < 1 || (limits_.tokens && past % tokens != 0)) return;
    StepSpec step;
    step.past.assign(limits_.batch.value_or(2), past);
    step.new_tokens = tokens;
    for (size_t b = 0; b < step.past.size(); ++b) step.sequences.push_back(static_cast<int>(b));
    plan_.steps.push_back(std::move(step));
  }

  std::optional<Pair> Outputs(const exec::Feeds& theirs, const exec::Feeds& mine) {
    auto a = driver_.StepSource(source_, plan_.steps[0], theirs);
    auto b = converted_.Step(mine);
    if (!a.ok() || !b.ok()) return std::nullopt;
    return Pair{theirs, mine, *std::move(a), *std::move(b)};
  }

  // Compares an output of both models. A difference stands only if it exceeds computed bounds.
  // Sets doubtful_.
  Comparison Compared(const Pair& now, const ManifestOutput& output) {
    doubtful_ = false;
    const std::string& name = NameInSource(output);
    const exec::View want = now.source.at(name).view(), got = now.converted.at(output.name).view();
    Comparison found = Compare(want, got, source_nodes_);
    if (!found.difference || bounds_ == nullptr) return found;
    Driver bounded = driver_;
    bounded.Attend(bounds_);
    OracleRun theirs;
    const auto again = bounded.StepSource(source_, plan_.steps[0], now.theirs, plan_.name, &theirs);
    const OracleRun mine = bounds_->Converted(now.mine, {}, now.converted, plan_.name);
    if (!again.ok() || theirs == nullptr || mine == nullptr) return found;
    doubtful_ = theirs->doubtful.count(name) > 0 || mine->doubtful.count(output.name) > 0;
    const exec::Tensor slack = SumOfBounds(WithBound(want, theirs->BoundOf(name)),
                                           WithBound(got, mine->BoundOf(output.name)));
    return Compare(want, got, source_nodes_, slack.view());
  }

  // Returns the largest change of an output of the source, in terms of the threshold of detection,
  // and notes where the converted model changes differently. changed: the type of the numbers that
  // were changed.
  double Moved(const Pair& now, int32_t changed) {
    double most = 0;
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const std::string& name = NameInSource(output);
      const exec::View before = before_.source.at(name).view(), after = now.source.at(name).view();
      if (before.shape != after.shape || !IsFloatType(before.type)) continue;
      const Comparison c = Compare(before, after, source_nodes_);
      if (c.source_not_finite || !c.judged || !(c.bound > 0)) continue;
      most = std::max(most, c.max_abs / c.bound / FeltBounds(before.type, changed));
      const Comparison both = Compared(now, output);
      if (both.difference && !both.source_not_finite && !result_.difference) {
        Counterexample example;
        example.plan = plan_.name;
        example.output = output.name;
        example.element = both.difference->element;
        example.before = both.difference->before;
        example.after = both.difference->after;
        example.text = fmt::format("sensitivity: {} differs once {} is changed: {}", output.name,
                                   what_, both.difference->text);
        result_.difference = std::move(example);
        result_.undecided = doubtful_;
      }
    }
    return most;
  }

  // Tries changes of numbers of a type until one is detected.
  void Try(std::string what, int32_t type, const std::vector<Change>& changes,
           const std::function<void(const Change&, exec::Feeds*, exec::Feeds*)>& apply) {
    what_ = std::move(what);
    double most = 0;
    for (const Change& change : changes) {
      exec::Feeds theirs = source_feeds_, mine = feeds_;
      apply(change, &theirs, &mine);
      const auto now = Outputs(theirs, mine);
      if (!now) continue;
      most = std::max(most, Moved(*now, type));
      if (most > 1) break;
    }
    ++result_.sampled;
    if (most > 1) {
      result_.least = result_.detected == 0 ? most : std::min(result_.least, most);
      ++result_.detected;
    } else if (most == 0) {
      result_.without_effect.push_back(what_);
    } else {
      result_.weak.push_back(fmt::format("{} ({:.2g} of the threshold)", what_, most));
    }
  }

  // Changes the last, the first or a middle slot of the past, in turn over caches and sequences.
  void Slots() {
    const StepSpec& step = plan_.steps[0];
    const size_t caches = relation_.caches.size();
    const size_t count = std::min(caches, limits_.full ? kMostCachesFull : kMostCaches);
    for (size_t k = 0; k < count; ++k) {
      const ManifestCache& cache = relation_.caches[k * caches / count];
      const int64_t past = step.past[0];
      const int64_t slots[] = {past - 1, 0, past / 2};
      const int64_t slot = slots[k % 3], b = static_cast<int64_t>(k) % step.batch();
      const int64_t rows =
          cache.source.sliding
              ? cache.source.sliding->RowsHeld(past)
              : source_feeds_.at(cache.source.input).shape()[SourceAxisOf(cache.source, 'S')];
      const int64_t first = cache.source.growing ? past - rows : 0;
      if (slot < first) continue;  // the token has left the window
      const int32_t type = feeds_.at(cache.input).type();
      Try(fmt::format("slot {} of cache {}, sequence {},", slot, cache.id, b),
          TypeOfPrecision(cache, type), ChangesOfCache(cache, type),
          [&](const Change& change, exec::Feeds* theirs, exec::Feeds* mine) {
            ChangeSlot(cache, slot, b, change, &mine->at(cache.input));
            ChangeSourceSlot(cache, slot - first, b, change, &theirs->at(cache.source.input));
          });
    }
  }

  // Returns the quantiser whose numbers the cache holds; null if it may hold others.
  const UniformQuantizer* QuantizerOf(const ManifestCache& cache) const {
    const auto& numbers = driver_.stimulus().interface().numbers_of_caches;
    const auto it = numbers.find(cache.source.input);
    return it != numbers.end() && it->second.quantizer ? &*it->second.quantizer : nullptr;
  }

  // Returns the type whose precision bounds the effect of a change of the cache's numbers.
  int32_t TypeOfPrecision(const ManifestCache& cache, int32_t type) const {
    const UniformQuantizer* quantizer = QuantizerOf(cache);
    return quantizer == nullptr ? type : quantizer->codes;
  }

  // Returns changes whose results are numbers that the cache may hold.
  std::vector<Change> ChangesOfCache(const ManifestCache& cache, int32_t type) const {
    std::vector<Change> changes = ChangesOf(type);
    const UniformQuantizer* quantizer = QuantizerOf(cache);
    if (quantizer == nullptr) return changes;
    for (Change& change : changes) {
      change = [change, quantizer](double v, int64_t k) { return quantizer->Round(change(v, k)); };
    }
    return changes;
  }

  void ChangeSlot(const ManifestCache& cache, int64_t slot, int64_t b, const Change& change,
                  exec::Tensor* value) {
    *value = value->Clone();
    const int axis = static_cast<int>(cache.axis), batch = AxisOf(cache.layout, 'B');
    const int64_t each = value->shape()[batch] / plan_.steps[0].batch();
    ChangeBox(value->view(), {{batch, b * each, (b + 1) * each}, {axis, slot, slot + 1}}, change);
  }

  void ChangeSourceSlot(const ManifestCache& cache, int64_t row, int64_t b, const Change& change,
                        exec::Tensor* value) {
    *value = value->Clone();
    const int axis = SourceAxisOf(cache.source, 'S'), batch = SourceAxisOf(cache.source, 'B');
    const int64_t each = value->shape()[batch] / plan_.steps[0].batch();
    std::vector<Range> box = {{batch, b * each, (b + 1) * each}, {axis, row, row + 1}};
    for (const Select& s : cache.source.select) {
      box.push_back({static_cast<int>(s.axis), s.index, s.index + 1});
    }
    ChangeBox(value->view(), box, change);
  }

  // Changes each new token of one sequence.
  void Tokens() {
    const StepSpec& step = plan_.steps[0];
    for (const ManifestInput& input : relation_.inputs) {
      if (!IsFedToBoth(input)) continue;
      const std::string& name = NameInSource(input);
      const auto it = driver_.stimulus().interface().inputs.find(name);
      if (it == driver_.stimulus().interface().inputs.end()) continue;
      const Reading& reading = it->second.reading();
      const bool ids = reading.meaning == Meaning::kTokens;
      if ((!ids && reading.meaning != Meaning::kReal) || !reading.Has(Extent::kTokens)) continue;
      std::vector<Range> box;
      int along = 0;
      const int64_t b = step.batch() - 1;
      for (size_t k = 0; k < reading.axes.size(); ++k) {
        const Axis& axis = reading.axes[k];
        if (axis.extent == Extent::kTokens) along = static_cast<int>(k);
        if (axis.extent == Extent::kBatch) {
          box.push_back({static_cast<int>(k), b * axis.value, (b + 1) * axis.value});
        }
      }
      const int64_t rows = it->second.rows;
      if (ids && rows < 2) continue;
      std::vector<Change> changes = ChangesOf(onnx::TensorProto::FLOAT);
      if (ids) {
        changes.clear();
        for (const int64_t by : {int64_t{1}, rows / 2, rows - 1}) {
          changes.emplace_back([rows, by](double v, int64_t) {
            return static_cast<double>((static_cast<int64_t>(v) + std::max<int64_t>(by, 1)) % rows);
          });
        }
      }
      for (int64_t t = 0; t < step.new_tokens; ++t) {
        Try(fmt::format("token {} of {}, sequence {},", t, name, b), it->second.type, changes,
            [&](const Change& change, exec::Feeds* theirs, exec::Feeds* mine) {
              std::vector<Range> whole = box;
              whole.push_back({along, t, t + 1});
              for (exec::Tensor* value : {&theirs->at(name), &mine->at(input.name)}) {
                *value = value->Clone();
                ChangeBox(value->view(), whole, change);
              }
            });
      }
    }
  }

  const Driver& driver_;
  ErrorBounds* const bounds_;
  Runner& source_;
  Runner& converted_;
  const Manifest& relation_;
  const PlanLimits& limits_;
  int source_nodes_;
  Plan plan_;
  exec::Feeds source_feeds_, feeds_;
  Pair before_;
  bool doubtful_ = false;  // rounding errors may change a decision behind the compared output
  std::string what_;
  Sensitivity result_;
};

}  // namespace

Sensitivity SampleSensitivity(const Driver& driver, ErrorBounds* bounds, Runner& source,
                              Runner& converted, const Manifest& relation, const PlanLimits& limits,
                              int source_nodes) {
  return Sampler(driver, bounds, source, converted, relation, limits, source_nodes).Run();
}

}  // namespace kvlift
