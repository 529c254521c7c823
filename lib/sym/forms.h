// What each tensor of a graph is: its symbolic shape and one expression for the element at output
// indices i0..ir. Everything that only moves data or computes on indices, shapes and masks is
// looked through; results of real arithmetic, weights and graph inputs are loads of themselves.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "sym/expr.h"

namespace kvlift::sym {

struct Form {
  bool known_rank = false;  // false: nothing is known; shape and element are unusable
  std::vector<Expr> shape;  // one expression per axis, without indices
  // Element at i0..i(r-1); for an opaque value a load of itself. Null if known_rank is false.
  // Equal as a number: casts that keep the value are looked through, so the loads in it may have
  // another element type than the value (see ElementType).
  Expr element = nullptr;
  bool opaque = true;  // element is just Load(value, i0, ..., ir)
};

struct FormsOptions {
  int64_t max_expr_size = 20000;  // beyond it a value becomes opaque
  int64_t max_vector = 64;        // integer vectors up to this length are kept element by element
  // By node: its broadcasts are compared by whoever uses the forms, who has to prove each
  // assumption of theirs. Nodes without an entry are not.
  std::vector<bool> compared;
};

// Machine integers are taken to be integers where they cannot leave their type: that is decided for
// extents and integers of a host up to kMostSize, and for up to kMostElements elements of a tensor.
inline constexpr int64_t kMostSize = int64_t{1} << 20;
inline constexpr int64_t kMostElements = int64_t{1} << 40;

// What a form rests on, and why. An operator refuses to run where the two extents of kEqualExtents
// differ, and where those of kBroadcast differ and neither is 1; nothing enforces the others.
enum class AssumptionReason {
  kEqualExtents,  // joined, multiplied or reshaped axes
  kBroadcast,     // axes of operands, neither of which is 1 where they differ
  kInside,        // a place that data or a size gives lies inside a table or an axis
  kCountsUp,      // a vector of the host counts up
  kFinite,        // real data is finite
  kSmall,         // an integer of the host is small enough for a type
  kNotEmpty,      // an axis that is reduced has an element
};

// Something that was used without proof while computing forms. Whoever uses the forms has to state
// it, or to prove it.
struct Assumption {
  NodeId node;
  AssumptionReason reason;
  std::string text;  // "attention_mask.shape[1] = P + S (broadcast)"
  // An index in it stands for every value it takes in the node: "i2 + pos[0] == pos[i2]".
  // finite(x): real data is neither NaN nor infinite, so that 0 * x is 0.
  Expr predicate;
};

// Memoised; the graph must outlive it. The graph's default opset must be 13 or later.
//
// Dimension symbols: a declared dim_param of a graph input is a symbol by that name. A sum such as
// "past_sequence_length + sequence_length" is parsed as a sum of symbols if every summand is a
// symbol that some graph input declares on its own; any other text ("past_sequence_length + 1" left
// behind by a dummy run) is a symbol of its own, named by its input and axis. Declared shapes of
// inner values and graph outputs are never trusted: shapes are propagated by this engine. Symbols
// are >= 0; a symbol that is not the sequence axis of a cache is in practice >= 1, but that is not
// assumed.
class Forms {
 public:
  explicit Forms(const Graph& graph, const FormsOptions& options = {});
  ~Forms();

  const Graph& graph() const;
  Pool& pool();
  // Nothing is known of kNoValue, an operand that is left out; here and below.
  const Form& Of(ValueId v);

  // Element of v at the given indices, simplified under facts about the free indices in them.
  Expr At(ValueId v, absl::Span<const Expr> indices, const Facts& facts);
  Facts FactsFor(ValueId v);  // 0 <= i_k < shape[k]

  // The elements of a rank-0 or rank-1 value of constant length; nullopt otherwise.
  std::optional<std::vector<Expr>> Elements(ValueId v);

  // True if the value's type is a float type (by propagation where undeclared).
  int32_t ElementType(ValueId v);  // onnx TensorProto::DataType, 0 if unknown

  // Dim symbol -> where a host or a graph can read it: graph input and axis. The first by file
  // order among inputs that declare exactly this symbol.
  struct DimOrigin {
    ValueId input;
    int axis;
  };
  std::optional<DimOrigin> OriginOf(const DimSymbol& dim) const;
  // The symbol of an extent that no declaration and no operator tells: the axis of the value
  // itself.
  DimSymbol OwnSymbol(ValueId v, int axis) const;

  absl::Span<const Assumption> assumptions() const;

  // The graph asked for more work than MaxSteps(): forms are missing that it has.
  bool exhausted() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvlift::sym
