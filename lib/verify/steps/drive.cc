#include "verify/steps/drive.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/status.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/ring_slots.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift {
namespace {

// Returns a tree mask: bool [B, 1, S, S], in which each new token sees itself and its ancestors.
exec::Tensor TreeOf(const StepSpec& step) {
  const int64_t tokens = step.new_tokens;
  exec::Tensor tensor =
      exec::Tensor::Zeros(onnx::TensorProto::BOOL, exec::Shape{step.batch(), 1, tokens, tokens});
  for (int64_t i = 0; i < step.batch() * tokens; ++i) {
    for (int64_t at = i % tokens; at >= 0;) {
      StoreDouble(tensor.view(), i * tokens + at, 1);
      at = step.parents.empty() ? at - 1 : step.parents[at];
    }
  }
  return tensor;
}

}  // namespace

std::string Driver::Where(const std::string& plan, const StepSpec& step, int sequence) {
  return fmt::format("{}, step {}{}", plan, step.number,
                     sequence >= 0 ? fmt::format(", sequence {}", sequence) : std::string());
}

absl::StatusOr<Runner> Runner::Create(const std::shared_ptr<const onnx::ModelProto>& model,
                                      const std::string& base_dir,
                                      std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                      int threads) {
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(model));
  return Create(std::make_shared<const Graph>(std::move(graph)), base_dir, std::move(caches), alias,
                threads);
}

absl::StatusOr<Runner> Runner::Create(std::shared_ptr<const Graph> graph,
                                      const std::string& base_dir,
                                      std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                      int threads) {
  exec::CompileOptions options;
  options.caches = std::move(caches);
  options.alias = alias;
  options.threads = threads;
  options.base_dir = base_dir;
  options.pack_weights = false;  // packing takes long and these programs run a few steps
  Runner runner;
  KV_ASSIGN_OR_RETURN(runner.program_, exec::Program::Compile(std::move(graph), options));
  runner.session_ = std::make_unique<exec::Session>(runner.program_);
  return runner;
}

absl::StatusOr<exec::Fetches> Runner::Step(const exec::Feeds& feeds) {
  exec::Fetches fetches;
  exec::Feeds all;  // empty unless FeedAlso has more for this step
  if (next_ < also_.size()) {
    all = feeds;
    for (const auto& [name, value] : also_[next_++]) all[name] = value;
  }
  KV_RETURN_IF_ERROR(session_->Step(all.empty() ? feeds : all, &fetches));
  return fetches;
}

void Runner::FeedAlso(std::vector<exec::Feeds> steps) {
  also_ = std::move(steps);
  next_ = 0;
}

int32_t Runner::TypeOf(const std::string& value) const {
  const Graph& graph = program_->graph();
  return graph.type(graph.Find(value)).elem_type;
}

int Runner::SequenceAxis(const std::string& output, absl::Span<const BatchShape> steps,
                         std::optional<int64_t> fixed_batch) const {
  const Graph& graph = program_->graph();
  const auto& declared = graph.type(graph.Find(output)).shape;
  if (!declared && steps.empty()) return -1;
  const size_t rank = declared ? declared->size() : steps.front().shape.size();
  const auto varies = [&](size_t axis) {
    return fixed_batch.has_value() || !declared || !(*declared)[axis].value;
  };
  for (const BatchShape& step : steps) {
    if (step.shape.size() != rank) return -1;
  }
  for (size_t k = 0; k < rank && !steps.empty(); ++k) {
    const bool fits = std::all_of(steps.begin(), steps.end(), [&](const BatchShape& step) {
      return step.shape[k] == step.batch;
    });
    if (fits && varies(k)) return static_cast<int>(k);
  }
  if (rank == 0 || !varies(0)) return -1;
  const auto unlike = [&](const BatchShape& a, const BatchShape& b) {
    return a.tokens == b.tokens && a.past == b.past && a.shape[0] * b.batch != b.shape[0] * a.batch;
  };
  for (const BatchShape& step : steps) {
    if (step.shape[0] % step.batch != 0) return -1;
    if (std::any_of(steps.begin(), steps.end(),
                    [&](const BatchShape& other) { return unlike(step, other); })) {
      return -1;
    }
  }
  return 0;
}

int64_t Driver::RowsKept(const SourceCache& cache, int64_t length) const {
  if (cache.sliding) return cache.sliding->RowsHeld(length);
  const auto it = kept_rows_.find(cache.input);
  return it == kept_rows_.end() ? length : std::min(length, it->second);
}

absl::StatusOr<exec::Feeds> Driver::SourceFeeds(const StepSpec& step, int64_t capacity,
                                                const CacheState& past) const {
  exec::Feeds feeds;
  for (const auto& [name, input] : stimulus_.interface().inputs) {
    KV_ASSIGN_OR_RETURN(feeds[name], stimulus_.Feed(name, step, capacity));
  }
  for (const auto& [name, value] : past) feeds[name] = value;
  return feeds;
}

absl::StatusOr<exec::Fetches> Driver::StepSource(Runner& source, const StepSpec& step,
                                                 exec::Feeds feeds, const std::string& where,
                                                 OracleRun* oracle) const {
  IntoSourceOrder(relation_, step, &feeds);
  KV_ASSIGN_OR_RETURN(exec::Fetches fetches, source.Step(feeds));
  if (watcher_ != nullptr) watcher_->SourceRan(step, feeds, fetches);
  if (bounds_ != nullptr && oracle != nullptr) {
    *oracle = bounds_->Source(feeds, fetches, where);
    if (*oracle != nullptr) {
      OracleStep turned = **oracle;
      IntoSlotOrder(relation_, step, &turned.bounds);
      *oracle = std::make_shared<const OracleStep>(std::move(turned));
    }
  }
  IntoSlotOrder(relation_, step, &fetches);
  return fetches;
}

// The past holds noise. Slots behind it hold noise if the plan says so, else zeros.
exec::Tensor Driver::FirstPast(const Runner& source, const Plan& plan, const ManifestCache& cache,
                               const StepSpec& step) const {
  const std::string& name = cache.source.input;
  if (!cache.source.growing) return FirstSlots(source.TypeOf(name), plan, cache, step);
  const int64_t length = step.past[0], rows = RowsKept(cache.source, length);
  exec::Tensor value =
      exec::Tensor::Zeros(source.TypeOf(name), stimulus_.CacheShape(cache, step.batch(), rows));
  AddNoise(cache, step, length - rows, rows, &value);
  return value;
}

// Rows of a ring are rotated to the slots of their tokens.
exec::Tensor Driver::FirstSlots(int32_t type, const Plan& plan, const ManifestCache& cache,
                                const StepSpec& step) const {
  const int64_t slots = SlotsOf(cache, plan);
  const int64_t held = std::min(cache.ring ? step.past[0] : step.longest(), slots);
  exec::Tensor value = exec::Tensor::Zeros(type, stimulus_.CacheShape(cache, step.batch(), slots));
  const bool all = plan.noise && !cache.source.growing;
  const int64_t first = cache.ring ? step.past[0] - (all ? slots : held) : 0;
  AddNoise(cache, step, first, all ? slots : held, &value);
  if (first > 0) IntoRing(first, cache.source, &value);
  return value;
}

// Behind the past of a large cache only the next 64 slots and the last 8 get noise, to save time.
void Driver::AddNoise(const ManifestCache& cache, const StepSpec& step, int64_t first, int64_t rows,
                      exec::Tensor* value) const {
  constexpr int64_t kNext = 64, kLast = 8;
  const int axis = SourceAxisOf(cache.source, 'S');
  // Small scales, so that quantised values times scales are of usual size.
  const double amplitude = HoldsScales(cache.role) ? 0x1p-6 : 1;
  const auto fill = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    const exec::Tensor noise = Part(value->view(), axis, begin, end);
    stimulus_.FillWithNoise(cache, step.sequences, first + begin, amplitude, noise.view());
    Place(value->view(), axis, begin, noise.view());
  };
  const int64_t near = std::min(rows, step.past[0] - first + kNext);
  fill(0, near);
  fill(std::max(near, rows - kLast), rows);
}

std::string Driver::Rewind(const ManifestCache& cache, const StepSpec& step, int64_t end,
                           exec::Tensor* value) const {
  if (!cache.source.growing) return {};
  const std::string& name = cache.source.input;
  const int64_t length = step.past[0];
  if (length != end && RowsKept(cache.source, end) != end) {
    return fmt::format("{} holds a window and cannot go back", name);
  }
  const int axis = SourceAxisOf(cache.source, 'S');
  const int64_t rows = RowsKept(cache.source, length);
  if (value->shape()[axis] < rows) {
    return fmt::format("{} holds {} rows after {} tokens", name, value->shape()[axis], length);
  }
  if (value->shape()[axis] > rows) *value = Part(value->view(), axis, 0, rows);
  return {};
}

std::string Driver::BrokenRule(const StepSpec& step, const StepSpec& whole, int64_t capacity,
                               const exec::Feeds& feeds) const {
  if (rules_ == nullptr) return {};
  for (const auto& [name, axis] : rules_->common) {
    const exec::Shape alone = stimulus_.ShapeOf(name, step, capacity),
                      all = stimulus_.ShapeOf(name, whole, capacity);
    const auto k = static_cast<size_t>(axis);
    if (k >= alone.size() || k >= all.size() || alone[k] == all[k]) continue;
    return fmt::format("{}.shape[{}] is the same for each sequence alone", name, axis);
  }
  return RuleBrokenBy(step, feeds, *rules_);
}

Record Driver::RunSource(Runner& source, const Plan& plan) const {
  Record record;
  record.plan = &plan;
  if (watcher_ != nullptr) watcher_->Begin(plan);
  const bool ragged = std::any_of(plan.steps.begin(), plan.steps.end(),
                                  [](const StepSpec& step) { return step.ragged(); });
  const auto batch = static_cast<int>(plan.steps.front().batch());
  const bool alone = ragged && (sequences_alone_ || stimulus_.fixed_batch().value_or(1) == 1);
  std::vector<std::vector<int>> groups;
  for (int b = 0; alone && b < batch; ++b) groups.push_back({b});
  if (!alone) {
    groups.emplace_back(batch);
    std::iota(groups[0].begin(), groups[0].end(), 0);
  }
  std::vector<CacheState> past(groups.size());  // by group
  std::vector<int64_t> ends(groups.size(), 0);
  for (const StepSpec& whole : plan.steps) {
    SourceStep result;
    result.groups = groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      const StepSpec step = alone ? whole.Alone(groups[g][0]) : whole;
      for (const ManifestCache& cache : relation_.caches) {
        if (ragged && !alone && cache.source.growing) {
          record.stopped = "lengths that differ do not fit a cache that grows";
          return record;
        }
        exec::Tensor& value = past[g][cache.source.input];
        if (value.empty()) {
          value = FirstPast(source, plan, cache, step);
          continue;
        }
        record.stopped = Rewind(cache, step, ends[g], &value);
        if (!record.stopped.empty()) return record;
      }
      const auto feeds = SourceFeeds(step, plan.capacity, past[g]);
      if (feeds.ok()) record.stopped = BrokenRule(step, whole, plan.capacity, *feeds);
      record.excluded = !record.stopped.empty();
      if (record.excluded) return record;
      const std::string where = Where(plan.name, step, groups.size() > 1 ? groups[g][0] : -1);
      OracleRun oracle;
      auto fetches = feeds.ok() ? StepSource(source, step, *feeds, where, &oracle)
                                : absl::StatusOr<exec::Fetches>(feeds.status());
      if (!fetches.ok()) {
        record.stopped = std::string(fetches.status().message());
        return record;
      }
      for (const ManifestCache& cache : relation_.caches) {
        const exec::View now = fetches->at(cache.source.output).view();
        const exec::Tensor& fed = feeds->at(cache.source.input);
        const exec::Tensor before =
            step.order.empty() ? fed
                               : Reordered(fed.view(), SourceAxisOf(cache.source, 'B'), step.order);
        record.stopped = CheckAppended(cache, step, before.view(), now);
        record.runs_on = !record.stopped.empty();
        if (record.runs_on) return record;
      }
      for (const ManifestCache& cache : relation_.caches) {
        past[g][cache.source.input] = fetches->at(cache.source.output).Clone();
      }
      ends[g] = step.past[0] + step.new_tokens;
      if (bounds_ != nullptr) result.oracle.push_back(std::move(oracle));
      if (bounds_ != nullptr && groups.size() == 1 && record.steps.empty()) {
        record.first = *feeds;
        IntoSourceOrder(relation_, step, &record.first);
      }
      result.outputs.push_back(*std::move(fetches));
    }
    record.steps.push_back(std::move(result));
  }
  return record;
}

int64_t Driver::SlotsOf(const ManifestCache& cache, const Plan& plan) const {
  const auto fixed = fixed_slots_.find(cache.id);
  if (fixed != fixed_slots_.end()) return fixed->second;
  if (!cache.ring) return plan.capacity;
  int64_t longest = 0;
  for (const StepSpec& step : plan.steps) longest = std::max(longest, step.new_tokens);
  const int64_t least = cache.ring->window + longest;
  return plan.rings ? least : std::max(plan.capacity, least);
}

CacheState Driver::Fresh(const Runner& converted, const Plan& plan, double amplitude) const {
  const StepSpec& step = plan.steps.front();
  CacheState state;
  uint64_t number = 0;
  for (const ManifestCache& cache : relation_.caches) {
    if (cache.grows) {
      state[cache.id] = InTargetOrder(FirstPast(converted, plan, cache, step).view(), cache);
      continue;
    }
    const int32_t type = converted.TypeOf(cache.input);
    const int64_t slots = SlotsOf(cache, plan), noisy = std::min(step.longest(), slots);
    exec::Tensor mine = InTargetOrder(FirstSlots(type, plan, cache, step).view(), cache);
    ++number;
    if (amplitude > 0 && (!plan.noise || cache.source.growing)) {
      const int along = static_cast<int>(cache.axis);
      exec::Tensor rest = Part(mine.view(), along, noisy, slots);
      const bool tiny = ElementBits(type) <= 8;
      for (int64_t i = 0; i < rest.size(); ++i) {
        const double noise = Noise(number, static_cast<uint64_t>(i), 7, 7);
        StoreDouble(rest.view(), i, tiny ? 60 * (noise + 1) : amplitude * noise);
      }
      Place(mine.view(), along, noisy, rest.view());
    }
    state[cache.id] = std::move(mine);
  }
  return state;
}

namespace {

absl::StatusOr<exec::Tensor> ControlFeed(const std::string& name, const ControlInput& control,
                                         const StepSpec& step) {
  if (control.value == ControlValue::kLowerTriangle) return TreeOf(step);
  const int32_t type =
      control.dtype == "int32" ? onnx::TensorProto::INT32 : onnx::TensorProto::INT64;
  const bool per_sequence = !control.shape.empty() && control.shape[0] == "B";
  if (!per_sequence && step.ragged()) {
    return absl::FailedPreconditionError(
        fmt::format("{} takes one length for the whole batch", name));
  }
  exec::Shape shape;
  for (const std::string& dim : control.shape) {
    shape.push_back(dim == "B" ? step.batch() : dim == "S" ? step.new_tokens : 1);
  }
  exec::Tensor tensor(type, shape);
  const int64_t each = tensor.size() / (per_sequence ? step.batch() : 1);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int64_t past = step.past[i / each];
    const int64_t more = control.value == ControlValue::kTotalLength  ? step.new_tokens
                         : control.value == ControlValue::kPastLength ? 0
                                                                      : i % each;
    StoreDouble(tensor.view(), i, static_cast<double>(past + more));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<exec::Feeds> Driver::ConvertedFeeds(const StepSpec& step, int64_t capacity,
                                                   const CacheState& state) const {
  exec::Feeds feeds;
  for (const ManifestInput& input : relation_.inputs) {
    exec::Tensor& feed = feeds[input.name];
    if (const CacheInput* cache = AsCache(input)) {
      feed = state.at(cache->id);
    } else if (const ControlInput* control = AsControl(input)) {
      KV_ASSIGN_OR_RETURN(feed, ControlFeed(input.name, *control, step));
    } else if (const PaddedInput* padded = AsPadded(input)) {
      KV_ASSIGN_OR_RETURN(feed, stimulus_.Feed(NameInSource(input), step, capacity, padded->fill));
    } else {
      KV_ASSIGN_OR_RETURN(feed, stimulus_.Feed(NameInSource(input), step, capacity));
    }
  }
  return feeds;
}

std::string Driver::ExceededLimit(const StepSpec& step) const {
  for (const LengthLimit& limit : length_limits_) {
    if (!limit.Allows(step.longest(), step.new_tokens)) return limit.condition;
  }
  return {};
}

Outcome Driver::RunConverted(Runner& converted, const Record& record, CacheState* state,
                             std::vector<exec::Fetches>* trace) const {
  Outcome outcome;
  const std::string& plan = record.plan->name;
  Gaps gaps;
  std::map<std::string, int> sequence_axes;
  bool padded = false;
  for (size_t k = 0; k < record.steps.size(); ++k) {
    const StepSpec& step = record.plan->steps[k];
    for (const ManifestCache& cache : relation_.caches) {
      if (!cache.grows || !step.ragged()) continue;
      outcome.unfed = fmt::format("{} takes one length for the whole batch", cache.input);
      return outcome;
    }
    const auto feeds = ConvertedFeeds(step, record.plan->capacity, *state);
    if (!feeds.ok()) {
      outcome.unfed = std::string(feeds.status().message());
      return outcome;
    }
    auto fetches = converted.Step(*feeds);
    if (!fetches.ok()) {
      outcome.unsupported =
          absl::IsUnimplemented(fetches.status()) || exec::IsOverBudget(fetches.status());
      const std::string limit = ExceededLimit(step);
      if (!limit.empty() && !outcome.unsupported) {
        outcome.excluded = limit;
      } else {
        outcome.failed = fmt::format("step {}: {}", k, std::string(fetches.status().message()));
      }
      return outcome;
    }
    if (watcher_ != nullptr) watcher_->ConvertedRan(step, *feeds, *fetches);
    const SourceStep& source = record.steps[k];
    OracleRun oracle = source.oracle_after;
    const bool refereed = std::all_of(source.oracle.begin(), source.oracle.end(),
                                      [](const auto& run) { return run != nullptr; });
    if (bounds_ != nullptr && refereed) {
      oracle = bounds_->Converted(*feeds, gaps, *fetches, Where(plan, step, -1));
    }
    if (bounds_ != nullptr) outcome.oracle.push_back(oracle);
    if (bounds_ != nullptr && k == 0) outcome.first = *feeds;
    padded = padded || !step.real.empty();
    const Given given{step, source, *fetches, oracle.get(), plan, &sequence_axes, padded};
    const std::string touched =
        CheckCaches(given, *state, bounds_ != nullptr ? &gaps : nullptr, &outcome);
    if (!touched.empty() && !outcome.difference) {
      outcome.difference = Counterexample{plan,
                                          static_cast<int>(k),
                                          "caches",
                                          {},
                                          0,
                                          0,
                                          fmt::format("{}, step {}: {}", plan, k, touched)};
    }
    CompareOutputs(given, &outcome);
    ++outcome.steps;
    if (trace != nullptr) {
      trace->emplace_back();
      for (const auto& [name, value] : *fetches) trace->back()[name] = value.Clone();
    }
    if (outcome.difference) return outcome;
    for (const ManifestCache& cache : relation_.caches) {
      (*state)[cache.id] = fetches->at(cache.output).Clone();
    }
  }
  return outcome;
}

}  // namespace kvlift
