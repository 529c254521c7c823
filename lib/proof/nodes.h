// Whether values and nodes of the conversion are the source's: the same operator over the same
// values gives the same values.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"
#include "proof/sameness.h"

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

  // How a value of the conversion and one of the source are the same.
  Sameness Compare(ValueId after, ValueId before);
  // Whether both have the same extents, axis by axis.
  bool SameExtents(ValueId after, ValueId before);
  // Rows that a cache keeps in few bits and that a node makes numbers of, row by row: whether they
  // are equal where the source's has elements; the conversion's may have more. That it has as many
  // as are valid is seen where they are attended to.
  bool SameRows(ValueId after, ValueId before);

  // What two nodes have to do with each other.
  struct Comparison {
    Sameness results = Sameness::kNone;
    std::string why_not;   // of kNone
    bool refuted = false;  // they are seen to compute something else, not only not seen to be same
  };
  // Compares operators, attributes and operands: if all are the same, the results are.
  Comparison CompareNodes(NodeId mine, NodeId theirs);

 private:
  bool SameElements(ValueId after, ValueId before);
  bool SameAttributes(NodeId mine, NodeId theirs) const;
  bool IsSoftmaxOverLastAxis(NodeId n) const;
  // The first operand that is another one; empty if all are the same, as far as `same` says.
  Comparison CompareInputs(NodeId mine, NodeId theirs, std::vector<Sameness>* same);
  std::string Called(ValueId value) const;

  // The axes that a reduction is over.
  struct Axes {
    bool all = false;
    std::set<int64_t> some;  // those from the end are negative where the rank is not known

    friend bool operator==(const Axes&, const Axes&) = default;
  };
  // What an attribute or an input says, or all axes; nullopt if they are no constants.
  std::optional<Axes> AxesOf(NodeId n);
  bool IsReduction(NodeId n) const;

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
};

}  // namespace kvlift
