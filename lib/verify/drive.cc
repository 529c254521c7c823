#include "verify/drive.h"

#include <algorithm>
#include <numeric>

#include "base/status.h"
#include "fmt/format.h"
#include "verify/rows.h"

namespace kvlift {
namespace {

// Sequence b of a tensor whose first axis is the batch.
exec::Tensor SequenceOf(const exec::View& whole, const std::vector<int>& group, int64_t batch) {
  if (whole.shape.empty() || whole.shape[0] != batch ||
      static_cast<int64_t>(group.size()) == batch) {
    exec::Tensor copy(whole.type, whole.shape);
    std::copy_n(whole.data, std::max<int64_t>(0, whole.bytes()), copy.data());
    return copy;
  }
  return Part(whole, 0, group[0], group[0] + 1);
}

bool Ragged(const StepSpec& step) {
  return std::adjacent_find(step.past.begin(), step.past.end(), std::not_equal_to<>()) !=
         step.past.end();
}

}  // namespace

absl::StatusOr<Runner> Runner::Create(const std::shared_ptr<const onnx::ModelProto>& model,
                                      const std::string& base_dir,
                                      std::vector<exec::CachePair> caches, exec::AliasMode alias,
                                      int threads) {
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(model));
  exec::CompileOptions options;
  options.caches = std::move(caches);
  options.alias = alias;
  options.threads = threads;
  options.base_dir = base_dir;
  Runner runner;
  KV_ASSIGN_OR_RETURN(
      runner.program_,
      exec::Program::Compile(std::make_shared<const Graph>(std::move(graph)), options));
  runner.session_ = std::make_unique<exec::Session>(runner.program_);
  return runner;
}

absl::StatusOr<exec::Fetches> Runner::Step(const exec::Feeds& feeds) {
  exec::Fetches fetches;
  KV_RETURN_IF_ERROR(session_->Step(feeds, &fetches));
  return fetches;
}

absl::StatusOr<exec::Feeds> Driver::SourceFeeds(
    const StepSpec& step, const std::map<std::string, exec::Tensor>& past) const {
  exec::Feeds feeds;
  for (const std::string& name : stimulus_.inputs()) {
    KV_ASSIGN_OR_RETURN(feeds[name], stimulus_.Feed(name, step));
  }
  for (const auto& [name, value] : past) feeds[name] = value;
  return feeds;
}

Record Driver::RunSource(Runner& source, const Plan& plan) const {
  Record record;
  record.plan = &plan;
  const bool any_ragged = std::any_of(plan.steps.begin(), plan.steps.end(), Ragged);
  const int64_t batch = plan.steps.front().batch();
  std::vector<std::vector<int>> groups;
  if (any_ragged) {
    for (int b = 0; b < batch; ++b) groups.push_back({b});
  } else {
    groups.emplace_back(batch);
    std::iota(groups[0].begin(), groups[0].end(), 0);
  }
  // The source's caches per group, in its own layout.
  std::vector<std::map<std::string, exec::Tensor>> past(groups.size());
  for (const StepSpec& whole : plan.steps) {
    SourceStep result;
    result.groups = groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      const StepSpec step = any_ragged ? whole.Alone(groups[g][0]) : whole;
      for (const ManifestCache& cache : relation_.caches) {
        const std::string& name = cache.source.input;
        exec::Tensor& value = past[g][name];
        const int64_t length = cache.source.growing ? step.past[0] : capacity_;
        const exec::Shape shape = stimulus_.CacheShape(cache, step.batch(), length);
        if (value.empty()) {
          const int32_t type =
              source.program().graph().type(source.program().graph().Find(name)).elem_type;
          value = exec::Tensor::Zeros(type, shape);
        } else if (value.shape() != shape && cache.source.growing) {
          int axis = 0;
          while (value.shape()[axis] == shape[axis]) ++axis;
          value = Part(value.view(), axis, 0, length);
        }
      }
      auto feeds = SourceFeeds(step, past[g]);
      auto fetches =
          feeds.ok() ? source.Step(*feeds) : absl::StatusOr<exec::Fetches>(feeds.status());
      if (!fetches.ok()) {
        record.stopped = std::string(fetches.status().message());
        return record;
      }
      for (const ManifestCache& cache : relation_.caches) {
        past[g][cache.source.input] = fetches->at(cache.source.output).Clone();
      }
      result.outputs.push_back(*std::move(fetches));
    }
    record.steps.push_back(std::move(result));
  }
  return record;
}

CacheState Driver::Fresh(int64_t batch, double amplitude) const {
  CacheState state;
  uint64_t number = 0;
  for (const ManifestCache& cache : relation_.caches) {
    const int64_t length = capacity_;
    const exec::Shape source = stimulus_.CacheShape(cache, batch, length);
    exec::Shape selected = source;
    std::vector<Select> selects = cache.source.select;
    std::sort(selects.begin(), selects.end(),
              [](const Select& a, const Select& b) { return a.axis > b.axis; });
    for (const Select& s : selects) selected.erase(selected.begin() + s.axis);
    exec::Shape shape;
    for (char letter : cache.layout) {
      shape.push_back(selected[cache.source.layout.find(letter)]);
    }
    int32_t type = onnx::TensorProto::FLOAT;
    for (int32_t t : {onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16,
                      onnx::TensorProto::DOUBLE, onnx::TensorProto::INT8}) {
      if (ElementTypeName(t) == cache.dtype) type = t;
    }
    exec::Tensor tensor = exec::Tensor::Zeros(type, shape);
    ++number;
    for (int64_t i = 0; amplitude > 0 && i < tensor.size(); ++i) {
      StoreDouble(tensor.view(), i, amplitude * Noise(number, static_cast<uint64_t>(i), 7, 7));
    }
    state[cache.id] = std::move(tensor);
  }
  return state;
}

absl::StatusOr<exec::Feeds> Driver::ConvertedFeeds(const StepSpec& step,
                                                   const CacheState& state) const {
  exec::Feeds feeds;
  for (const ManifestInput& input : relation_.inputs) {
    const std::string& source = input.source.empty() ? input.name : input.source;
    if (input.as == "cache") {
      feeds[input.name] = state.at(input.id);
    } else if (input.as == "pad_to_capacity") {
      KV_ASSIGN_OR_RETURN(feeds[input.name], stimulus_.Feed(source, step, capacity_, input.fill));
    } else if (input.as == "control") {
      const int32_t type =
          input.dtype == "int32" ? onnx::TensorProto::INT32 : onnx::TensorProto::INT64;
      const bool per_sequence = !input.shape.empty() && input.shape[0] == "B";
      exec::Shape shape;
      for (const std::string& dim : input.shape) shape.push_back(dim == "B" ? step.batch() : 1);
      exec::Tensor tensor(type, shape);
      for (int64_t b = 0; b < (per_sequence ? step.batch() : 1); ++b) {
        StoreDouble(tensor.view(), b,
                    static_cast<double>(step.past[b] + (input.value == "T" ? step.new_tokens : 0)));
      }
      feeds[input.name] = std::move(tensor);
    } else {
      KV_ASSIGN_OR_RETURN(feeds[input.name], stimulus_.Feed(source, step));
    }
  }
  return feeds;
}

void Driver::Judge(const exec::View& want, const exec::View& got, const std::string& name,
                   const std::string& plan, const StepSpec& step, int sequence,
                   Outcome* outcome) const {
  const Comparison c = Compare(want, got, source_nodes_);
  const std::string where =
      fmt::format("{}, step {}{}", plan, step.number,
                  sequence >= 0 ? fmt::format(", sequence {}", sequence) : std::string());
  if (c.source_not_finite) {
    outcome->unjudged = fmt::format("the source gives NaN or Inf in {} at {}", name, where);
    return;
  }
  outcome->bitwise = outcome->bitwise && c.bitwise;
  OutputResult& worst = outcome->outputs[name];
  if (worst.name.empty() || c.max_abs > worst.max_abs) {
    worst = {name, c.max_abs, c.max_rel, c.max_ulp, c.bound, c.bitwise ? "" : where};
  }
  if (!c.difference || outcome->difference) return;
  const Difference& d = *c.difference;
  outcome->difference = Counterexample{plan,
                                       step.number,
                                       name,
                                       d.element,
                                       d.before,
                                       d.after,
                                       fmt::format("{} differs first at {}, element [{}]: {}", name,
                                                   where, fmt::join(d.element, ", "), d.text)};
}

void Driver::CompareOutputs(const StepSpec& step, const SourceStep& source,
                            const exec::Fetches& after, const std::string& plan,
                            Outcome* outcome) const {
  for (const ManifestOutput& output : relation_.outputs) {
    if (output.as == "cache") continue;
    const std::string& theirs = output.source.empty() ? output.name : output.source;
    for (size_t g = 0; g < source.groups.size(); ++g) {
      const std::vector<int>& group = source.groups[g];
      const exec::View want = source.outputs[g].at(theirs).view();
      const exec::Tensor got = SequenceOf(after.at(output.name).view(), group, step.batch());
      if (step.pads.empty()) {
        const int sequence = source.groups.size() > 1 ? group[0] : -1;
        Judge(want, got.view(), output.name, plan, step, sequence, outcome);
        continue;
      }
      for (int b : group) {  // rows of real tokens only
        const int64_t first = std::clamp<int64_t>(step.pads[b] - step.past[b], 0, step.new_tokens);
        if (first == step.new_tokens) continue;
        if (got.shape() != want.shape) {
          Judge(want, got.view(), output.name, plan, step, b, outcome);
          continue;
        }
        if (want.shape.size() < 2 || want.shape[1] != step.new_tokens) continue;
        const exec::Tensor w = Part(want, 0, b, b + 1), a = Part(got.view(), 0, b, b + 1);
        Judge(Part(w.view(), 1, first, step.new_tokens).view(),
              Part(a.view(), 1, first, step.new_tokens).view(), output.name, plan, step, b,
              outcome);
      }
    }
  }
}

// The written rows are the source's; every other row holds the very bytes that were fed. Empty if
// so, else what is wrong with the rows that should be untouched.
std::string Driver::CheckCaches(const StepSpec& step, const SourceStep& source,
                                const CacheState& before, const exec::Fetches& after,
                                const std::string& plan, Outcome* outcome) const {
  for (const ManifestCache& cache : relation_.caches) {
    const exec::View fed = before.at(cache.id).view();
    const exec::View now = after.at(cache.output).view();
    if (fed.type != now.type || fed.shape != now.shape) {
      return fmt::format("cache {} changed its type or shape to {}", cache.id,
                         exec::ShapeString(now.shape));
    }
    const int axis = static_cast<int>(cache.axis), batch = AxisOf(cache.layout, 'B');
    for (size_t g = 0; g < source.groups.size(); ++g) {
      const exec::Tensor theirs =
          InTargetOrder(source.outputs[g].at(cache.source.output).view(), cache);
      const int64_t longest = *std::max_element(step.past.begin(), step.past.end());
      if (theirs.shape()[batch] != static_cast<int64_t>(source.groups[g].size()) ||
          theirs.shape()[axis] <
              (source.groups[g].size() == 1 ? step.past[source.groups[g][0]] : longest) +
                  step.new_tokens) {
        return fmt::format("cache {}: the source's has the shape {}", cache.id,
                           exec::ShapeString(theirs.shape()));
      }
      for (size_t k = 0; k < source.groups[g].size(); ++k) {
        const int b = source.groups[g][k];
        const int64_t begin = step.past[b], end = begin + step.new_tokens;
        const exec::Tensor mine = Part(now, batch, b, b + 1), old = Part(fed, batch, b, b + 1);
        const auto same = [&](int64_t from, int64_t to) {
          return SameBytes(Part(mine.view(), axis, from, to).view(),
                           Part(old.view(), axis, from, to).view());
        };
        if (!same(0, begin) || !same(end, now.shape[axis])) {
          return fmt::format("cache {}: rows outside [{}, {}) changed in sequence {}", cache.id,
                             begin, end, b);
        }
        int64_t first = begin;
        if (!step.pads.empty()) first = std::clamp(step.pads[b], begin, end);
        if (first == end) continue;
        const exec::Tensor want =
            Part(theirs.view(), batch, static_cast<int64_t>(k), static_cast<int64_t>(k) + 1);
        Judge(Part(want.view(), axis, first, end).view(),
              Part(mine.view(), axis, first, end).view(), cache.output, plan, step, b, outcome);
      }
    }
  }
  return {};
}

Outcome Driver::RunConverted(Runner& converted, const Record& record, CacheState* state,
                             std::vector<exec::Fetches>* trace) const {
  Outcome outcome;
  for (size_t k = 0; k < record.steps.size(); ++k) {
    const StepSpec& step = record.plan->steps[k];
    const auto feeds = ConvertedFeeds(step, *state);
    auto fetches =
        feeds.ok() ? converted.Step(*feeds) : absl::StatusOr<exec::Fetches>(feeds.status());
    if (!fetches.ok()) {
      outcome.unsupported = absl::IsUnimplemented(fetches.status());
      outcome.failed = fmt::format("step {}: {}", k, std::string(fetches.status().message()));
      return outcome;
    }
    const std::string touched =
        CheckCaches(step, record.steps[k], *state, *fetches, record.plan->name, &outcome);
    if (!touched.empty() && !outcome.difference) {
      outcome.difference =
          Counterexample{record.plan->name,
                         static_cast<int>(k),
                         "caches",
                         {},
                         0,
                         0,
                         fmt::format("{}, step {}: {}", record.plan->name, k, touched)};
    }
    CompareOutputs(step, record.steps[k], *fetches, record.plan->name, &outcome);
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
