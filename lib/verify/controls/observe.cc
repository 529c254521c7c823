#include "verify/controls/observe.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "ir/types.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/mutants/mutant_guards.h"
#include "verify/mutants/mutant_sites.h"

namespace kvlift {
namespace {

// Numbers below this hide a key. A bias on scores is far above it.
constexpr double kHides = -1000;

bool OnlyHides(const exec::View& view) {
  if (!IsFloatType(view.type)) return false;
  for (int64_t i = 0; i < view.size(); ++i) {
    const double v = exec::ElementAsDouble(view, i);
    if (v != 0 && !(v < kHides)) return false;
  }
  return true;
}

// Whether two rows of a mask, over the keys, are the same for a softmax: they hide the same keys,
// and the numbers that they add to the others differ by one constant, up to rounding.
bool SameRow(const exec::View& a, int64_t at, const exec::View& b, int64_t other, int64_t keys) {
  if (!IsFloatType(a.type)) {
    for (int64_t k = 0; k < keys; ++k) {
      if (exec::ElementAsDouble(a, at + k) != exec::ElementAsDouble(b, other + k)) return false;
    }
    return true;
  }
  const double eps = a.type == onnx::TensorProto::FLOAT ? 1e-6 : 1e-2;
  std::optional<double> shift;
  for (int64_t k = 0; k < keys; ++k) {
    const double x = exec::ElementAsDouble(a, at + k), y = exec::ElementAsDouble(b, other + k);
    const bool hides = x < kHides;
    if (hides != (y < kHides)) return false;
    if (hides) continue;
    if (!shift) shift = x - y;
    if (!(std::fabs(x - y - *shift) <= eps * (1 + std::fabs(x) + std::fabs(y)))) return false;
  }
  return true;
}

// Whether all rows along an axis are the same for a softmax over the last one.
bool SameAlong(const exec::View& view, size_t axis) {
  const int64_t keys = view.shape.back();
  int64_t inner = 1;
  for (size_t k = axis + 1; k + 1 < view.shape.size(); ++k) inner *= view.shape[k];
  const int64_t block = view.shape[axis] * inner, rows = view.size() / keys;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row / block * block + row % inner;
    if (!SameRow(view, first * keys, view, row * keys, keys)) return false;
  }
  return true;
}

std::set<SeenFact> FactsOf(const exec::View& mask) {
  std::set<SeenFact> facts;
  const size_t rank = mask.shape.size();
  if (mask.size() == 0) return {SeenFact::kRowsEqual, SeenFact::kSequencesEqual};
  if (rank < 2 || SameAlong(mask, rank - 2)) facts.insert(SeenFact::kRowsEqual);
  if (rank < 4 || SameAlong(mask, 0)) facts.insert(SeenFact::kSequencesEqual);
  if (OnlyHides(mask)) facts.insert(SeenFact::kOnlyHides);
  return facts;
}

bool AllAre(const exec::View& lengths, int64_t keys) {
  for (int64_t i = 0; i < lengths.size(); ++i) {
    if (exec::ElementAsDouble(lengths, i) != static_cast<double>(keys)) return false;
  }
  return true;
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
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      const auto inputs = graph.inputs(n);
      if (graph.Is(n, "Softmax")) Want(graph, inputs[0], false);
      if (!graph.Is(n, "Attention") || inputs.size() <= kNonpadOperand) continue;
      if (inputs[kNonpadOperand] == kNoValue) continue;
      lengths_[n] = {graph.name(inputs[kKeyOperand]), graph.name(inputs[kNonpadOperand])};
      Want(graph, inputs[kKeyOperand], false);
      Want(graph, inputs[kNonpadOperand], false);
      seen_[lengths_[n].second].facts.insert(SeenFact::kWhole);
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
      CheckLengths(n);
    });
    for (const Record& record : records) {
      CacheState state = driver_.Fresh(converted_, *record.plan);
      for (size_t k = 0; k < record.steps.size(); ++k) {
        const auto feeds =
            driver_.ConvertedFeeds(record.plan->steps[k], record.plan->capacity, state);
        if (!feeds.ok()) break;
        for (const auto& [name, value] : *feeds) See(name, value.view());
        // Masks depend on lengths and inputs, not on the contents of caches, which stay as they
        // are.
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

  // Drops the fact kWhole if a valid length of the attention that just ran is not its number of
  // keys.
  void CheckLengths(NodeId n) {
    const auto it = lengths_.find(n);
    if (it == lengths_.end()) return;
    const auto& [keys, lengths] = it->second;
    const auto value = values_.find(lengths);
    const exec::Shape& shape = seen_[keys].shape;
    if (value == values_.end() || shape.size() != 4 || !AllAre(value->second.view(), shape[2])) {
      seen_[lengths].facts.erase(SeenFact::kWhole);
    }
  }

  void See(const std::string& name, const exec::View& view) {
    if (wanted_.count(name) == 0 || view.absent()) return;
    SeenValue& value = seen_[name];
    value.type = view.type;
    value.shape = view.shape;
    if (view.shape.size() == 1) values_[name] = Part(view, 0, 0, view.shape[0]);
    if (masks_.count(name) == 0) return;
    const bool first = judged_.insert(name).second;
    const std::set<SeenFact> facts = FactsOf(view);
    if (first) {
      value.facts.insert(facts.begin(), facts.end());
      return;
    }
    for (auto it = value.facts.begin(); it != value.facts.end();) {
      it = facts.count(*it) > 0 ? std::next(it) : value.facts.erase(it);
    }
  }

  const Driver& driver_;
  Runner& converted_;
  std::set<std::string> wanted_, masks_, judged_;
  // The names of keys and valid lengths, by attention.
  std::map<NodeId, std::pair<std::string, std::string>> lengths_;
  std::map<std::string, exec::Tensor> values_;  // the last values of rank 1
  std::map<std::string, SeenValue> seen_;
};

}  // namespace

std::map<std::string, SeenValue> ObserveOperands(const Driver& driver, Runner& converted,
                                                 const std::vector<Record>& records) {
  return Observation(driver, converted).Run(records);
}

}  // namespace kvlift
