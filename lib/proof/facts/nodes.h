// Compares values and nodes of the converted model with those of the source. A node with the same
// operator, attributes and operands has the same results.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/pair.h"
#include "proof/rows/sameness.h"

namespace kvlift {

class Nodes {
 public:
  Nodes(const GraphPair& pair, const Correspondence& twins, Equality& equality)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality) {}

  // Returns how two values are the same: by what was set in the Correspondence, by their bytes if
  // both are constants, or by their elements and extents.
  Sameness Compare(ValueId after, ValueId before);
  // Returns true if both values have the same rank and the same extents.
  bool SameExtents(ValueId after, ValueId before);
  // Returns true if two quantised caches have equal elements within the source's extents. The
  // converted model's cache may have more rows; whether it has enough of them is part of the facts
  // about attentions.
  bool SameRows(ValueId after, ValueId before);

  // The result of comparing two nodes.
  struct NodeComparison {
    Sameness results = Sameness::kNone;
    std::string why_not;  // why the results differ; empty if they do not
    // The nodes are shown to compute something else; false if they are only not shown to be the
    // same.
    bool refuted = false;
  };
  // Compares operators, attributes and operands, axes of reductions as attribute or input included.
  NodeComparison CompareNodes(NodeId mine, NodeId theirs);

 private:
  // Returns true if types and elements are equal within the converted model's extents.
  bool SameElements(ValueId after, ValueId before);
  bool SameAttributes(NodeId mine, NodeId theirs) const;
  // Counts an axis of the node's first input from the front; nullopt if the rank is not known.
  std::optional<int64_t> FromFront(int64_t axis, NodeId n) const;
  // The attribute `axis`, written out or by default, counted from the front; nullopt if the
  // operator has none or the rank is not known.
  std::optional<int64_t> AxisOf(NodeId n) const;
  // Names the first operand that differs; `why_not` is empty if none does. `same` receives how each
  // operand is the same.
  NodeComparison CompareInputs(NodeId mine, NodeId theirs, std::vector<Sameness>* same);
  // Returns true if the operand is the axis of a CumSum or CumProd, and the same one in both
  // models.
  bool IsSameRunningAxis(NodeId mine, NodeId theirs, size_t operand);
  // The value's name in its own model, or "nothing" for kNoValue.
  std::string Called(ValueId value) const;

  // The axes of a reduction: all of them, or those in `some`.
  struct Axes {
    bool all = false;
    std::set<int64_t> some;  // counted from the front

    friend bool operator==(const Axes&, const Axes&) = default;
  };
  // The axes that an attribute or an input gives; nullopt if they are not constant.
  std::optional<Axes> AxesOf(NodeId n);
  bool IsReduction(NodeId n) const;
  // Returns true if reductions over these axes of the source's operand differ in an axis that may
  // have more elements than one.
  bool ReduceOthers(const Axes& own, const Axes& others, NodeId theirs);

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
};

}  // namespace kvlift
