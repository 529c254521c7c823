// Whether values and nodes of the conversion are the source's: the same operator over the same
// values gives the same values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"

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

  // Element by element; the source's may have one for all where the other has several.
  bool SameValue(ValueId after, ValueId before);
  // The same, of rows that a cache keeps in few bits and that a node makes numbers of, row by row:
  // where the source's has elements; the conversion's may have more. That it has as many as are
  // valid is seen where they are attended to.
  bool SameRows(ValueId after, ValueId before);
  // Why two nodes may give different values; empty if they are the same operator over the same.
  std::string Unlike(NodeId mine, NodeId theirs);

 private:
  bool SameAttributes(NodeId mine, NodeId theirs) const;
  bool IsSoftmaxOverLastAxis(NodeId n) const;
  std::string UnlikeInput(NodeId mine, NodeId theirs);
  std::string Called(ValueId value) const;
  // Axes of a reduction, an attribute or an input; nullopt if they are not constant.
  std::optional<std::vector<sym::Expr>> Axes(NodeId n);

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
};

}  // namespace kvlift
