// From an expression back to nodes: builds a tensor whose element is the expression.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/node_builder.h"
#include "sym/forms.h"

namespace kvlift::sym {

// What a dim symbol is in the new graph.
struct DimBinding {
  std::string value;          // int64: [1], or [B] if per_sequence
  bool per_sequence = false;  // differs between sequences: lies along the batch axis
};

// How a source (graph input, weight, kept value) is read in the new graph.
struct SourceBinding {
  std::string value;           // the name there
  std::vector<int> wide_axes;  // axes that may be longer than what is read: cut first
};

class Emitter {
 public:
  Emitter(Forms& forms, NodeBuilder& builder) : forms_(forms), builder_(builder) {}

  void BindDim(const DimSymbol& dim, DimBinding binding);
  void BindSource(ValueId source, SourceBinding binding);

  // int64 [1] value of a shape expression. FailedPrecondition if a symbol cannot be read.
  absl::StatusOr<std::string> Dim(Expr e);
  // int64 [n].
  absl::StatusOr<std::string> DimVector(absl::Span<const Expr> dims);

  // A tensor of exactly `shape` and `elem_type` with element `e` over i0..i(r-1). A per-sequence
  // symbol varies along `batch_axis`, whose extent in `shape` must then be the batch; -1: e may
  // hold none. Unimplemented if the expression has no form in nodes (names it).
  struct Request {
    Expr element;
    std::vector<Expr> shape;
    int32_t elem_type;
    int batch_axis = -1;
    std::string role;         // of the last node
    bool parts_guard = true;  // parts of a conjunction may guard what others read
  };
  absl::StatusOr<std::string> Tensor(const Request& request);

  bool IsPerSequence(Expr e) const;

 private:
  struct Piece {
    std::string value;
    int32_t elem_type;
    uint32_t axes;   // bit k: the piece really has extent shape[k] there, else 1 (or is [1])
    bool full_rank;  // false: a scalar or [1], which broadcasts anywhere
  };
  class Builder;
  friend class Builder;

  Forms& forms_;
  NodeBuilder& builder_;
  absl::flat_hash_map<DimSymbol, DimBinding> dims_;
  absl::flat_hash_map<ValueId, SourceBinding> sources_;
};

}  // namespace kvlift::sym
