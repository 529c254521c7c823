#include "verify/steps/source_probe.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift {
namespace {

constexpr int64_t kMostProbes = 256;

// The factor of rows in a probe that tests whether they are read. It is not 1 or -1, so that the
// product of values and scales, which may both be caches, changes too.
constexpr double kOther = -0.5;

constexpr int64_t kMostSequences = int64_t{1} << 16;

class Prober {
 public:
  Prober(Runner& source, const Graph& after, const Manifest& relation, int64_t capacity,
         double garbage, Stimulus* stimulus, Driver* driver)
      : source_(source),
        after_(after),
        relation_(relation),
        capacity_(capacity),
        garbage_(garbage),
        stimulus_(*stimulus),
        driver_(*driver) {
    for (const ManifestCache& cache : relation_.caches) {
      growing_ = growing_ || cache.source.growing;
      fixed_ = fixed_ || !cache.source.growing;
    }
  }

  absl::StatusOr<SourceFacts> Run() {
    ReadSizes();
    KV_RETURN_IF_ERROR(SettleReadings());
    const int64_t one = stimulus_.fixed_tokens().value_or(1);
    if (!stimulus_.fixed_tokens()) {
      facts_.prefill = Runs(0, std::min<int64_t>(3, capacity_));
      facts_.chunks = capacity_ >= 5 && Runs(3, 2);
      facts_.causal = !facts_.prefill || Causal();
    }
    if (fixed_) ProbeUnusedSlots(one);
    if (growing_) FindWindows();
    return facts_;
  }

 private:
  enum class Use { kUnknown, kNone, kRead };

  Plan PlanOf(int64_t past, int64_t tokens) const {
    Plan plan;
    plan.name = "probe";
    plan.capacity = capacity_;
    plan.noise = true;
    plan.steps.push_back(EvenStep(batch_, past, tokens));
    return plan;
  }

  // Runs steps of one and of several tokens, since a source may write fewer rows than tokens.
  void ProbeUnusedSlots(int64_t one) {
    std::vector<Plan> plans = {PlanOf(PastFor(one), one), PlanOf(0, one)};
    if (facts_.prefill && !stimulus_.fixed_tokens()) {
      plans.push_back(PlanOf(0, std::min<int64_t>(3, capacity_)));
    }
    if (facts_.chunks && !stimulus_.fixed_tokens()) plans.push_back(PlanOf(3, 2));
    for (const Plan& plan : plans) {
      facts_.reads_unused = facts_.reads_unused || Unused(plan, kOther) == Use::kRead;
    }
    facts_.reads_garbage = Unused(plans.front(), garbage_) == Use::kRead;
  }

  // Returns the past length of a probe: 4, which is no other size of it, or S if S is fixed; less
  // if the capacity is small.
  int64_t PastFor(int64_t tokens) const {
    const int64_t past = stimulus_.fixed_tokens() ? *stimulus_.fixed_tokens() : 4;
    return std::clamp<int64_t>(capacity_ - tokens - 1, 0, past);
  }

  bool Runs(int64_t past, int64_t tokens, std::string* why = nullptr) {
    const Plan plan = PlanOf(past, tokens);
    const Record record = driver_.RunSource(source_, plan);
    if (why != nullptr) *why = record.stopped;
    return record.steps.size() == 1;
  }

  // Takes the sizes of cache axes that the source does not declare from the converted model.
  void ReadSizes() {
    for (const ManifestCache& cache : relation_.caches) {
      const auto& mine = after_.type(after_.Find(cache.input)).shape;
      auto& axes = stimulus_.interface().caches.at(cache.source.input);
      for (char letter : cache.source.layout) {
        const int k = SourceAxisOf(cache.source, letter);
        if (k < 0 || k >= static_cast<int>(axes.size()) || axes[k].settled) continue;
        if (!mine || axes[k].extent != Extent::kStatic) continue;
        const Dim& dim = (*mine)[AxisOf(cache.layout, letter)];
        if (!dim.value) continue;
        axes[k].value = *dim.value;
        axes[k].settled = true;
      }
    }
  }

  // Chooses the sizes that neither model declares: the smallest with which the source runs without
  // and with a past. False if none up to 512 does.
  bool SettleSizes() {
    std::vector<Axis*> open;
    for (auto& entry : stimulus_.interface().caches) {
      for (Axis& axis : entry.second) {
        if (!axis.settled) open.push_back(&axis);
      }
    }
    if (open.empty()) return true;
    const int64_t tokens = stimulus_.fixed_tokens().value_or(1);
    constexpr int64_t kLargest = 512;
    for (int64_t size = 1; size <= kLargest; ++size) {
      for (Axis* axis : open) axis->value = size;
      if (Runs(0, tokens) && Runs(PastFor(tokens), tokens)) return true;
    }
    for (Axis* axis : open) axis->value = 1;
    return false;
  }

  struct Score {
    bool appends = false;
    bool finite = false;
    bool clean = false;  // outputs depend on the past and on no slot behind it
    int64_t visible = 0;
    bool operator<(const Score& o) const {
      return std::tie(appends, finite, clean, visible) <
             std::tie(o.appends, o.finite, o.clean, o.visible);
    }
  };

  std::vector<SourceInput*> OpenInputs() {
    std::vector<SourceInput*> open;
    for (auto& entry : stimulus_.interface().inputs) {
      if (entry.second.readings.size() > 1) open.push_back(&entry.second);
    }
    return open;
  }

  // Tries readings until one is right. Steps of several tokens come first, as they distinguish more
  // readings.
  absl::Status SettleReadings() {
    const std::optional<int64_t> fixed = stimulus_.fixed_tokens();
    const std::vector<int64_t> lengths =
        fixed ? std::vector<int64_t>{*fixed} : std::vector<int64_t>{2, 1};
    const std::optional<int64_t> batch = stimulus_.fixed_batch();
    if (batch && *batch > kMostSequences) {
      return absl::FailedPreconditionError(fmt::format(
          "its inputs declare {} sequences, and steps have {} at most", *batch, kMostSequences));
    }
    const std::vector<int64_t> batches =
        batch ? std::vector<int64_t>{*batch} : std::vector<int64_t>{3, 1};
    std::string why;
    for (int64_t b : batches) {
      batch_ = b;
      if (!SettleSizes()) {
        why = "the sizes of its caches are not known";
        continue;
      }
      for (int64_t tokens : lengths) {
        if (!Settle(tokens, &why)) continue;
        TellFreeLengthsApart(tokens);
        if (b != batches.front()) facts_.batch = b;
        return absl::OkStatus();
      }
    }
    return absl::FailedPreconditionError("no reading of the source's inputs makes it append: " +
                                         why);
  }

  // Gives each free length a number of its own, where the source runs with it.
  void TellFreeLengthsApart(int64_t tokens) {
    constexpr size_t kMostLengths = 16;
    std::map<std::string, std::vector<Axis*>> free;
    for (auto& [name, input] : stimulus_.interface().inputs) {
      for (Axis& axis : input.readings[input.chosen].axes) {
        if (!axis.free_length.empty()) free[axis.free_length].push_back(&axis);
      }
    }
    int64_t others = 0;
    for (const auto& [name, axes] : free) {
      if (static_cast<size_t>(others) == kMostLengths) break;
      const int64_t shared = axes.front()->value;
      for (Axis* axis : axes) axis->value = shared + others;
      if (others == 0 || Runs(PastFor(tokens), tokens)) {
        ++others;
        continue;
      }
      for (Axis* axis : axes) axis->value = shared;
    }
  }

  bool Settle(int64_t tokens, std::string* why) {
    const std::vector<SourceInput*> open = OpenInputs();
    std::vector<size_t> best(open.size(), 0), at(open.size(), 0);
    const bool lengths = std::any_of(open.begin(), open.end(),
                                     [](const SourceInput* input) { return input->compared; });
    Score best_score;
    for (int64_t runs = 0; runs < kMostProbes; ++runs) {
      for (size_t k = 0; k < open.size(); ++k) open[k]->chosen = at[k];
      const Score score = ScoreOf(tokens, why);
      if (best_score < score) {
        best_score = score;
        best = at;
      }
      // Where all caches grow, there are no slots that could rank readings any further.
      if (best_score.finite && (!fixed_ || (best_score.clean && !lengths))) break;
      size_t k = open.size();
      while (k > 0 && ++at[k - 1] == open[k - 1]->readings.size()) at[--k] = 0;
      if (k == 0) break;
    }
    for (size_t k = 0; k < open.size(); ++k) open[k]->chosen = best[k];
    return best_score.appends;
  }

  Score ScoreOf(int64_t tokens, std::string* why) {
    Score score;
    const int64_t past = PastFor(tokens);
    std::string stopped;
    score.appends = Runs(past, tokens, &stopped);
    if (!score.appends) {
      if (why->empty()) *why = stopped;
      return score;
    }
    const Plan plan = PlanOf(past, tokens);
    const auto plain = Outputs(plan, 0, 0, 1);
    score.finite = plain && SameOutputs(*plain, *plain);
    if (!fixed_) return score;
    score.clean = Unused(plan, kOther) == Use::kNone && DependsOnPast(plan);
    for (const auto& entry : stimulus_.interface().inputs) {
      if (!compared(entry.first)) continue;
      const Meaning meaning = entry.second.reading().meaning;
      score.visible += meaning == Meaning::kTotal ? 2 : meaning == Meaning::kLast ? 1 : 0;
    }
    return score;
  }

  bool compared(const std::string& input) const {
    const auto it = stimulus_.interface().inputs.find(input);
    return it != stimulus_.interface().inputs.end() && it->second.compared;
  }

  // Whether the first tokens of a prompt give the same results without the last one, and the first
  // token by itself.
  bool Causal() {
    const int64_t length = std::min<int64_t>(7, capacity_);
    if (length < 2) return true;
    const Record whole = driver_.RunSource(source_, PlanOf(0, length));
    return BeginsWith(whole, length, length - 1) && BeginsWith(whole, length, 1);
  }

  bool BeginsWith(const Record& a, int64_t length, int64_t first) {
    const Record b = driver_.RunSource(source_, PlanOf(0, first));
    if (a.steps.empty() || b.steps.empty()) return true;
    const auto same = [&](const std::string& name, int axis) {
      const exec::View& x = a.steps[0].outputs[0].at(name).view();
      const exec::View& y = b.steps[0].outputs[0].at(name).view();
      const auto k = static_cast<size_t>(axis);
      if (x.shape.size() <= k || y.shape.size() <= k || x.shape[k] < first || y.shape[k] < first) {
        return true;
      }
      const Comparison c = Compare(Part(y, axis, 0, first).view(), Part(x, axis, 0, first).view(),
                                   source_.program().graph().num_nodes());
      return !c.difference;
    };
    for (const ManifestCache& cache : relation_.caches) {
      if (!same(cache.source.output, SourceAxisOf(cache.source, 'S'))) return false;
    }
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const std::string& name = NameInSource(output);
      const exec::View& x = a.steps[0].outputs[0].at(name).view();
      if (x.shape.size() < 2 || x.shape[1] != length) continue;
      if (!same(name, 1)) return false;
    }
    return true;
  }

  // Returns the outputs of the plan's first step with rows [from, to) of all caches multiplied by
  // `factor` (types of 8 bits and less are inverted instead). nullopt if the step does not run.
  std::optional<exec::Fetches> Outputs(const Plan& plan, int64_t from, int64_t to, double factor) {
    const StepSpec& step = plan.steps[0];
    auto feeds = driver_.SourceFeeds(step, plan.capacity, {});
    if (!feeds.ok()) return std::nullopt;
    for (const ManifestCache& cache : relation_.caches) {
      exec::Tensor value = driver_.FirstPast(source_, plan, cache, step);
      const int axis = SourceAxisOf(cache.source, 'S');
      const int64_t end = std::min(to, value.shape()[axis]);
      if (from < end) {
        exec::Tensor part = Part(value.view(), axis, from, end);
        for (int64_t i = 0; i < part.size(); ++i) {
          const double v = exec::ElementAsDouble(part.view(), i);
          const bool tiny = ElementBits(part.type()) <= 8;
          const double other = part.type() == onnx::TensorProto::UINT8 ? 255 - v : -v;
          StoreDouble(part.view(), i, tiny ? other : v * factor);
        }
        Place(value.view(), axis, from, part.view());
      }
      (*feeds)[cache.source.input] = std::move(value);
    }
    auto fetches = driver_.StepSource(source_, step, *std::move(feeds));
    if (!fetches.ok()) return std::nullopt;
    return *std::move(fetches);
  }

  bool SameOutputs(const exec::Fetches& a, const exec::Fetches& b) const {
    for (const ManifestOutput& output : relation_.outputs) {
      if (IsCache(output)) continue;
      const std::string& name = NameInSource(output);
      const Comparison c = Compare(a.at(name).view(), b.at(name).view(), 1);
      if (c.difference || c.source_not_finite || !c.judged) return false;
    }
    return true;
  }

  // Returns whether multiplying the slots behind the past changes an output or a new row.
  Use Unused(const Plan& plan, double factor) {
    const StepSpec& step = plan.steps[0];
    const auto plain = Outputs(plan, 0, 0, 1);
    const auto moved = Outputs(plan, step.past[0], plan.capacity, factor);
    if (!plain || !moved) return Use::kUnknown;
    return SameOutputs(*plain, *moved) && SameNewRows(step, *plain, *moved) ? Use::kNone
                                                                            : Use::kRead;
  }

  // Whether the rows that the step wrote are the same in a and b.
  bool SameNewRows(const StepSpec& step, const exec::Fetches& a, const exec::Fetches& b) const {
    for (const ManifestCache& cache : relation_.caches) {
      if (cache.source.growing) continue;
      const int axis = SourceAxisOf(cache.source, 'S');
      const int64_t from = step.past[0], to = from + step.new_tokens;
      const exec::Tensor x = Part(a.at(cache.source.output).view(), axis, from, to);
      if (!SameNumbers(x.view(), Part(b.at(cache.source.output).view(), axis, from, to).view())) {
        return false;
      }
    }
    return true;
  }

  bool DependsOnPast(const Plan& plan) {
    if (plan.steps[0].past[0] == 0) return true;
    const auto plain = Outputs(plan, 0, 0, 1);
    const auto moved = Outputs(plan, 0, plan.steps[0].past[0], kOther);
    return plain && moved && !SameOutputs(*plain, *moved);
  }

  // Finds the windows of caches by steps whose past is longer and longer.
  void FindWindows() {
    for (const ManifestCache& cache : relation_.caches) {
      if (!cache.source.sliding) continue;
      facts_.kept = std::max(facts_.kept.value_or(0), cache.source.sliding->slots());
    }
    const int64_t tokens = stimulus_.fixed_tokens().value_or(1);
    // Short pasts come first: tables of positions may end before the long ones.
    for (int64_t past : {8, 24, 64, 1024, 8192}) {
      bool open = false;
      for (const ManifestCache& cache : relation_.caches) {
        open = open || ((cache.source.kind == UpdateKind::kWindow ||
                         cache.source.kind == UpdateKind::kFused) &&
                        driver_.kept_rows().count(cache.source.input) == 0);
      }
      if (!open) return;
      Plan plan = PlanOf(past / tokens * tokens, tokens);
      const Record record = driver_.RunSource(source_, plan);
      if (record.steps.empty()) return;
      for (const ManifestCache& cache : relation_.caches) {
        const exec::View present = record.steps[0].outputs[0].at(cache.source.output).view();
        const int64_t rows = present.shape[SourceAxisOf(cache.source, 'S')];
        if (!cache.source.growing || rows >= plan.steps[0].past[0] + tokens) continue;
        driver_.KeepAtMost(cache.source.input, rows);
        facts_.kept = std::max(facts_.kept.value_or(0), rows);
      }
    }
  }

  Runner& source_;
  const Graph& after_;
  const Manifest& relation_;
  int64_t capacity_;
  double garbage_;
  Stimulus& stimulus_;
  Driver& driver_;
  bool growing_ = false, fixed_ = false;
  int64_t batch_ = 3;
  SourceFacts facts_;
};

}  // namespace

absl::StatusOr<SourceFacts> ProbeSource(Runner& source, const Graph& after,
                                        const Manifest& relation, int64_t capacity, double garbage,
                                        Stimulus* stimulus, Driver* driver) {
  return Prober(source, after, relation, capacity, garbage, stimulus, driver).Run();
}

}  // namespace kvlift
