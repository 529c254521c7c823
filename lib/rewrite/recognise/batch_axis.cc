#include "rewrite/recognise/batch_axis.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Form;

constexpr int kNotWidened = -1;
constexpr int kUnknown = -2;

class Follower {
 public:
  Follower(sym::Forms& forms, Expr batch) : forms_(forms), graph_(forms.graph()), batch_(batch) {}

  WidenedGraph Run(const std::vector<WidenedOperand>& widened,
                   const absl::flat_hash_set<NodeId>& live) {
    std::optional<std::string> misfit = Follow(widened, live);
    return {std::move(misfit), std::move(values_)};
  }

 private:
  std::optional<std::string> Follow(const std::vector<WidenedOperand>& widened,
                                    const absl::flat_hash_set<NodeId>& live) {
    for (const WidenedOperand& w : widened) operands_[{w.node, w.operand}] = w.axis;
    std::vector<NodeId> order(live.begin(), live.end());
    std::sort(order.begin(), order.end());
    for (NodeId n : order) {
      const int axis = Visit(n);
      if (axis == kNotWidened) continue;
      if (axis == kUnknown) {
        return fmt::format("{} ({}) cannot have one row per sequence", graph_.NodeName(n),
                           graph_.node(n).op_type());
      }
      for (ValueId v : graph_.outputs(n)) {
        if (v == kNoValue) continue;
        const Form& form = forms_.Of(v);
        const bool is_batch = form.known_rank && axis < static_cast<int>(form.shape.size()) &&
                              form.shape[axis] == batch_;
        if (is_batch) continue;  // the output has the batch there already
        if (graph_.is_graph_output(v)) {
          return fmt::format("the graph output {} would change its shape", graph_.name(v));
        }
        values_[v] = axis;
      }
    }
    return std::nullopt;
  }

  int AxisOf(NodeId n, int k) const {
    if (const auto it = operands_.find({n, k}); it != operands_.end()) return it->second;
    const auto it = values_.find(graph_.inputs(n)[k]);
    return it == values_.end() ? kNotWidened : it->second;
  }

  int RankOf(ValueId v) {
    const Form& form = forms_.Of(v);
    return form.known_rank ? static_cast<int>(form.shape.size()) : -1;
  }

  // Returns the axis of the output that is widened, kNotWidened or kUnknown.
  int Visit(NodeId n) {
    std::vector<int> axes;
    bool any = false;
    for (int k = 0; k < static_cast<int>(graph_.inputs(n).size()); ++k) {
      axes.push_back(graph_.inputs(n)[k] == kNoValue ? kNotWidened : AxisOf(n, k));
      any = any || axes.back() >= 0;
    }
    if (!any) return kNotWidened;
    const std::string& op = graph_.node(n).op_type();
    if (!graph_.Is(n, op)) return kUnknown;
    const ValueId out = graph_.outputs(n)[0];
    const int rank = RankOf(out);
    if (rank < 0) return kUnknown;
    if (FindElementwise(graph_.node(n)) != nullptr || op == "Dropout")
      return Broadcast(n, axes, rank, 0);
    if (op == "MatMul") return Broadcast(n, axes, rank, 2);
    if (op == "Concat") return Joined(n, axes, rank);
    if (op == "Gather" && axes[0] < 0) {
      const int data_rank = RankOf(graph_.inputs(n)[0]);
      const int64_t axis = IntAttribute(graph_.node(n), "axis", 0);
      return static_cast<int>((axis < 0 ? axis + data_rank : axis)) + axes[1];
    }
    if (axes[0] < 0) return kUnknown;
    for (size_t k = 1; k < axes.size(); ++k) {
      if (axes[k] >= 0) return kUnknown;
    }
    return Moved(n, axes[0], rank);
  }

  // Follows right-aligned broadcasting; the last `fixed` axes do not broadcast.
  int Broadcast(NodeId n, const std::vector<int>& axes, int rank, int fixed) {
    int result = kNotWidened;
    for (size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] < 0) continue;
      const int own = RankOf(graph_.inputs(n)[k]);
      if (own < 0 || axes[k] >= own - fixed) return kUnknown;
      const int axis = axes[k] + rank - own;
      if (result >= 0 && result != axis) return kUnknown;
      result = axis;
    }
    // The other operands must have extent 1 or the batch there.
    for (size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] >= 0 || graph_.inputs(n)[k] == kNoValue) continue;
      const Form& form = forms_.Of(graph_.inputs(n)[k]);
      if (!form.known_rank) return kUnknown;
      const int at = result - (rank - static_cast<int>(form.shape.size()));
      if (at < 0 || form.shape[at]->is_integer(1) || form.shape[at] == batch_) continue;
      return kUnknown;
    }
    return result;
  }

  int Joined(NodeId n, const std::vector<int>& axes, int rank) {
    const int64_t along = IntAttribute(graph_.node(n), "axis", 0);
    for (int axis : axes) {
      if (axis != axes[0] || axis < 0) return kUnknown;
    }
    return axes[0] == (along < 0 ? along + rank : along) ? kUnknown : axes[0];
  }

  // Follows an operator that moves the elements of operand 0.
  int Moved(NodeId n, int axis, int rank) {
    const onnx::NodeProto& node = graph_.node(n);
    const std::string& op = node.op_type();
    const int own = RankOf(graph_.inputs(n)[0]);
    if (own < 0) return kUnknown;
    if (op == "Transpose") {
      const auto perm = IntsAttribute(node, "perm");
      if (perm.empty()) return rank - 1 - axis;
      return static_cast<int>(std::find(perm.begin(), perm.end(), axis) - perm.begin());
    }
    if (op == "Unsqueeze" || op == "Squeeze") {
      const auto list =
          graph_.inputs(n).size() > 1 ? forms_.Elements(graph_.inputs(n)[1]) : std::nullopt;
      if (!list) return kUnknown;
      const int full = op == "Unsqueeze" ? rank : own;
      std::vector<bool> named(full, false);
      for (Expr e : *list) {
        if (e->kind() != sym::Kind::kInteger) return kUnknown;
        const int64_t at = e->value() < 0 ? e->value() + full : e->value();
        if (at < 0 || at >= full) return kUnknown;
        named[at] = true;
      }
      return op == "Unsqueeze" ? PastInserted(named, axis) : PastRemoved(named, axis);
    }
    if (op == "Slice" || op == "Split") return AlongOther(n, axis);
    return kUnknown;
  }

  static int PastInserted(const std::vector<bool>& inserted, int axis) {
    int seen = -1;
    for (int k = 0; k < static_cast<int>(inserted.size()); ++k) {
      if (!inserted[k] && ++seen == axis) return k;
    }
    return kUnknown;
  }

  static int PastRemoved(const std::vector<bool>& removed, int axis) {
    if (removed[axis]) return kUnknown;
    return axis - static_cast<int>(std::count(removed.begin(), removed.begin() + axis, true));
  }

  // Slice and Split keep the axis if they cut other axes only.
  int AlongOther(NodeId n, int axis) {
    const Form& form = forms_.Of(graph_.inputs(n)[0]);
    const Form& out = forms_.Of(graph_.outputs(n)[0]);
    if (graph_.Is(n, "Split")) {
      const int64_t along = IntAttribute(graph_.node(n), "axis", 0);
      const int64_t rank = static_cast<int64_t>(form.shape.size());
      return (along < 0 ? along + rank : along) == axis ? kUnknown : axis;
    }
    if (graph_.inputs(n).size() < 4 || graph_.inputs(n)[3] == kNoValue) return kUnknown;
    const auto cut = forms_.Elements(graph_.inputs(n)[3]);
    if (!cut || out.shape.size() != form.shape.size()) return kUnknown;
    for (Expr e : *cut) {
      if (e->kind() != sym::Kind::kInteger) return kUnknown;
      const int64_t rank = static_cast<int64_t>(form.shape.size());
      if ((e->value() < 0 ? e->value() + rank : e->value()) == axis) return kUnknown;
    }
    return axis;
  }

  sym::Forms& forms_;
  const Graph& graph_;
  Expr batch_;
  absl::flat_hash_map<std::pair<NodeId, int>, int> operands_;
  absl::flat_hash_map<ValueId, int> values_;
};

}  // namespace

WidenedGraph FollowBatchAxis(sym::Forms& forms, const std::vector<WidenedOperand>& widened,
                             const absl::flat_hash_set<NodeId>& live, Expr batch) {
  return Follower(forms, batch).Run(widened, live);
}

}  // namespace kvlift
