// The form of each tensor of a graph: its symbolic shape, and one expression for its element at the
// indices i0..i(r-1). Operators that only move data, or that compute indices, shapes and masks, are
// looked through. Results of real arithmetic, weights and graph inputs are opaque: the element is a
// load of the tensor itself. Example: the element of Concat(past, k) on axis 2 is i2 < P ? past[i0,
// i1, i2, i3] : k[i0, i1, i2 - P, i3].
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "ir/operators/quantizer.h"
#include "sym/expr/expr.h"

namespace kvlift::sym {

struct Form {
  bool known_rank = false;  // false: shape and element must not be used
  std::vector<Expr> shape;  // one expression per axis, without indices
  // The element at i0..i(r-1); for an opaque value a load of itself. Null if known_rank is false.
  // It is equal as a number: casts that keep the value are looked through, so its loads may have
  // another element type than the value (see ElementType).
  Expr element = nullptr;
  bool opaque = true;  // the element is Load(value, i0, ...)
};

// Values with larger expressions become opaque.
inline constexpr int64_t kMaxExprSize = 20000;
// Integer vectors up to this length are kept by element.
inline constexpr int64_t kMaxVector = 64;

struct FormsOptions {
  // One element per node: true if the caller proves each assumption about the node's broadcasts, so
  // that more of them may be made. Nodes beyond the end count as false.
  std::vector<bool> compared;
};

// Machine integers are treated as mathematical integers where they cannot overflow. This is decided
// for extents and integers of the host up to MostSize(), and for up to kMostElements elements of a
// tensor.
inline constexpr int64_t kMostElements = int64_t{1} << 40;
// Returns the limit for forms that this thread makes now: 2^20, unless a SizesUpTo raises it.
int64_t MostSize();

// While an object of this class exists, MostSize() is at least `size` in this thread. It is needed
// for models that declare sizes above 2^20.
class SizesUpTo {
 public:
  explicit SizesUpTo(int64_t size);
  ~SizesUpTo();
  SizesUpTo(const SizesUpTo&) = delete;
  SizesUpTo& operator=(const SizesUpTo&) = delete;

 private:
  const int64_t before_;
};

// Why an assumption was made. Operators enforce two of these themselves: they refuse to run where
// two extents of kEqualExtents differ, and where two extents of kBroadcast differ and neither is 1.
// Nothing enforces the others.
enum class AssumptionReason {
  kEqualExtents,  // extents of axes that are concatenated, multiplied or reshaped
  kBroadcast,     // extents of operands that broadcast, neither of which is the constant 1
  kInside,        // an index or bound that data or a size gives lies inside a table or an axis
  kCountsUp,      // an integer vector that the host gives counts up by 1
  kFinite,        // real data is finite
  kSmall,         // an integer that the host gives is small enough for a type
  kNotEmpty,      // a reduced axis has an element, or a size in a Reshape is not 0
  kDeclared,      // an operator of another domain gives a result of the size that is declared
};

// A condition that was used without proof while forms were computed. The caller must state it or
// prove it.
struct FormAssumption {
  NodeId node;
  AssumptionReason reason;
  std::string text;  // "attention_mask.shape[1] = P + S (broadcast)"
  // The condition holds for all values of its indices at the node: "i2 + pos[0] == pos[i2]".
  // finite(x) says that x is neither NaN nor infinite, so that 0 * x is 0.
  Expr predicate;
};

// Computes and caches the forms of one graph, which must outlive it. The default opset of the graph
// must be 13 or later. Not thread-safe.
//
// Dimension symbols: a dim_param that a graph input declares is a symbol of that name. A sum such
// as "past_sequence_length + sequence_length" is a sum of symbols if some graph input declares each
// summand on its own. Any other text ("past_sequence_length + 1", as a trace with example inputs
// leaves it) becomes an internal symbol of its own for that input and axis. Symbols declared for
// inner values and graph outputs are not trusted: shapes are propagated here. Symbols are >= 0. A
// symbol that is not the sequence axis of a past is >= 1 in practice, but this is not assumed.
class Forms {
 public:
  explicit Forms(const Graph& graph, const FormsOptions& options = {});
  ~Forms();

  const Graph& graph() const;
  Pool& pool();
  // Returns the form of a value. kNoValue, an omitted operand, has a form of unknown rank; the
  // functions below return null, nullopt or 0 for it.
  const Form& Of(ValueId v);
  // Returns the form if Of has computed it already; else null. Computes nothing, so that reports of
  // an analysis do not change it.
  const Form* Known(ValueId v) const;

  // Returns the element of v at the given indices, simplified under facts about the free indices in
  // them. Returns null if the rank of v is unknown or is not the number of indices.
  Expr At(ValueId v, absl::Span<const Expr> indices, const Facts& facts);
  Facts FactsFor(ValueId v);  // 0 <= i_k < shape[k]; v has a known rank

  // Returns the elements of a value of rank 0, or of rank 1 with a constant length up to
  // kMaxVector; nullopt otherwise.
  std::optional<std::vector<Expr>> Elements(ValueId v);

  // Returns the element type of v as onnx::TensorProto::DataType, declared or propagated; 0 if
  // unknown.
  int32_t ElementType(ValueId v);

  // Returns whether `e`, a predicate of integers, holds, by the ranges of what it reads: counts are
  // not negative, constants have the numbers that they have. kUnknown: the ranges do not decide.
  Truth ProveByRanges(Expr e, const Facts& facts);

  // Assumes that every number in a graph input of a floating-point type is one of these, so that a
  // Cast to their type, or their quantiser, changes none. Nothing records the assumption: the
  // caller must state it. Must be called before the form of any value that depends on the input is
  // asked for.
  void AssumeNumbersOf(ValueId input, const NumberSet& numbers);
  // Assumes that an input of integers, a scalar or a vector, counts something: its first element is
  // not negative. Extents become simpler by that. As for AssumeNumbersOf, the caller must state it.
  void AssumeCounts(ValueId input);
  // Returns the numbers that were assumed for v, or else those of its element type.
  NumberSet NumbersOf(ValueId v);

  // Returns true if e, an integer, lies within half of the range of int64, so that a comparison may
  // move its terms to either side. A table of the graph, or a number that a node computes, may hold
  // larger ones.
  bool FitsInt64(Expr e, const Facts& facts);

  // The axis whose extent is the number of a symbol: the first axis of a graph input, in file
  // order, that declares exactly this symbol. nullopt if no input declares it.
  struct DimOrigin {
    ValueId input;
    int axis;
  };
  std::optional<DimOrigin> OriginOf(const DimSymbol& dim) const;
  // Returns the internal symbol for an extent of v that neither a declaration nor an operator
  // determines.
  DimSymbol OwnSymbol(ValueId v, int axis) const;

  // All assumptions that were made so far, each condition once.
  absl::Span<const FormAssumption> assumptions() const;

  // Returns true if the graph needed more than MaxSteps() steps. Values are then opaque or unknown
  // that otherwise would not be.
  bool exhausted() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvlift::sym
