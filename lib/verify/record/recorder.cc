#include "verify/record/recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "fmt/format.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift {
namespace {

// Returns how many of the first rows of `present` are `past`; nullopt: it is another tensor.
std::optional<int64_t> RowsThatStay(const exec::View& past, const exec::View& present, int axis) {
  if (past.type != present.type || past.shape.size() != present.shape.size() || axis < 0) {
    return std::nullopt;
  }
  const int64_t rows = past.shape[axis];
  if (rows > present.shape[axis]) return std::nullopt;
  for (size_t k = 0; k < past.shape.size(); ++k) {
    if (k != static_cast<size_t>(axis) && past.shape[k] != present.shape[k]) return std::nullopt;
  }
  if (!SameBytes(past, Part(present, axis, 0, rows).view())) return std::nullopt;
  return rows;
}

exec::Fetches Copies(const exec::Fetches& values) {
  exec::Fetches copies;
  for (const auto& [name, value] : values) copies[name] = value.Clone();
  return copies;
}

// A step of `tokens` tokens of each sequence behind a past of one length.
StepSpec StepBehind(int64_t past, int64_t tokens, int64_t batch) {
  StepSpec step;
  step.past.assign(static_cast<size_t>(batch), past / tokens * tokens);
  step.new_tokens = tokens;
  for (int64_t b = 0; b < batch; ++b) step.sequences.push_back(static_cast<int>(b));
  return step;
}

const ManifestCache* CacheWithOutput(const Manifest& relation, const std::string& output) {
  for (const ManifestCache& cache : relation.caches) {
    if (cache.output == output) return &cache;
  }
  return nullptr;
}

// Returns the bounds, NaN where none was computed. Exact elements have the bound 0.
exec::Tensor OnlyComputed(const exec::Tensor& bounds, const exec::View& computed) {
  exec::Tensor known = bounds.Clone();
  const bool given = !computed.absent() && computed.shape == bounds.shape();
  for (int64_t i = 0; i < known.size(); ++i) {
    double& bound = known.span<double>()[i];
    if (bound == 0 || (given && std::isfinite(computed.as<double>()[i]))) continue;
    bound = std::numeric_limits<double>::quiet_NaN();
  }
  return known;
}

exec::Tensor InFloat32(const exec::Tensor& value) {
  exec::Tensor wide(onnx::TensorProto::FLOAT, value.shape());
  for (int64_t i = 0; i < wide.size(); ++i) {
    wide.span<float>()[i] = static_cast<float>(exec::ElementAsDouble(value.view(), i));
  }
  return wide;
}

void PlaceIn(const exec::Tensor& whole, const std::vector<Range>& box, const exec::View& part) {
  if (box.empty()) return Place(whole.view(), 0, 0, part);
  const Range& outer = box.front();
  if (box.size() == 1) return Place(whole.view(), outer.axis, outer.begin, part);
  const exec::Tensor slice = Part(whole.view(), outer.axis, outer.begin, outer.end);
  PlaceIn(slice, {box.begin() + 1, box.end()}, part);
  Place(whole.view(), outer.axis, outer.begin, slice.view());
}

}  // namespace

RecordedStep& Recorder::StepOf(const StepSpec& step) {
  RecordedPlan& plan = all_->back();
  const auto number = static_cast<size_t>(step.number);
  if (plan.steps.size() <= number) plan.steps.resize(number + 1);
  plan.steps[number].spec.number = step.number;
  return plan.steps[number];
}

// A plan may begin again in a shorter form, under the same name.
void Recorder::Begin(const Plan& plan) {
  if (!all_->empty() && all_->back().name == plan.name) all_->pop_back();
  all_->push_back({plan.name, plan.shows, plan.capacity, {}});
  presents_.clear();
  buffers_.clear();
  compared_ = nullptr;
}

void Recorder::SourceRan(const StepSpec& step, const exec::Feeds& feeds,
                         const exec::Fetches& fetches) {
  RecordedStep& recorded = StepOf(step);
  RecordedRun run;
  run.sequences = step.sequences;
  for (const auto& [name, value] : feeds) run.feeds[name] = value.Clone();
  exec::Fetches& last = presents_[step.sequences];
  for (const ManifestCache& cache : relation_.caches) {
    const auto fed = run.feeds.find(cache.source.input);
    const auto present = last.find(cache.source.output);
    if (fed == run.feeds.end() || present == last.end()) continue;
    const int axis = SourceAxisOf(cache.source, 'S');
    const auto rows = RowsThatStay(fed->second.view(), present->second.view(), axis);
    if (!rows) continue;
    run.rows[cache.source.input] = *rows;
    run.feeds.erase(fed);
  }
  last = Copies(fetches);
  recorded.source.push_back(std::move(run));
}

void Recorder::ConvertedRan(const StepSpec& step, const exec::Feeds& feeds,
                            const exec::Fetches& fetches) {
  RecordedStep& recorded = StepOf(step);
  recorded.spec = step;
  recorded.feeds.clear();
  recorded.outputs.clear();
  for (const auto& [name, value] : feeds) recorded.feeds[name] = value.Clone();
  if (step.number == 0) buffers_.clear();
  for (const ManifestCache& cache : relation_.caches) {
    const auto fed = recorded.feeds.find(cache.input);
    const auto last = buffers_.find(cache.output);
    if (fed == recorded.feeds.end() || last == buffers_.end()) continue;
    if (SameBytes(fed->second.view(), last->second.view())) recorded.feeds.erase(fed);
  }
  for (const ManifestOutput& output : relation_.outputs) {
    const auto got = fetches.find(output.name);
    if (got == fetches.end()) continue;
    exec::Shape shape = got->second.shape();
    const ManifestCache* cache = CacheWithOutput(relation_, output.name);
    if (cache != nullptr && !cache->grows) shape[cache->axis] = step.new_tokens;
    RecordedOutput& expected = recorded.outputs[output.name];
    expected.want = exec::Tensor::Zeros(got->second.type(), shape);
    expected.bound = exec::Tensor(onnx::TensorProto::DOUBLE, shape);
    const auto bounds = expected.bound.span<double>();
    std::fill(bounds.begin(), bounds.end(), std::numeric_limits<double>::quiet_NaN());
  }
  buffers_ = Copies(fetches);
  compared_ = &recorded;
}

void Recorder::Compared(const std::string& output, const std::vector<Range>& box,
                        const exec::View& want, const exec::Tensor& bounds,
                        const exec::View& computed) {
  if (compared_ == nullptr) return;
  const auto found = compared_->outputs.find(output);
  if (found == compared_->outputs.end()) return;
  std::vector<Range> rows = box;
  const ManifestCache* cache = CacheWithOutput(relation_, output);
  if (cache != nullptr && !cache->grows && box.size() == 2) {
    // From slots of the buffer to new tokens.
    const exec::Shape& buffer = buffers_.at(output).shape();
    const StepSpec& step = compared_->spec;
    const int64_t each = std::max<int64_t>(1, buffer[box[0].axis] / step.batch());
    const int64_t slots = buffer[box[1].axis];
    const int64_t first = step.past[box[0].begin / each] % slots;
    const int64_t token = (box[1].begin - first + slots) % slots;
    rows[1] = {box[1].axis, token, token + box[1].end - box[1].begin};
  }
  PlaceIn(found->second.want, rows, want);
  PlaceIn(found->second.bound, rows,
          stored_.empty() ? bounds.view() : OnlyComputed(bounds, computed).view());
}

void Recorder::KeepPassed(const std::vector<PlanResult>& results) {
  std::erase_if(plans, [&](RecordedPlan& plan) {
    for (const PlanResult& result : results) {
      if (result.name != plan.name) continue;
      if (result.status != "bitwise" && result.status != "within bound") return true;
      plan.steps.resize(std::min(plan.steps.size(), static_cast<size_t>(result.steps)));
      return plan.steps.empty();
    }
    return true;
  });
}

void Recorder::AddLengths(const Driver& driver, Runner& source, Runner& converted,
                          const PlanLimits& limits) {
  all_ = &timed;
  const int64_t tokens = limits.tokens.value_or(1);
  int64_t longest = 0;
  for (int64_t length : lengths_) longest = std::max(longest, length);
  for (int64_t length : lengths_) {
    Plan plan;
    plan.name = fmt::format("{} tokens", length);
    plan.capacity = limits.free_capacity ? std::max(limits.capacity, 2 * longest) : limits.capacity;
    const StepSpec step = StepBehind(length, tokens, limits.batch.value_or(1));
    plan.steps.push_back(step);
    if (!limits.circular && !limits.free_capacity && step.longest() + tokens > plan.capacity) {
      skipped_lengths.emplace_back(length, "the capacity is too small");
      continue;
    }
    const Record record = driver.RunSource(source, plan);
    std::string why = record.stopped;
    if (why.empty()) {
      CacheState state = driver.Fresh(converted, plan);
      const Outcome outcome = driver.RunConverted(converted, record, &state);
      why = !outcome.unfed.empty() ? outcome.unfed
            : outcome.difference   ? outcome.difference->text
                                   : outcome.failed;
    }
    if (why.empty()) continue;
    timed.pop_back();
    skipped_lengths.emplace_back(length, why);
  }
  all_ = &plans;
  compared_ = nullptr;
}

void Recorder::AddLarge(const Driver& driver, const Runner& converted, const PlanLimits& limits) {
  constexpr int64_t kBytes = int64_t{48} << 20, kLeast = 64, kMost = int64_t{1} << 17, kPast = 1;
  if (!limits.free_capacity || limits.row_bytes == 0) return;
  Plan plan;
  plan.name = "large caches";
  plan.shows = "one buffer for past and present, and two";
  plan.capacity = std::clamp(kBytes / limits.row_bytes, kLeast, kMost);
  plan.steps.push_back(StepBehind(kPast, limits.tokens.value_or(1), limits.batch.value_or(1)));
  const CacheState state = driver.Fresh(converted, plan);
  auto feeds = driver.ConvertedFeeds(plan.steps[0], plan.capacity, state);
  if (!feeds.ok()) return;
  RecordedStep step;
  step.spec = plan.steps[0];
  step.feeds = *std::move(feeds);
  large.push_back({plan.name, plan.shows, plan.capacity, {}});
  large.back().steps.push_back(std::move(step));
}

void Recorder::Store(const Manifest& relation) {
  const auto compares = [&](const RecordedPlan& plan) {
    for (const RecordedStep& step : plan.steps) {
      for (const auto& [name, output] : step.outputs) {
        const auto bounds = output.bound.span<double>();
        const auto known = [](double bound) { return !std::isnan(bound); };
        if (CacheWithOutput(relation, name) == nullptr &&
            std::any_of(bounds.begin(), bounds.end(), known)) {
          return true;
        }
      }
    }
    return false;
  };
  std::erase_if(plans, [&](const RecordedPlan& plan) { return !compares(plan); });
  for (std::vector<RecordedPlan>* all : {&plans, &timed, &large}) {
    for (RecordedPlan& plan : *all) {
      for (RecordedStep& step : plan.steps) StoreStep(relation, &step);
    }
  }
}

void Recorder::StoreStep(const Manifest& relation, RecordedStep* step) const {
  for (const ManifestCache& cache : relation.caches) {
    if (!cache.quantization) continue;
    if (const auto want = step->outputs.find(cache.output); want != step->outputs.end()) {
      want->second.want = InFloat32(want->second.want);
    }
    const auto fed = step->feeds.find(cache.input);
    if (fed == step->feeds.end()) continue;
    QuantizedRows rows = QuantizeRows(fed->second.view(), stored_.at(cache.input));
    fed->second = std::move(rows.values);
    for (const ManifestCache& scales : relation.caches) {
      if (scales.id == cache.quantization->scales) step->feeds[scales.input] = rows.scales;
    }
  }
}

void Recorder::Restore(const std::function<void(VerifyReport*)>& restore) {
  for (std::vector<RecordedPlan>* all : {&plans, &timed}) {
    for (RecordedPlan& plan : *all) {
      for (RecordedStep& step : plan.steps) {
        for (RecordedRun& run : step.source) {
          VerifyReport report;
          Counterexample& one = report.counterexample.emplace();
          one.past = step.spec.past;
          one.new_tokens = step.spec.new_tokens;
          one.capacity = plan.capacity;
          one.before_steps.push_back({std::move(run.feeds), {}});
          restore(&report);
          run.feeds = std::move(one.before_steps.front().feeds);
        }
      }
    }
  }
}

}  // namespace kvlift
