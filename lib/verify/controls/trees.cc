#include "verify/controls/trees.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

constexpr int64_t kTokens = 6, kPast = 4;
constexpr int kTrees = 3;

// Returns the tokens on the path from a root to `token`.
std::vector<int64_t> BranchOf(const StepSpec& tree, int64_t token) {
  std::vector<int64_t> branch;
  for (int64_t at = token; at >= 0; at = tree.parents[at]) branch.push_back(at);
  std::reverse(branch.begin(), branch.end());
  return branch;
}

class Trees {
 public:
  Trees(const Driver& driver, Runner& source, Runner& converted, const Manifest& relation,
        const PlanLimits& limits, int source_nodes, uint64_t seed)
      : driver_(driver),
        source_(source),
        converted_(converted),
        relation_(relation),
        limits_(limits),
        source_nodes_(source_nodes),
        seed_(seed) {}

  SelfCheck Run() {
    if (limits_.tokens || limits_.tokens_with_past == 1) {
      return SkippedCheck("trees", "no step of several tokens behind a past");
    }
    if (!limits_.free_capacity && limits_.capacity < kPast + kTokens) {
      return SkippedCheck("trees", "the capacity is too small");
    }
    check_.result = {
        "trees", "bitwise", 0,
        fmt::format("{} random trees of {} tokens, each branch run alone by the source", kTrees,
                    kTokens)};
    for (int number = 0; number < kTrees && !Done(); ++number) OneTree(number);
    return std::move(check_);
  }

 private:
  bool Done() const {
    return check_.difference || !check_.failed.empty() || check_.result.status == "skipped";
  }

  void OneTree(int number) {
    Plan plan;
    plan.name = "trees";
    plan.capacity = std::max(limits_.capacity, kPast + kTokens);
    StepSpec tree = EvenStep(limits_.batch.value_or(2), kPast, kTokens);
    tree.number = number;
    std::vector<bool> leaf(kTokens, true);
    for (int64_t i = 0; i < kTokens; ++i) {
      // Token 2 is a child of token 0, so that no tree is a single branch.
      const double u =
          (Noise(seed_, static_cast<uint64_t>(number), static_cast<uint64_t>(i), 9) + 1) / 2;
      int64_t parent = static_cast<int64_t>(u * static_cast<double>(i + 1)) - 1;
      if (i == 2) parent = 0;
      tree.parents.push_back(static_cast<int>(std::min(parent, i - 1)));
      if (tree.parents.back() >= 0) leaf[tree.parents.back()] = false;
    }
    for (int64_t i = 0; i < kTokens; ++i) {
      tree.places.push_back(static_cast<int64_t>(BranchOf(tree, i).size()) - 1);
    }
    plan.steps = {tree};
    const CacheState state = driver_.Fresh(converted_, plan);
    const auto feeds = driver_.ConvertedFeeds(tree, plan.capacity, state);
    if (!feeds.ok()) {
      check_ = SkippedCheck("trees", std::string(feeds.status().message()));
      return;
    }
    const auto given = converted_.Step(*feeds);
    if (!given.ok()) {
      check_.failed = fmt::format("trees: {}", std::string(given.status().message()));
      check_.result.status = "failed";
      return;
    }
    ++check_.result.steps;
    for (int64_t i = 0; i < kTokens && !Done(); ++i) {
      if (leaf[i]) OneBranch(plan, tree, i, *given);
    }
  }

  void OneBranch(const Plan& tree_plan, const StepSpec& tree, int64_t last,
                 const exec::Fetches& given) {
    const std::vector<int64_t> branch = BranchOf(tree, last);
    Plan plan = tree_plan;
    StepSpec step = EvenStep(tree.batch(), kPast, static_cast<int64_t>(branch.size()));
    step.number = tree.number;
    step.chosen = branch;
    plan.steps = {step};
    const Record record = driver_.RunSource(source_, plan);
    if (record.steps.empty()) {
      check_ = SkippedCheck("trees", "the source does not run a branch: " + record.stopped);
      return;
    }
    const exec::Fetches& theirs = record.steps[0].outputs[0];
    for (size_t k = 0; k < branch.size() && !Done(); ++k) {
      const auto row = static_cast<int64_t>(k);
      for (const ManifestOutput& output : relation_.outputs) {
        if (IsCache(output)) continue;
        const std::string& name = NameInSource(output);
        const exec::View want = theirs.at(name).view(), got = given.at(output.name).view();
        if (want.shape.size() < 2 || want.shape[1] != step.new_tokens || got.shape.size() < 2 ||
            got.shape[1] != tree.new_tokens) {
          continue;
        }
        Judge(Part(want, 1, row, row + 1).view(), Part(got, 1, branch[k], branch[k] + 1).view(),
              output.name, tree.number, branch[k]);
      }
      for (const ManifestCache& cache : relation_.caches) {
        const int axis = static_cast<int>(cache.axis), along = SourceAxisOf(cache.source, 'S');
        const exec::View want = theirs.at(cache.source.output).view();
        const int64_t end = cache.source.growing ? want.shape[along] : kPast + step.new_tokens;
        const int64_t from = end - step.new_tokens + row;
        if (from < 0) continue;
        Judge(InTargetOrder(Part(want, along, from, from + 1).view(), cache).view(),
              Part(given.at(cache.output).view(), axis, kPast + branch[k], kPast + branch[k] + 1)
                  .view(),
              cache.output, tree.number, branch[k]);
      }
    }
  }

  void Judge(const exec::View& want, const exec::View& got, const std::string& name, int tree,
             int64_t token) {
    const Comparison c = Compare(want, got, source_nodes_);
    if (!c.judged || c.source_not_finite) return;
    if (!c.bitwise && check_.result.status == "bitwise") check_.result.status = "within bound";
    OutputResult result{name, c.max_abs, c.max_rel, c.max_ulp, c.bound, c.bitwise ? "" : "trees"};
    ++(c.bitwise ? result.bitwise : result.by_fixed_bound);
    check_.outputs[name].Merge(result);
    if (!c.difference || check_.difference) return;
    const Difference& d = *c.difference;
    check_.result.status = "different";
    check_.difference =
        Counterexample{"trees",
                       tree,
                       name,
                       d.element,
                       d.before,
                       d.after,
                       fmt::format("{} differs first at trees, tree {}, token {}, element [{}]: {}",
                                   name, tree, token, fmt::join(d.element, ", "), d.text)};
  }

  const Driver& driver_;
  Runner& source_;
  Runner& converted_;
  const Manifest& relation_;
  const PlanLimits& limits_;
  const int source_nodes_;
  const uint64_t seed_;
  SelfCheck check_;
};

}  // namespace

bool TakesTrees(const Manifest& relation) {
  return std::any_of(relation.inputs.begin(), relation.inputs.end(), [](const ManifestInput& i) {
    return IsControl(i, ControlValue::kLowerTriangle);
  });
}

SelfCheck CheckTrees(const Driver& driver, Runner& source, Runner& converted,
                     const Manifest& relation, const PlanLimits& limits, int source_nodes,
                     uint64_t seed) {
  return Trees(driver, source, converted, relation, limits, source_nodes, seed).Run();
}

}  // namespace kvlift
