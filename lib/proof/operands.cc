#include "proof/operands.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class Operands {
 public:
  Operands(const GraphPair& pair, const Correspondence& twins)
      : graph_(pair.graph()), forms_(pair.forms()), pool_(forms_.pool()), twins_(twins) {}

  // Operators whose elements depend on operands' elements at the same place, or in front of it.
  bool IsElementwise(NodeId n) const {
    static const auto& kNames =
        *new absl::flat_hash_set<std::string_view>{"Abs",         "Add",
                                                   "And",         "Cast",
                                                   "Ceil",        "Clip",
                                                   "Cos",         "Div",
                                                   "Elu",         "Equal",
                                                   "Erf",         "Exp",
                                                   "Floor",       "Gelu",
                                                   "Greater",     "Less",
                                                   "Log",         "Max",
                                                   "Min",         "Mod",
                                                   "Mul",         "Neg",
                                                   "Not",         "Or",
                                                   "Pow",         "Relu",
                                                   "Reciprocal",  "Round",
                                                   "Sigmoid",     "Sign",
                                                   "Sin",         "Sqrt",
                                                   "Sub",         "Sum",
                                                   "Tanh",        "Where",
                                                   "Xor",         "IsNaN",
                                                   "Identity",    "GreaterOrEqual",
                                                   "LessOrEqual", "DequantizeLinear",
                                                   "BitShift",    "BitwiseAnd",
                                                   "BitwiseOr"};
    if (graph_.Is(n, "CumSum")) return IntAttribute(graph_.node(n), "reverse", 0) == 0;
    return graph_.node(n).domain().empty() && kNames.contains(graph_.node(n).op_type());
  }

  // Whether each index of an axis gets results of its own: the source may have one for all.
  bool IsBatch(NodeId n, size_t axis, size_t rank) const {
    if (graph_.Is(n, "MatMul")) return axis + 2 < rank;
    if (graph_.Is(n, "Transpose") || graph_.Is(n, "Unsqueeze")) return true;
    if (!graph_.Is(n, "Concat") && !graph_.Is(n, "Softmax")) return false;
    const int64_t own = IntAttribute(graph_.node(n), "axis", -1);
    const auto count = static_cast<int64_t>(rank);
    return static_cast<int64_t>(axis) != (own < 0 ? own + count : own);
  }

  // Whether no index is counted from the end: the rows of two tables may be of different number.
  bool CountsFromFront(ValueId indices) {
    const sym::Form form = forms_.Of(indices);
    if (!form.known_rank) return false;
    if (pool_.Prove(pool_.Le(pool_.Integer(0), form.element, Facts{form.shape}),
                    Facts{form.shape}) == sym::Truth::kYes) {
      return true;
    }
    // A host's own indices are taken to be positions.
    const Expr e = form.element;
    return e->kind() == sym::Kind::kLoad && graph_.is_graph_input(e->source());
  }

  bool Same(NodeId mine, NodeId theirs) {
    if (IsElementwise(mine)) return true;
    const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
      if (a[k] == b[k] || a[k] == kNoValue || b[k] == kNoValue) continue;
      const sym::Form x = forms_.Of(a[k]), y = forms_.Of(b[k]);
      if (!x.known_rank || !y.known_rank || x.shape.size() != y.shape.size()) return false;
      for (size_t axis = 0; axis < x.shape.size(); ++axis) {
        const Expr extent = twins_.Extent(x.shape[axis], pool_.Index(0));
        if (extent == twins_.Normal(y.shape[axis], Facts{})) continue;
        if (k == 0 && graph_.Is(mine, "Gather") && a.size() == 2 && CountsFromFront(a[1])) {
          const int64_t own = IntAttribute(graph_.node(mine), "axis", 0);
          const auto count = static_cast<int64_t>(x.shape.size());
          if (static_cast<int64_t>(axis) == (own < 0 ? own + count : own)) continue;
        }
        if (!y.shape[axis]->is_integer(1) || !IsBatch(mine, axis, x.shape.size())) return false;
      }
    }
    return true;
  }

 private:
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
};

}  // namespace

bool SameExtents(const GraphPair& pair, const Correspondence& twins, NodeId mine, NodeId theirs) {
  return Operands(pair, twins).Same(mine, theirs);
}

}  // namespace kvlift
