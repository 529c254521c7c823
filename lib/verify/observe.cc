#include "verify/observe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/types.h"
#include "verify/mutant_guards.h"
#include "verify/mutant_sites.h"
#include "verify/rows.h"

namespace kvlift {
namespace {

bool EqualAlong(const exec::View& view, size_t axis) {
  const int k = static_cast<int>(axis);
  const exec::Tensor first = Part(view, k, 0, 1);
  for (int64_t i = 1; i < view.shape[axis]; ++i) {
    if (!SameBytes(first.view(), Part(view, k, i, i + 1).view())) return false;
  }
  return true;
}

// Far below what a bias adds to scores.
constexpr double kHides = -1000;

bool OnlyHides(const exec::View& view) {
  if (!IsFloatType(view.type)) return false;
  for (int64_t i = 0; i < view.size(); ++i) {
    const double v = exec::ElementAsDouble(view, i);
    if (v != 0 && !(v < kHides)) return false;
  }
  return true;
}

std::set<MaskFact> FactsOf(const exec::View& mask) {
  std::set<MaskFact> facts;
  const size_t rank = mask.shape.size();
  if (mask.size() == 0) return {MaskFact::kRowsEqual, MaskFact::kSequencesEqual};
  if (rank < 2 || EqualAlong(mask, rank - 2)) facts.insert(MaskFact::kRowsEqual);
  if (rank < 4 || EqualAlong(mask, 0)) facts.insert(MaskFact::kSequencesEqual);
  if (OnlyHides(mask)) facts.insert(MaskFact::kOnlyHides);
  return facts;
}

class Observation {
 public:
  Observation(const Driver& driver, Runner& converted) : driver_(driver), converted_(converted) {
    const Graph& graph = converted.program().graph();
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (!graph.Is(n, "Attention")) continue;
      for (const int k : {kQueryOperand, kMaskOperand}) {
        const auto inputs = graph.inputs(n);
        if (k >= static_cast<int>(inputs.size()) || inputs[k] == kNoValue) continue;
        Want(graph, inputs[k], k == kMaskOperand);
      }
    }
    if (const auto site = LastMask(graph)) {
      Want(graph, graph.inputs(site->node)[site->mask], true);
    }
  }

  std::map<std::string, SeenValue> Run(const std::vector<Record>& records) {
    const Graph& graph = converted_.program().graph();
    converted_.session().set_observer([&](NodeId n, absl::Span<const exec::View> outputs) {
      for (size_t k = 0; k < outputs.size() && k < graph.outputs(n).size(); ++k) {
        const ValueId v = graph.outputs(n)[k];
        if (v != kNoValue) See(graph.name(v), outputs[k]);
      }
    });
    for (const Record& record : records) {
      CacheState state = driver_.Fresh(converted_, *record.plan);
      for (size_t k = 0; k < record.steps.size(); ++k) {
        const auto feeds =
            driver_.ConvertedFeeds(record.plan->steps[k], record.plan->capacity, state);
        if (!feeds.ok()) break;
        for (const auto& [name, value] : *feeds) See(name, value.view());
        // Masks depend on lengths and on what the host says, not on what caches hold.
        if (!converted_.Step(*feeds).ok()) break;
      }
    }
    converted_.session().set_observer(nullptr);
    return std::move(seen_);
  }

 private:
  void Want(const Graph& graph, ValueId v, bool mask) {
    const std::string& name = graph.name(v);
    wanted_.insert(name);
    if (mask) masks_.insert(name);
    const onnx::TensorProto* constant = graph.constant(v);
    if (constant == nullptr) return;
    SeenValue& value = seen_[name];
    value.type = constant->data_type();
    value.shape.assign(constant->dims().begin(), constant->dims().end());
  }

  void See(const std::string& name, const exec::View& view) {
    if (wanted_.count(name) == 0 || view.absent()) return;
    const bool first = seen_.count(name) == 0;
    SeenValue& value = seen_[name];
    value.type = view.type;
    value.shape = view.shape;
    if (masks_.count(name) == 0) return;
    const std::set<MaskFact> facts = FactsOf(view);
    if (first) {
      value.facts = facts;
      return;
    }
    for (auto it = value.facts.begin(); it != value.facts.end();) {
      it = facts.count(*it) > 0 ? std::next(it) : value.facts.erase(it);
    }
  }

  const Driver& driver_;
  Runner& converted_;
  std::set<std::string> wanted_, masks_;
  std::map<std::string, SeenValue> seen_;
};

}  // namespace

std::map<std::string, SeenValue> ObserveOperands(const Driver& driver, Runner& converted,
                                                 const std::vector<Record>& records) {
  return Observation(driver, converted).Run(records);
}

}  // namespace kvlift
