#include "exec/compile/pitched_caches.h"

#include <algorithm>
#include <vector>

#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

class ApartAnalysis {
 public:
  ApartAnalysis(const Graph& graph, absl::Span<const OpDef* const> defs, Plan& plan)
      : graph_(graph), defs_(defs), plan_(plan), timing_(graph.num_nodes(), Timing::kLate) {
    for (const StepPlan& step : plan.steps) timing_[step.node] = step.timing;
  }

  void Decide(PairPlan& pair) {
    std::string problem = Problem(pair);
    if (!problem.empty()) {
      pair.members.clear();
      pair.decision.reason += fmt::format(" where heads need no room between them: {}", problem);
      return;
    }
    pair.apart = true;
    plan_.apart[pair.past] = true;
    for (const ValueId v : pair.members) plan_.apart[v] = true;
  }

 private:
  std::string Problem(PairPlan& pair) {
    const ValuePlan& present = plan_.values[pair.present];
    if (timing_[pair.grower] != Timing::kPlanned || present.home != Home::kNext ||
        graph_.outputs(pair.grower)[0] != pair.present) {
      return "the present is a view, or made late";
    }
    std::string problem = ProblemOfReaders(pair.past, pair, false);
    pair.members = {pair.present};
    for (size_t k = 0; problem.empty() && k < pair.members.size(); ++k) {
      problem = ProblemOfReaders(pair.members[k], pair, true);
    }
    return problem;
  }

  // Returns an empty string if every reader of v accepts heads with room between them, else the
  // reason. Adds views of v to the members.
  std::string ProblemOfReaders(ValueId v, PairPlan& pair, bool views) {
    for (const Use& use : graph_.uses(v)) {
      if (use.kind == Use::Kind::kGraphOutput) {
        if (v == pair.present) continue;
        return fmt::format("\"{}\" is an output too", graph_.name(v));
      }
      const OpDef* def = use.kind == Use::Kind::kCapture ? nullptr : defs_[use.node];
      if (def != nullptr && use.index < 32 && (def->pitched_inputs >> use.index & 1) != 0) continue;
      if (views && def != nullptr && IsPlainView(use)) {
        const ValueId out = graph_.outputs(use.node)[0];
        if (out != kNoValue) pair.members.push_back(out);
        continue;
      }
      return fmt::format("{} \"{}\" reads it as one piece", graph_.node(use.node).op_type(),
                         graph_.NodeName(use.node));
    }
    return "";
  }

  bool IsPlainView(const Use& use) const {
    if (use.index != 0 || timing_[use.node] != Timing::kPlanned) return false;
    return graph_.Is(use.node, "Identity") || graph_.Is(use.node, "Reshape") ||
           graph_.Is(use.node, "Squeeze") || graph_.Is(use.node, "Unsqueeze");
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  Plan& plan_;
  std::vector<Timing> timing_;  // by node
};

}  // namespace

void FindPitchedCaches(const Graph& graph, absl::Span<const OpDef* const> defs, Plan* plan) {
  plan->apart.assign(graph.num_values(), false);
  ApartAnalysis analysis(graph, defs, *plan);
  for (PairPlan& pair : plan->pairs) {
    if (pair.grower != kNoNode) analysis.Decide(pair);
  }
}

}  // namespace kvlift::exec
