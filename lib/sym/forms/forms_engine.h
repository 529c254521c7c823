// The evaluator behind sym/forms/forms.h: computes one Value per graph value, node by node in
// topological order. Also declares what the functions for operators (ops_*.cc) use. Internal to
// lib/sym.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "ir/declared_sizes.h"
#include "ir/graph.h"
#include "sym/expr/clipped_extents.h"
#include "sym/expr/expr.h"
#include "sym/forms/forms.h"
#include "sym/forms/ranges.h"

namespace kvlift::sym::internal {

using Shape = std::vector<Expr>;
using Indices = absl::Span<const Expr>;
// Returns the element at the given indices under facts about the indices in them; null if it is not
// known.
using ElementFn = std::function<Expr(Indices, const Facts&)>;

// The form, elements and type of one value of the graph, as far as they are known.
struct Value {
  Form form;
  // The elements one by one, for a value of rank 1 with a small constant length; absent otherwise.
  std::optional<std::vector<Expr>> elements;
  // onnx::TensorProto::DataType; 0: unknown.
  int32_t type = 0;
  bool done = false;

  int rank() const { return static_cast<int>(form.shape.size()); }
  const Expr& dim(int axis) const { return form.shape[axis]; }
};

class Engine {
 public:
  Engine(const Graph& graph, const FormsOptions& options);

  const Graph& graph() const { return graph_; }
  const FormsOptions& options() const { return options_; }
  Pool& pool() { return pool_; }
  bool exhausted() const { return pool_.exhausted(); }
  const Value& Of(ValueId v);
  // See Forms::Known.
  const Form* Known(ValueId v) const { return values_[v].done ? &values_[v].form : nullptr; }
  absl::Span<const FormAssumption> assumptions() const { return assumptions_; }
  std::optional<Forms::DimOrigin> OriginOf(const DimSymbol& dim) const;

  // Returns the element of a value of known rank; null if its rank is not the number of indices.
  Expr At(const Value& value, Indices indices, const Facts& facts);
  // See Forms::Elements.
  std::optional<std::vector<Expr>> Elements(const Value& value);

  // Sets the shape and the element of a value. An element that is null or larger than kMaxExprSize
  // makes the value opaque; a dimension that is null or as large makes its rank unknown.
  void Set(ValueId v, Shape shape, const ElementFn& fn);
  // Sets a vector by its elements, or a scalar by its only one. A null element makes the rank
  // unknown.
  void SetElements(ValueId v, bool scalar, std::vector<Expr> elements);
  // Adds the elements of a value that was set with Set already.
  void KeepElements(ValueId v, std::vector<Expr> elements);
  // Makes a value opaque. Dimensions that are null or too large become symbols of the value's own.
  void SetOpaque(ValueId v, Shape shape);
  // Makes the rank of a value unknown.
  void SetUnknown(ValueId v);
  // See Forms::OwnSymbol.
  DimSymbol OwnSymbol(ValueId v, int axis) const;
  Expr OwnDim(ValueId v, int axis) { return pool_.Dim(OwnSymbol(v, axis)); }

  // Records an assumption, unless the predicate is True or recorded already. `why` goes into its
  // text.
  void Assume(NodeId node, AssumptionReason reason, Expr predicate, std::string_view why);
  // Returns true if e >= 0 is provable under the facts, alone or with one of the first assumptions.
  bool IsNonNegative(Expr e, const Facts& facts);
  // Assumes e >= 0, unless IsNonNegative(e) holds.
  void AssumeNonNegative(NodeId node, AssumptionReason reason, Expr e, const Facts& facts,
                         std::string_view why);
  // Returns an interval that contains e, under facts about its indices.
  Interval RangeOf(Expr e, const Facts& facts) { return ranges_.Of(e, facts); }
  // Returns e if machine arithmetic in this type computes it exactly; null if it may overflow or be
  // rounded. Constants, loads and real numbers are returned as they are.
  Expr Exact(Expr e, int32_t type, const Facts& facts);
  // Returns ceil(length / step), the number of elements that steps of `step` >= 1 visit on an axis
  // of `length` >= 0 elements. Returns null if 64 bits may not hold the sum that computes it.
  Expr StridedLength(Expr length, int64_t step);
  // Returns true if a broadcast of the node may treat two extents as equal; neither is the constant
  // 1. If it returns true, it may fix the length of an axis that an input declares, for all later
  // broadcasts.
  bool MayBeTakenAsEqual(NodeId node, Expr a, Expr b);
  // The bounds of extents that follow from the assumptions so far (kInside).
  ClippedExtents& clipped() { return clipped_; }
  // Returns true for graph inputs of integers or bools, and for those of real numbers that are only
  // compared or cast to such types, as a mask of floats is.
  bool IsCountOrMask(ValueId input) const;
  // Returns true if such an input declares the axis, and no other input does.
  bool IsOnlyOfIntegers(const DimSymbol& axis) const;
  int32_t TypeOf(ValueId v) const { return values_[v].type; }
  // See Forms::AssumeNumbersOf and Forms::NumbersOf.
  void AssumeNumbersOf(ValueId input, const NumberSet& numbers) {
    assumed_numbers_[input] = numbers;
  }
  NumberSet NumbersOf(ValueId v) const {
    const auto it = assumed_numbers_.find(v);
    return it != assumed_numbers_.end() ? it->second : NumberSet{TypeOf(v), std::nullopt};
  }
  // Returns true if v is a constant integer tensor without negative elements.
  bool ConstantIsNonNegative(ValueId v);

  // Logic on expressions (forms_logic.cc). Select and AsPredicate accept any expression as a
  // condition: everything but 0 is true.
  Expr Select(Expr condition, Expr then, Expr otherwise);
  Expr AsPredicate(Expr e);
  // Conjunction; drops conjuncts that another conjunct implies.
  Expr And(Expr p, Expr q);
  Expr Or(Expr p, Expr q);
  // Returns e with the branch that is taken where the condition is true, or where it is false, in
  // place of each select by it or by its negation.
  Expr Given(Expr e, Expr condition, bool truth);
  // Applies fn below the selects of xs, see Pool::Lift. Returns null if fn returns null, or if
  // there are more than 256 combinations of branches. Implications between conditions exclude
  // combinations that no index has; they are used only if fn returns null without them.
  Expr Lift(std::vector<Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn);
  // Returns true if e is built from integers, integer loads and predicates only.
  bool IsIntegral(Expr e);
  // Returns true if e reads a tensor that is not a constant of the graph.
  bool DependsOnData(Expr e);
  // Returns true if e is a number that the host gives: arithmetic of elements of graph inputs, and
  // of sums and extrema of them, as positions and lengths are. A condition on such a number is one
  // that a host can keep. Numbers that the model computes, such as the index that a TopK finds, an
  // entry of a table, or one of two constants that a token chooses, may have either sign.
  bool IsGivenByHost(Expr e);
  // Returns true if e reads a constant float table at an index that depends on data, as an
  // embedding does.
  bool HasDataDependentTableRead(Expr e);

 private:
  // The selects of other operands that a condition decides: those by the same condition or its
  // negation (Given), or those by any condition that follows from it (Pool::Assume).
  enum class Decided { kSameConditions, kImpliedConditions };
  Expr LiftBy(std::vector<Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn,
              Decided decided);
  bool IsGivenByHost(ValueId source);
  // Returns true for a number of the host that is clamped, or counted from the end of an axis if it
  // is negative; false for one of two constants.
  bool IsBound(Expr select);
  // Returns true if the condition only compares numbers that the host gives, by less-or-equal.
  bool Compares(Expr condition);
  bool IsCompared(NodeId node) const;  // see FormsOptions
  // Replaces axes whose length a broadcast has fixed by that length.
  Expr WithTakenLengths(Expr e);
  Expr BehindShared(Expr condition, Expr then, Expr otherwise);
  void DeclareDims();
  void Ensure(ValueId v);
  void EvaluateSource(ValueId v);
  void EvaluateNode(NodeId n);
  void EvaluateConstant(ValueId v, const onnx::TensorProto& tensor);
  Expr DeclaredDim(ValueId v, int axis, const Dim& dim);
  Shape DeclaredShape(ValueId v);
  bool IsForeign(NodeId n) const;
  void SetDeclared(ValueId v);
  void Finish(ValueId v, Shape shape, Expr element);

  const Graph& graph_;
  FormsOptions options_;
  Pool pool_;
  std::vector<Value> values_;
  std::vector<bool> node_done_;
  std::vector<FormAssumption> assumptions_;
  absl::flat_hash_map<Expr, AssumptionReason> assumed_;  // by predicate: the last reason
  absl::flat_hash_map<ValueId, NumberSet> assumed_numbers_;
  NamesOfSizes named_dims_;
  absl::flat_hash_map<DimSymbol, Forms::DimOrigin> origins_;
  // Axes that other inputs declare than those of IsCountOrMask.
  absl::flat_hash_set<DimSymbol> dims_of_reals_;
  absl::flat_hash_set<ValueId> foreign_;        // values of unknown rank behind foreign operators
  absl::flat_hash_map<DimSymbol, Expr> taken_;  // axes whose length broadcasts have fixed
  absl::flat_hash_map<ValueId, bool> nonnegative_;
  absl::flat_hash_map<ValueId, bool> of_host_;
  Ranges ranges_{*this};
  ClippedExtents clipped_{pool_};
};

// The access of an operator's function to its node. The function sets each output that it can. An
// output that it does not set becomes opaque with the declared rank, or its rank is unknown.
class OpContext {
 public:
  OpContext(Engine& engine, NodeId node) : engine_(engine), node_(node) {}

  Engine& engine() { return engine_; }
  Pool& pool() { return engine_.pool(); }
  NodeId node() const { return node_; }
  const onnx::NodeProto& proto() const { return engine_.graph().node(node_); }
  const std::string& op() const { return proto().op_type(); }
  int64_t Int(std::string_view name, int64_t fallback) const {
    return IntAttribute(proto(), name, fallback);
  }

  int num_inputs() const { return static_cast<int>(engine_.graph().inputs(node_).size()); }
  int num_outputs() const { return static_cast<int>(engine_.graph().outputs(node_).size()); }
  bool has(int input) const {
    return input < num_inputs() && engine_.graph().inputs(node_)[input] != kNoValue;
  }
  ValueId input(int i) const { return engine_.graph().inputs(node_)[i]; }
  ValueId output(int i) const {
    return i < num_outputs() ? engine_.graph().outputs(node_)[i] : kNoValue;
  }
  const Value& in(int i) { return engine_.Of(input(i)); }
  // Returns true if inputs 0 to n-1 are present and have a known rank.
  bool Known(int n);
  // The element type of an input; 0 if omitted or unknown.
  int32_t type(int input) const { return has(input) ? engine_.TypeOf(this->input(input)) : 0; }
  // The elements of an input as Forms::Elements gives them, or all of them as constants; nullopt if
  // they are not known, or not constant.
  std::optional<std::vector<Expr>> Elements(int input);
  std::optional<std::vector<int64_t>> ConstantInts(int input);

  void Set(int output, Shape shape, const ElementFn& fn);
  void SetElements(int output, bool scalar, std::vector<Expr> elements);
  void SetOpaque(int output, Shape shape);
  void Copy(int output, int input);  // makes the output equal to the input
  // Makes the output the elements [start, start + length) of an axis of x.
  void SetPart(int output, const Value& x, int axis, Expr start, Expr length);
  void Assume(AssumptionReason reason, Expr predicate, std::string_view why) {
    engine_.Assume(node_, reason, predicate, why);
  }
  void AssumeNonNegative(AssumptionReason reason, Expr e, const Facts& facts,
                         std::string_view why) {
    engine_.AssumeNonNegative(node_, reason, e, facts, why);
  }
  // Returns the better form of two dimensions that are equal at run time: constants first, then
  // sums of declared symbols. Assumes that they are equal if this is not provable.
  Expr Unify(Expr a, Expr b, std::string_view why,
             AssumptionReason reason = AssumptionReason::kEqualExtents);
  // Returns the shape of a multidirectional broadcast, with the assumptions that it needs. Returns
  // nullopt if two extents contradict each other, or if they may not be taken to be equal.
  std::optional<Shape> Broadcast(absl::Span<const Shape* const> shapes);
  // Returns the element of a value that is broadcast to the rank of the indices.
  Expr AtBroadcast(const Value& value, Indices indices, const Facts& facts);

 private:
  // Returns true if x is max(1, y): y, or 1 where y is 0. A broadcast of x and y has the extent y.
  bool IsThisOrOne(Expr x, Expr y);
  // Returns y if x is min(1, y), which is 1, or 0 where y is 0; else null.
  Expr CountOfLast(Expr x);
  // Assumes that axes of at most one element, such as that of the last row of another axis, are not
  // empty where an operand that is computed has one element. All results would be empty otherwise.
  void TakeAsNotEmpty(absl::Span<const Shape* const> shapes);
  // Assumes the bounds without which the shapes do not broadcast
  // (ClippedExtents::BoundOfBroadcast).
  void TakeBounds(absl::Span<const Shape* const> shapes);

  Engine& engine_;
  NodeId node_;
  std::vector<Expr> ones_;  // extents that TakeAsNotEmpty() takes to be 1
};

using OpFn = void (*)(OpContext&);
// Returns the function for an operator; nullptr if there is none.
OpFn FindOp(const std::string& domain, const std::string& op_type);

// Returns the element type of an output, as declared or from the types of the inputs; 0 if unknown.
int32_t OutputType(const Engine& engine, NodeId node, int output);

// Return axes counted from the front; nullopt if one is out of range or repeated.
std::optional<int> NormalAxis(int64_t axis, int rank);
std::optional<std::vector<int>> NormalAxes(absl::Span<const int64_t> axes, int rank);
// 0 <= i_k < shape[k].
Facts FactsOf(const Shape& shape);
// i0..i(rank-1).
std::vector<Expr> AllIndices(Pool& pool, int rank);
Expr Product(Pool& pool, absl::Span<const Expr> factors);
// Returns the number that a constant is; it may be infinite or NaN. nullopt if e is not constant.
std::optional<double> Number(Expr e);
// Returns true if e >= 0 is provable under the facts, in all branches of its selects.
bool NonNegative(Pool& pool, Expr e, const Facts& facts);
// Returns the element of a constant integer, bool or float tensor as a closed form of its indices
// (one value, a triangle of two values, a grid of integers); null if there is none.
Expr ConstantPattern(Engine& engine, const onnx::TensorProto& tensor);

// The functions for operators, by family (ops_FAMILY.cc).
#define KVLIFT_SYM_OPS(X)  \
  X(GlobalPool)            \
  X(Identity)              \
  X(Shape)                 \
  X(Size)                  \
  X(Reshape)               \
  X(Flatten)               \
  X(Squeeze)               \
  X(Unsqueeze)             \
  X(Expand)                \
  X(Tile)                  \
  X(ConstantOfShape)       \
  X(Range)                 \
  X(Concat)                \
  X(Split)                 \
  X(SequenceAt)            \
  X(Slice)                 \
  X(Transpose)             \
  X(Gather)                \
  X(GatherND)              \
  X(GatherElements)        \
  X(Pad)                   \
  X(Trilu)                 \
  X(CumSum)                \
  X(OneHot)                \
  X(EyeLike)               \
  X(ScatterND)             \
  X(ScatterElements)       \
  X(TensorScatter)         \
  X(Arithmetic)            \
  X(Compare)               \
  X(Logic)                 \
  X(Not)                   \
  X(Where)                 \
  X(Cast)                  \
  X(Clip)                  \
  X(MinMax)                \
  X(Negate)                \
  X(Log)                   \
  X(Variadic)              \
  X(SameShape)             \
  X(SameShapeAll)          \
  X(Binary)                \
  X(MatMul)                \
  X(QLinearMatMul)         \
  X(QLinearBinary)         \
  X(QLinearConcat)         \
  X(QLinearWhere)          \
  X(QGemm)                 \
  X(Gemm)                  \
  X(Reduce)                \
  X(ArgReduce)             \
  X(TopK)                  \
  X(Einsum)                \
  X(Conv)                  \
  X(AttentionOp)           \
  X(NonZero)               \
  X(LayerNorm)             \
  X(GroupQueryAttention)   \
  X(MultiHeadAttention)    \
  X(ProjectedAttention)    \
  X(Dropout)               \
  X(MatMulNBits)           \
  X(GatherBlockQuantized)  \
  X(DynamicQuantizeLinear) \
  X(DequantizeLinear)      \
  X(Random)                \
  X(SkipNorm)              \
  X(EmbedNorm)             \
  X(If)                    \
  X(StateConvolution)      \
  X(LinearAttention)       \
  X(LinearAttentionGate)   \
  X(GatedDeltaNet)
#define KVLIFT_SYM_DECLARE(name) void Op##name(OpContext& c);
KVLIFT_SYM_OPS(KVLIFT_SYM_DECLARE)
#undef KVLIFT_SYM_DECLARE

}  // namespace kvlift::sym::internal
