#include "proof/facts/operands.h"

#include <algorithm>
#include <optional>

#include "proof/graphs/operand_places.h"
#include "proof/lemmas/joint/longer_table.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class Operands {
 public:
  Operands(const GraphPair& pair, const Correspondence& twins, Equality& equality)
      : graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality) {}

  // Returns true if each index of an axis is computed by itself, so that the source may have one
  // element for all indices.
  bool IsBatch(NodeId n, size_t axis, size_t rank) const {
    if (graph_.Is(n, "MatMul")) return axis + 2 < rank;
    if (graph_.Is(n, "Transpose") || graph_.Is(n, "Unsqueeze")) return true;
    if (!graph_.Is(n, "Concat") && !graph_.Is(n, "Softmax")) return false;
    const int64_t own = IntAttribute(graph_.node(n), "axis", -1);
    const auto count = static_cast<int64_t>(rank);
    return static_cast<int64_t>(axis) != (own < 0 ? own + count : own);
  }

  Sameness Run(NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
    bool whole = true;
    for (const Sameness operand : same) whole = whole && operand == Sameness::kWhole;
    if (whole) return Sameness::kWhole;
    // A dequantised element also depends on the scale of its row.
    const bool elementwise = IsElementwise(graph_, mine) || graph_.Is(mine, "DequantizeLinear");
    const bool fits = elementwise                 ? FitsElementwise(mine, theirs, same)
                      : graph_.Is(mine, "CumSum") ? FitsRunningSum(mine, theirs, same)
                                                  : FitsByAxis(mine, theirs, same);
    if (fits) return Sameness::kInCommon;
    return graph_.Is(mine, "Gather") ? OfLookup(mine, theirs, same) : Sameness::kNone;
  }

 private:
  // The extents of one axis of an operand or result in both models, in the source's terms.
  struct Axis {
    Expr mine = nullptr, theirs = nullptr;

    bool is_known() const { return mine != nullptr && theirs != nullptr; }
    // Returns true if the source has one element that equals all of the converted model's.
    bool stands_for_all() const { return theirs->is_integer(1); }
  };

  // Returns the axes of an operand, from the last one to the first; nullopt if its rank is not
  // known or smaller than the source's.
  std::optional<std::vector<Axis>> AxesOf(ValueId mine, ValueId theirs) {
    const sym::Form x = forms_.Of(mine), y = forms_.Of(theirs);
    if (!x.known_rank || !y.known_rank || x.shape.size() < y.shape.size()) return std::nullopt;
    std::vector<Axis> axes;
    for (size_t k = 0; k < x.shape.size(); ++k) {
      Axis axis;
      // An extent without a counterpart in the source differs from every extent of the source.
      const Expr own = x.shape[x.shape.size() - 1 - k];
      axis.mine = twins_.Extent(own, pool_.Index(0));
      if (axis.mine == nullptr) axis.mine = own;
      axis.theirs = k < y.shape.size() ? twins_.Normal(y.shape[y.shape.size() - 1 - k], Facts{})
                                       : pool_.Integer(1);
      if (!axis.is_known()) return std::nullopt;
      axes.push_back(axis);
    }
    return axes;
  }

  bool IsSame(Expr a, Expr b) { return equality_.Equal(a, b, pool_.True(), Facts{}); }

  // Along each axis one of these holds: an operand has the same extent in both models; the source
  // has one element for all; or all operands share one extent in the converted model and another
  // one in the source, so that both models broadcast the same operands.
  bool FitsElementwise(NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
    const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
    std::vector<std::vector<Axis>> operands;
    size_t rank = 0;
    for (size_t k = 0; k < same.size(); ++k) {
      if (a[k] == kNoValue || b[k] == kNoValue) continue;
      auto axes = AxesOf(a[k], b[k]);
      if (!axes) return false;
      rank = std::max(rank, axes->size());
      operands.push_back(*std::move(axes));
    }
    for (size_t axis = 0; axis < rank; ++axis) {
      const Axis* longer = nullptr;
      for (const auto& operand : operands) {
        if (axis >= operand.size()) continue;
        const Axis& own = operand[axis];
        if (own.stands_for_all() || IsSame(own.mine, own.theirs)) continue;
        if (own.mine->is_integer(1)) return false;
        longer = &own;
      }
      if (longer == nullptr) continue;
      for (const auto& operand : operands) {
        if (axis >= operand.size()) continue;
        const Axis& own = operand[axis];
        const bool mine_fits = own.mine->is_integer(1) || IsSame(own.mine, longer->mine);
        const bool theirs_fits = own.theirs->is_integer(1) || IsSame(own.theirs, longer->theirs);
        if (!mine_fits || !theirs_fits) return false;
        // An element that only the converted model broadcasts is none of the source's.
        if (own.mine->is_integer(1) && !own.theirs->is_integer(1)) return false;
      }
    }
    return true;
  }

  // Each element depends on those before it along one axis.
  bool FitsRunningSum(NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
    if (IntAttribute(graph_.node(mine), "reverse", 0) != 0 || same.size() != 2 ||
        same[1] != Sameness::kWhole) {
      return false;
    }
    const auto axes = AxesOf(graph_.inputs(mine)[0], graph_.inputs(theirs)[0]);
    if (!axes) return false;
    return std::all_of(axes->begin(), axes->end(), [&](const Axis& axis) {
      return IsSame(axis.mine, axis.theirs) ||
             (!axis.mine->is_integer(1) && !axis.stands_for_all());
    });
  }

  // Operands have the same extents, apart from axes along which each index is computed by itself
  // and the source has one element for all.
  bool FitsByAxis(NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
    const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
    for (size_t k = 0; k < same.size(); ++k) {
      if (same[k] == Sameness::kWhole || a[k] == kNoValue || b[k] == kNoValue) continue;
      const auto axes = AxesOf(a[k], b[k]);
      const sym::Form theirs_form = forms_.Of(b[k]);
      if (!axes || theirs_form.shape.size() != axes->size()) return false;
      for (size_t axis = 0; axis < axes->size(); ++axis) {
        const Axis& own = (*axes)[axes->size() - 1 - axis];
        if (IsSame(own.mine, own.theirs)) continue;
        if (!own.stands_for_all() || !IsBatch(mine, axis, axes->size())) return false;
      }
    }
    return true;
  }

  // Looks up rows; the converted model's table may be longer than the source's.
  Sameness OfLookup(NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
    const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
    const auto axes = AxesOf(a[0], b[0]);
    const sym::Form table = forms_.Of(b[0]);
    if (!axes || same.size() != 2 || table.shape.size() != axes->size()) return Sameness::kNone;
    const auto rank = static_cast<int64_t>(axes->size());
    int64_t rows = IntAttribute(graph_.node(mine), "axis", 0);
    if (rows < 0) rows += rank;
    for (int64_t axis = 0; axis < rank; ++axis) {
      const Axis& own = (*axes)[static_cast<size_t>(rank - 1 - axis)];
      if (IsSame(own.mine, own.theirs)) continue;
      if (axis != rows || own.stands_for_all()) return Sameness::kNone;
      if (!LooksUpInLongerTable(forms_, twins_, equality_, a[1], own.theirs, own.mine)) {
        return Sameness::kNone;
      }
    }
    return same[1];
  }

  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
};

}  // namespace

Sameness OfResults(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                   NodeId mine, NodeId theirs, const std::vector<Sameness>& same) {
  return Operands(pair, twins, equality).Run(mine, theirs, same);
}

}  // namespace kvlift
