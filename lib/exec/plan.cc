// Assigns homes: views share the memory of their input, and late values share slots if their
// lifetimes are disjoint. Offsets in the arena are found when sizes are known (layout.h).
#include "exec/plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "onnxio/functions.h"

namespace kvlift::exec {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

class Planner {
 public:
  Planner(const Graph& graph, absl::Span<const OpDef* const> defs,
          absl::Span<const onnx::TensorProto* const> constants, absl::Span<const Timing> timing,
          const std::vector<NodeId>& order, std::vector<PairPlan> pairs)
      : graph_(graph), defs_(defs), constants_(constants), timing_(timing), order_(order) {
    plan_.pairs = std::move(pairs);
    plan_.values.resize(graph.num_values());
    last_use_.assign(graph.num_values(), -1);
  }

  Plan Make() {
    FindRoots();
    FindLastUses();
    PlaceEarly();
    PlaceOutputs();
    for (size_t i = 0; i < order_.size(); ++i) {
      if (!IsConstantNode(order_[i])) PlaceStep(static_cast<int>(i));
    }
    return std::move(plan_);
  }

 private:
  bool IsConstantNode(NodeId n) const {
    for (const ValueId v : graph_.outputs(n)) {
      if (v == kNoValue || constants_[v] == nullptr) return false;
    }
    return !graph_.outputs(n).empty();
  }

  bool IsView(NodeId n) const { return defs_[n] != nullptr && defs_[n]->view == ViewKind::kWhole; }

  ValueId Root(ValueId v) const { return plan_.values[v].root; }

  void FindRoots() {
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      ValuePlan& value = plan_.values[v];
      value.root = v;
      if (constants_[v] != nullptr) {
        value.home = Home::kConstant;
      } else if (graph_.is_graph_input(v)) {
        value.home = Home::kInput;
      }
    }
    for (size_t i = 0; i < graph_.graph_inputs().size(); ++i) {
      plan_.values[graph_.graph_inputs()[i]].index = static_cast<int>(i);
    }
    for (const NodeId n : order_) {
      if (!IsView(n) || graph_.outputs(n).empty() || IsConstantNode(n)) continue;
      const ValueId out = graph_.outputs(n)[0];
      if (out == kNoValue) continue;
      plan_.values[out] = {Home::kView, -1, Root(graph_.inputs(n)[0])};
    }
  }

  void FindLastUses() {
    for (size_t i = 0; i < order_.size(); ++i) {
      const NodeId n = order_[i];
      const int step = static_cast<int>(i);
      for (const auto& list : {graph_.inputs(n), graph_.outputs(n), graph_.captures(n)}) {
        for (const ValueId v : list) {
          if (v != kNoValue) last_use_[Root(v)] = std::max(last_use_[Root(v)], step);
        }
      }
    }
    for (const ValueId v : graph_.graph_outputs()) last_use_[Root(v)] = kForever;
  }

  // Early values keep their buffers until shapes change; nothing else may use these.
  void PlaceEarly() {
    for (const NodeId n : order_) {
      if (timing_[n] != Timing::kEarly || IsConstantNode(n)) continue;
      for (const ValueId v : graph_.outputs(n)) {
        if (v == kNoValue || plan_.values[v].home != Home::kNone) continue;
        plan_.values[v].home = Home::kEarly;
        plan_.values[v].index = plan_.num_early++;
      }
    }
  }

  // Places values that are kept after the step: a pair's present in the pair's buffers, other
  // outputs in memory for the caller. A value that is several outputs has one home; the other
  // outputs are copies.
  void PlaceOutputs() {
    const auto place = [&](ValueId v, Home home, int index) {
      ValuePlan& root = plan_.values[Root(v)];
      if (root.home == Home::kNone && graph_.producer(Root(v)) != kNoNode &&
          defs_[graph_.producer(Root(v))] != nullptr) {
        root.home = home;
        root.index = index;
      }
    };
    for (size_t p = 0; p < plan_.pairs.size(); ++p) {
      const PairPlan& pair = plan_.pairs[p];
      place(pair.present, pair.writer != kNoNode ? Home::kCache : Home::kNext, static_cast<int>(p));
      for (const ValueId v : pair.written) place(v, Home::kCache, static_cast<int>(p));
    }
    for (size_t i = 0; i < graph_.graph_outputs().size(); ++i) {
      place(graph_.graph_outputs()[i], Home::kOutput, static_cast<int>(i));
    }
  }

  void PlaceStep(int position) {
    const NodeId n = order_[position];
    StepPlan step;
    step.node = n;
    step.def = defs_[n];
    step.opset = OpsetOf(graph_.model(), graph_.node(n).domain());
    step.attributes = Attributes(graph_.node(n));
    step.timing = timing_[n];
    for (size_t p = 0; p < plan_.pairs.size(); ++p) {
      if (plan_.pairs[p].guard == n) step.retires_pair = static_cast<int>(p);
    }
    for (const ValueId v : graph_.outputs(n)) {
      if (v == kNoValue) continue;
      ValuePlan& value = plan_.values[v];
      if (value.home == Home::kCache) step.writes_pair = value.index;
      if (value.home != Home::kNone) continue;
      if (step.def == nullptr) {
        value.home = Home::kCall;
      } else if (step.timing == Timing::kPlanned) {
        value.home = Home::kArena;
      } else {
        value.home = Home::kSlot;
        value.index = TakeSlot(v);
      }
    }
    step.inplace = MayTakeOver(n, position);
    Release(n, position);
    plan_.steps.push_back(std::move(step));
  }

  // Returns true if the slot of the in-place input is free after this node, and no other operand
  // uses it.
  bool MayTakeOver(NodeId n, int position) const {
    const OpDef* def = defs_[n];
    if (def == nullptr || def->inplace_input < 0 || graph_.outputs(n)[0] == kNoValue ||
        def->inplace_input >= static_cast<int>(graph_.inputs(n).size())) {
      return false;
    }
    const ValueId in = graph_.inputs(n)[def->inplace_input];
    if (in == kNoValue || plan_.values[graph_.outputs(n)[0]].home != Home::kSlot) return false;
    const ValueId root = Root(in);
    if (plan_.values[root].home != Home::kSlot || last_use_[root] != position) return false;
    for (size_t i = 0; i < graph_.inputs(n).size(); ++i) {
      const ValueId other = graph_.inputs(n)[i];
      if (static_cast<int>(i) != def->inplace_input && other != kNoValue && Root(other) == root) {
        return false;
      }
    }
    return true;
  }

  // Slots are matched by declared type and shape where these are known, so that a large buffer is
  // not grown for every small value.
  std::string Signature(ValueId v) const {
    const TensorType& type = graph_.type(v);
    if (!type.shape.has_value()) return "";
    std::string text = fmt::format("{}:", type.elem_type);
    for (const Dim& dim : *type.shape) {
      text += dim.value.has_value() ? fmt::format("{},", *dim.value) : dim.param + ",";
    }
    return text;
  }

  int TakeSlot(ValueId v) {
    const std::string signature = Signature(v);
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
      if (signatures_[*it] != signature) continue;
      const int slot = *it;
      free_.erase(std::next(it).base());
      return slot;
    }
    if (signature.empty() && !free_.empty()) {
      const int slot = free_.back();
      free_.pop_back();
      return slot;
    }
    signatures_.push_back(signature);
    return plan_.num_slots++;
  }

  void Release(NodeId n, int position) {
    for (const auto& list : {graph_.inputs(n), graph_.outputs(n), graph_.captures(n)}) {
      for (const ValueId v : list) {
        if (v == kNoValue) continue;
        const ValueId root = Root(v);
        const ValuePlan& value = plan_.values[root];
        if (value.home != Home::kSlot || last_use_[root] != position) continue;
        if (std::find(free_.begin(), free_.end(), value.index) == free_.end()) {
          free_.push_back(value.index);
        }
      }
    }
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  absl::Span<const onnx::TensorProto* const> constants_;
  absl::Span<const Timing> timing_;  // by node
  const std::vector<NodeId>& order_;
  Plan plan_;
  std::vector<int> last_use_;  // by root value, position in order_
  std::vector<int> free_;
  std::vector<std::string> signatures_;  // by slot
};

}  // namespace

int64_t OpsetOf(const onnx::ModelProto& model, std::string_view domain) {
  if (domain == "ai.onnx") domain = "";
  for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
    const std::string& name = set.domain();
    if ((name == "ai.onnx" ? std::string_view() : std::string_view(name)) == domain) {
      return set.version();
    }
  }
  return 0;
}

const OpDef* DefOf(const Graph& graph, NodeId n) {
  const onnx::NodeProto& node = graph.node(n);
  if (FindFunction(graph.model(), node) != nullptr) return nullptr;
  return FindOp(node.domain(), node.op_type(), OpsetOf(graph.model(), node.domain()));
}

Plan MakePlan(const Graph& graph, absl::Span<const OpDef* const> defs,
              absl::Span<const onnx::TensorProto* const> constants, absl::Span<const Timing> timing,
              const std::vector<NodeId>& order, std::vector<PairPlan> pairs) {
  return Planner(graph, defs, constants, timing, order, std::move(pairs)).Make();
}

}  // namespace kvlift::exec
