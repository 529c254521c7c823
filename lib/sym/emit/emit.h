// Turns expressions (sym/expr/expr.h) into nodes that compute them; the reverse of
// sym/forms/forms.h.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/node_builder.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// The value that holds a dimension symbol in the new graph.
struct DimBinding {
  std::string value;          // name of an int64 value: [1], or [B] if per_sequence
  bool per_sequence = false;  // one number per sequence, along the batch axis
};

// The value that holds a source of loads (graph input, weight or kept value) in the new graph.
struct SourceBinding {
  std::string value;  // its name in the new graph
  // Axes that may have more elements in the new graph than the loads read; they are sliced first.
  std::vector<int> wide_axes;
};

class Emitter {
 public:
  Emitter(Forms& forms, NodeBuilder& builder) : forms_(forms), builder_(builder) {}

  // Set the value that holds a symbol, or a source of loads, in the new graph. A symbol without a
  // binding is read from the shape of a graph input that declares it; a source without a binding
  // keeps its name.
  void BindDim(const DimSymbol& dim, DimBinding binding);
  void BindSource(ValueId source, SourceBinding binding);

  // Adds nodes for a shape expression and returns the name of their result, int64 [1]. Returns
  // FailedPrecondition if a symbol has no binding and no graph input declares it, or if the symbol
  // differs between sequences; Unimplemented as Tensor does.
  absl::StatusOr<std::string> Dim(Expr e);
  // Adds nodes for n shape expressions and returns the name of the vector of their results, int64
  // [n]. Fails as Dim does.
  absl::StatusOr<std::string> DimVector(absl::Span<const Expr> dims);

  // A tensor of exactly `shape` and `elem_type` (onnx::TensorProto::DataType) whose element at
  // i0..i(r-1) is `element`. Symbols that differ between sequences vary along `batch_axis`, whose
  // extent in `shape` must be the batch; -1: `element` has no such symbol.
  struct Request {
    Expr element;
    std::vector<Expr> shape;
    int32_t elem_type;
    int batch_axis = -1;
    std::string role;  // role of the nodes in their names, see ir/node_builder.h
    // True: a conjunct of a predicate may be what keeps the indices in other conjuncts within their
    // axes. All of them are evaluated, so indices that may lie outside are clamped.
    bool parts_guard = true;
    // Axes that may have more elements in the new graph than `element` reads, by source. An entry
    // replaces SourceBinding::wide_axes of that source.
    absl::flat_hash_map<ValueId, std::vector<int>> wide_axes = {};
  };
  // Adds nodes for the requested tensor and returns its name. Returns Unimplemented, with the
  // expression in the message, if no operators compute it; FailedPrecondition as Dim does.
  absl::StatusOr<std::string> Tensor(const Request& request);

  // Returns true if a symbol in e is bound to a value that differs between sequences.
  bool IsPerSequence(Expr e) const;

 private:
  // A value that is broadcast against the requested shape.
  struct Piece {
    std::string value;
    int32_t elem_type;
    // Bit k: the piece has extent shape[k] on axis k; otherwise it has extent 1 there.
    uint32_t axes;
    bool full_rank;  // false: a scalar or [1]
  };
  class Builder;
  friend class Builder;

  Forms& forms_;
  NodeBuilder& builder_;
  absl::flat_hash_map<DimSymbol, DimBinding> dims_;
  absl::flat_hash_map<ValueId, SourceBinding> sources_;
};

}  // namespace kvlift::sym
