// Compares a step's outputs other than caches: of all tokens, or of those that are no padding.
#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/types.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/steps/drive.h"

namespace kvlift {
namespace {

// The axes of an output that count the sequences and the new tokens of a step; -1 if no axis does.
struct OutputAxes {
  int sequences = -1, tokens = -1;
};

// Returns the axes of an output that is `whole` for a step of `batch` sequences, and `part` for
// `members` of them. An axis of sequences has one or several rows for each; `known` is the axis
// that earlier steps determined, -1 if they did not, and is set if this step determines it.
OutputAxes AxesOf(const exec::Shape& part, int64_t members, const exec::Shape& whole,
                  const StepSpec& step, int* known) {
  OutputAxes axes;
  const int64_t batch = step.batch();
  const auto rank = static_cast<int>(whole.size());
  std::vector<int> candidates;
  for (int k = 0; k < rank && part.size() == whole.size(); ++k) {
    const bool fits = members == batch ? whole[k] == batch
                                       : part[k] != whole[k] && whole[k] % batch == 0 &&
                                             part[k] == whole[k] / batch * members;
    if (fits) candidates.push_back(k);
  }
  if (candidates.size() == 1 && batch > 1) *known = candidates[0];
  const bool goes = std::find(candidates.begin(), candidates.end(), *known) != candidates.end();
  if (goes) {
    axes.sequences = *known;
  } else if (!candidates.empty()) {
    axes.sequences = candidates[0];
  } else if (rank > 0 && whole[0] % batch == 0 && part == whole) {
    axes.sequences = 0;
  }
  if (axes.sequences < 0) return axes;
  // Alone, a sequence without padding tokens has fewer tokens; otherwise the tokens are behind the
  // sequences, or in front of them.
  for (int k = 0; k < rank; ++k) {
    if (k == axes.sequences || whole[k] != step.new_tokens) continue;
    const bool told = part.size() == whole.size() && part[k] != whole[k];
    const bool beside = k == axes.sequences + 1 || (k == 0 && axes.sequences == 1);
    if (told || (beside && axes.tokens < 0)) axes.tokens = k;
  }
  // An axis of keys is shorter for a sequence alone, too, and no cut of tokens makes it equal.
  for (int k = 0; k < rank && part.size() == whole.size(); ++k) {
    const bool other = k != axes.sequences && k != axes.tokens;
    if (other && part[k] != whole[k]) axes.tokens = -1;
  }
  return axes;
}

// Returns the rows of a group of one sequence. A group of the whole batch, or a tensor without an
// axis of sequences, gives a copy.
exec::Tensor SequencesOf(const exec::View& whole, int axis, const std::vector<int>& group,
                         int64_t batch) {
  if (axis < 0 || static_cast<int64_t>(group.size()) == batch) {
    exec::Tensor copy(whole.type, whole.shape);
    std::copy_n(whole.data, std::max<int64_t>(0, whole.bytes()), copy.data());
    return copy;
  }
  const int64_t rows = whole.shape[axis] / batch;
  return Part(whole, axis, group[0] * rows, (group[0] + 1) * rows);
}

Bounded SequencesOf(const Bounded& whole, int axis, const std::vector<int>& group, int64_t batch) {
  Bounded part{SequencesOf(whole.value.view(), axis, group, batch), {}};
  if (!whole.bound.empty()) part.bound = SequencesOf(whole.bound.view(), axis, group, batch);
  return part;
}

// Returns the box of one sequence's rows; a tensor without an axis of sequences gives all.
std::vector<Range> RowsOf(const exec::Shape& shape, int axis, int sequence, int64_t batch) {
  if (axis < 0 || batch == 1) return {};
  const int64_t rows = shape[axis] / batch;
  return {{axis, sequence * rows, (sequence + 1) * rows}};
}

}  // namespace

// Returns an output of the source, and no cache, that holds NaN in this step; empty if none does.
std::string Driver::OutputWithNan(const SourceStep& source) const {
  for (const ManifestOutput& output : relation_.outputs) {
    if (IsCache(output)) continue;
    for (const exec::Fetches& outputs : source.outputs) {
      const auto found = outputs.find(NameInSource(output));
      if (found == outputs.end() || !IsFloatType(found->second.type())) continue;
      const exec::View& view = found->second.view();
      for (int64_t i = 0; i < view.size(); ++i) {
        if (std::isnan(exec::ElementAsDouble(view, i))) return NameInSource(output);
      }
    }
  }
  return {};
}

void Driver::Judge(const Given& given, const Bounded& want, const Bounded& got,
                   const std::string& name, const Spot& spot, Outcome* outcome) const {
  const exec::Tensor slack = SumOfBounds(want, got);
  if (watcher_ != nullptr) {
    watcher_->Compared(name, spot.box, want.value.view(),
                       BoundsOf(want.value.view(), source_nodes_, slack.view()), slack.view());
  }
  const Comparison c = compare_(want.value.view(), got.value.view(), source_nodes_, slack.view());
  const std::string where = Where(given.plan, given.step, spot.sequence);
  if (c.source_not_finite) {
    outcome->unjudged = fmt::format("the source gives NaN in {} at {}", name, where);
    return;
  }
  if (!c.judged) return;
  outcome->bitwise = outcome->bitwise && c.bitwise;
  OutputResult result{name, c.max_abs, c.max_rel, c.max_ulp, c.bound, c.bitwise ? "" : where};
  result.ratio = c.ratio;
  ++(c.bitwise ? result.bitwise : c.fixed ? result.by_fixed_bound : result.by_bound);
  outcome->outputs[name].Merge(result);
  if (!c.difference || outcome->difference) return;
  // An integer that is chosen by NaN, such as the token of the largest logit, says nothing.
  if (!IsFloatType(want.value.type())) {
    if (const std::string nan = OutputWithNan(given.source); !nan.empty()) {
      outcome->unjudged = fmt::format("the source gives NaN in {} at {}", nan, where);
      return;
    }
  }
  const std::vector<OracleRun>& runs = given.source.oracle;
  outcome->unbounded = given.oracle == nullptr ||
                       std::find(runs.begin(), runs.end(), nullptr) != runs.end() || runs.empty();
  if (IsDoubtful(given, name)) {
    outcome->undecided = RoundingMayDecide(fmt::format("{} at {}", name, where));
  }
  const Difference& d = *c.difference;
  outcome->difference = Counterexample{given.plan,
                                       given.step.number,
                                       name,
                                       d.element,
                                       d.before,
                                       d.after,
                                       fmt::format("{} differs first at {}, element [{}]: {}", name,
                                                   where, fmt::join(d.element, ", "), d.text),
                                       !given.step.hidden.empty() || !given.step.pads.empty()};
}

// Returns true if the oracle finds, in either model, that rounding errors may change a decision
// that the output depends on.
bool Driver::IsDoubtful(const Given& given, const std::string& output) {
  const auto doubts = [&](const OracleStep* run) {
    return run != nullptr && run->doubtful.count(output) > 0;
  };
  const std::vector<OracleRun>& theirs = given.source.oracle;
  return doubts(given.oracle) ||
         std::any_of(theirs.begin(), theirs.end(),
                     [&](const OracleRun& run) { return doubts(run.get()); });
}

Bounded Driver::Theirs(const Given& given, size_t group, const std::string& output) {
  const auto& oracle = given.source.oracle;
  const bool known = group < oracle.size() && oracle[group] != nullptr;
  return WithBound(given.source.outputs[group].at(output).view(),
                   known ? oracle[group]->BoundOf(output) : nullptr);
}

Bounded Driver::Mine(const Given& given, const std::string& output) {
  return WithBound(given.after.at(output).view(),
                   given.oracle != nullptr ? given.oracle->BoundOf(output) : nullptr);
}

bool Driver::PaddingMayDiffer() const {
  return std::any_of(relation_.preconditions.begin(), relation_.preconditions.end(),
                     [](const Precondition& p) { return p.code == "KV303"; });
}

std::pair<int64_t, int64_t> Driver::UnjudgedPads(const StepSpec& step, int sequence) const {
  if (!PaddingMayDiffer() || step.hidden.empty()) return {0, 0};
  const auto place = [&](int64_t key) {
    return std::clamp<int64_t>(key - step.past[sequence], 0, step.new_tokens);
  };
  return {place(step.hidden[sequence].first), place(step.hidden[sequence].second)};
}

// Compares the real tokens of one sequence in a step with padding tokens.
void Driver::CompareTokens(const Given& given, const Bounded& want, const Bounded& got,
                           const std::string& name, int axis, const Spot& spot,
                           Outcome* outcome) const {
  const StepSpec& step = given.step;
  const int sequence = spot.sequence;
  const int64_t left = step.pads.empty() ? 0 : step.pads[sequence] - step.past[sequence];
  const int64_t first = std::clamp<int64_t>(left, 0, step.new_tokens);
  const int64_t end = step.real_of(sequence);
  if (first >= end) return;
  // An output without an axis of tokens belongs to the last token, which may be padding.
  const exec::Shape& theirs = want.value.shape();
  if (axis < 0) {
    if (end == step.new_tokens && first == 0) Judge(given, want, got, name, spot, outcome);
    return;
  }
  if (static_cast<int>(theirs.size()) <= axis || theirs[axis] < end) {
    return Judge(given, want, got, name, spot, outcome);
  }
  const auto [pads, behind] = UnjudgedPads(step, sequence);
  const auto judge = [&](int64_t from, int64_t to) {
    if (from >= to) return;
    Spot tokens = spot;
    tokens.box.push_back({axis, from, to});
    Judge(given, Part(want, axis, from, to), Part(got, axis, from, to), name, tokens, outcome);
  };
  if (pads >= behind) return judge(first, end);
  judge(first, std::min(pads, end));
  judge(std::max(first, behind), end);
}

int Driver::SlotAxisOf(const std::string& output) const {
  for (const SlotOutput& held : slot_outputs_) {
    if (held.output == output) return held.axis;
  }
  return -1;
}

void Driver::CompareSlots(const Given& given, const Bounded& want, const Bounded& got,
                          const std::string& name, int axis, const Spot& spot,
                          Outcome* outcome) const {
  const exec::Shape& shape = want.value.shape();
  const int64_t tokens = given.step.past[spot.sequence] + given.step.real_of(spot.sequence);
  if (shape != got.value.shape() || tokens >= shape[axis]) {
    return Judge(given, want, got, name, spot, outcome);
  }
  Spot slots = spot;
  slots.box.push_back({axis, 0, tokens});
  Judge(given, Part(want, axis, 0, tokens), Part(got, axis, 0, tokens), name, slots, outcome);
}

void Driver::CompareOutputs(const Given& given, Outcome* outcome) const {
  const StepSpec& step = given.step;
  const SourceStep& source = given.source;
  for (const ManifestOutput& output : relation_.outputs) {
    if (IsCache(output)) continue;
    const std::string& theirs = NameInSource(output);
    const Bounded all = Mine(given, output.name);
    for (size_t g = 0; g < source.groups.size(); ++g) {
      const std::vector<int>& group = source.groups[g];
      const Bounded want = Theirs(given, g, theirs);
      const exec::Shape& whole = all.value.shape();
      const auto members = static_cast<int64_t>(group.size());
      int* const known = &given.sequence_axes->try_emplace(output.name, -1).first->second;
      const OutputAxes axes = AxesOf(want.value.shape(), members, whole, step, known);
      // An output that is as large for a group as for all sequences has no axis of sequences.
      const bool alone = source.groups.size() > 1;
      const bool shared = want.value.shape() == whole;
      const Bounded got = shared ? all : SequencesOf(all, axes.sequences, group, step.batch());
      const auto spot_of = [&](int b) {
        return Spot{b, shared && alone ? std::vector<Range>()
                                       : RowsOf(whole, axes.sequences, b, step.batch())};
      };
      const auto unjudged = [&](int b) {
        const auto [pads, behind] = UnjudgedPads(step, b);
        return pads < behind;
      };
      const int slots = given.padded ? SlotAxisOf(theirs) : -1;
      if (slots >= 0 && slots < static_cast<int>(whole.size())) {
        for (size_t k = 0; k < group.size(); ++k) {
          const std::vector<int> one = {static_cast<int>(k)};
          CompareSlots(given, SequencesOf(want, axes.sequences, one, members),
                       SequencesOf(got, axes.sequences, one, members), output.name, slots,
                       spot_of(group[k]), outcome);
        }
        continue;
      }
      const bool some = std::any_of(group.begin(), group.end(), unjudged);
      if (step.pads.empty() && step.real.empty() && !some) {
        Judge(given, want, got, output.name, alone ? spot_of(group[0]) : Spot(), outcome);
        continue;
      }
      for (size_t k = 0; k < group.size(); ++k) {
        const std::vector<int> one = {static_cast<int>(k)};
        CompareTokens(given, SequencesOf(want, axes.sequences, one, members),
                      SequencesOf(got, axes.sequences, one, members), output.name, axes.tokens,
                      spot_of(group[k]), outcome);
      }
    }
  }
}

}  // namespace kvlift
