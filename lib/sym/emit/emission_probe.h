// Says whether nodes can compute an expression, and what they would read, without adding any node
// to a graph.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "sym/emit/emit.h"

namespace kvlift::sym {

// Answers as an Emitter with the same bindings would.
class EmissionProbe {
 public:
  explicit EmissionProbe(Forms& forms) : forms_(forms) {}

  // State that a symbol will be bound, and that a source will be bound under its own name; see
  // Emitter::BindDim and SourceBinding::wide_axes.
  void BindDim(const DimSymbol& dim, bool per_sequence) { dims_[dim] = per_sequence; }
  void BindSource(ValueId source, std::vector<int> wide_axes) {
    sources_[source] = std::move(wide_axes);
  }

  // Return the status of Emitter::Dim and Emitter::Tensor, and the result of
  // Emitter::IsPerSequence.
  absl::Status Dim(Expr e) const;
  absl::Status Tensor(const Emitter::Request& request) const;
  bool IsPerSequence(Expr e) const;

  // Return the graph inputs that the nodes read, also those of which they read the shape alone. An
  // expression that cannot be emitted counts as reading nothing.
  std::vector<ValueId> InputsOfDim(Expr e) const;
  std::vector<ValueId> InputsOf(const Emitter::Request& request) const;

 private:
  // An emission whose nodes are thrown away.
  struct Trial {
    explicit Trial(const EmissionProbe& probe);

    NodeBuilder nodes;
    Emitter emitter;
  };

  std::vector<ValueId> InputsReadBy(NodeBuilder* nodes) const;

  Forms& forms_;
  absl::flat_hash_map<DimSymbol, bool> dims_;
  absl::flat_hash_map<ValueId, std::vector<int>> sources_;
};

}  // namespace kvlift::sym
