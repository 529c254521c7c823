// The ways in which `reduce` makes a subject smaller. Each is a list of elements that can be taken
// away, one by one or many at once; `Reduce` (reduce.h) searches for elements that can go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reduce/shared_values.h"

namespace kvlift {

class Reduction {
 public:
  virtual ~Reduction() = default;
  // Returns a word for the elements: "nodes".
  virtual std::string_view name() const = 0;
  // Returns true if nodes may be added in order to save bytes.
  virtual bool adds_nodes() const { return false; }
  // Returns the names of all elements of a subject. Elements that are neighbours in the list belong
  // together, so that it is worth trying to take away neighbours at once.
  virtual std::vector<std::string> Elements(const SubjectGraphs& graphs) const = 0;
  // Returns the subject without some of its elements. FailedPrecondition if that is not possible,
  // other errors as Graph::Build.
  virtual absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                          absl::Span<const std::string> elements) const = 0;
};

// Each of these functions returns a reduction, which lives as long as the program. The comments say
// what its elements are and what becomes of them.

// Texts for people, metadata, declared types of inner values, and functions and operator sets that
// no node uses.
const Reduction& DescriptionsReduction();
// Constant nodes: their values become initialisers.
const Reduction& ConstantsReduction();
// Nodes, in the order of the graph. What the other nodes read of the nodes that go becomes graph
// inputs, and what these nodes read of the other ones becomes graph outputs.
const Reduction& NodesReduction();
// Graph outputs, with the nodes that compute nothing else.
const Reduction& OutputsReduction();
// Nodes whose result has the type and the shape of an operand, which is read in place of it.
const Reduction& PassedNodesReduction();
// Nodes in the bodies of If, Loop and Scan, with what they read in place of their result; of a
// pair, those that both models have.
const Reduction& BodyNodesReduction();
// Branches of If in the main graph: one takes the place of the If. A pair has none of them.
const Reduction& BranchesReduction();
// Graph inputs that no node reads.
const Reduction& InputsReduction();
// Weights: they become graph inputs.
const Reduction& WeightsReduction();
// Weights: they become their first row, expanded to their shape.
const Reduction& RowsReduction();

}  // namespace kvlift
