// The evaluator behind sym/forms.h: one value per graph value, computed node by node in
// topological order, and what an operator's function may ask and say. Internal to lib/sym.
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
#include "ir/graph.h"
#include "sym/expr.h"
#include "sym/forms.h"
#include "sym/ranges.h"

namespace kvlift::sym::internal {

using Shape = std::vector<Expr>;
using Indices = absl::Span<const Expr>;
// The element at the given indices; null if it cannot be told.
using ElementFn = std::function<Expr(Indices, const Facts&)>;

struct Value {
  Form form;
  // A rank-0 or rank-1 value of small constant length, element by element.
  std::optional<std::vector<Expr>> elements;
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
  absl::Span<const Assumption> assumptions() const { return assumptions_; }
  std::optional<Forms::DimOrigin> OriginOf(const DimSymbol& dim) const;

  // Element of a value of known rank.
  Expr At(const Value& value, Indices indices, const Facts& facts);
  std::optional<std::vector<Expr>> Elements(const Value& value);

  // Sets a value. An element that is null or beyond the budget makes it opaque.
  void Set(ValueId v, Shape shape, const ElementFn& fn);
  void SetElements(ValueId v, bool scalar, std::vector<Expr> elements);
  // Another name for a value that is known element by element, too.
  void KeepElements(ValueId v, std::vector<Expr> elements);
  void SetOpaque(ValueId v, Shape shape);
  void SetUnknown(ValueId v);
  // A dim symbol of the value's own, for an extent that only the data tells.
  DimSymbol OwnSymbol(ValueId v, int axis) const;
  Expr OwnDim(ValueId v, int axis) { return pool_.Dim(OwnSymbol(v, axis)); }

  void Assume(NodeId node, AssumptionReason reason, Expr predicate, std::string_view why);
  // e >= 0 is provable under facts, or follows from an assumption that was made.
  bool IsNonNegative(Expr e, const Facts& facts);
  // Assumes `e` >= 0 unless it is.
  void AssumeNonNegative(NodeId node, AssumptionReason reason, Expr e, const Facts& facts,
                         std::string_view why);
  // The integers that e may be, under facts about its indices.
  Interval RangeOf(Expr e, const Facts& facts) { return ranges_.Of(e, facts); }
  // e, if a machine's arithmetic in this type gives it exactly; null if it may leave the type, or
  // be rounded. Numbers and real data are as they were computed.
  Expr Exact(Expr e, int32_t type, const Facts& facts);
  // The number of elements that steps of `step` >= 1 visit on an axis of `length` >= 0 elements;
  // null if 64 bits may not hold the sum that it is computed by.
  Expr StridedLength(Expr length, int64_t step);
  // Whether a broadcast of a node may take two extents for one; neither is the constant 1. True may
  // fix the length of an axis that an input declares, for all broadcasts that follow.
  bool MayBeTakenAsEqual(NodeId node, Expr a, Expr b);
  // Inputs of integers and truths declare the axis, and no input of real numbers does.
  bool IsOnlyOfIntegers(const DimSymbol& axis) const;
  int32_t TypeOf(ValueId v) const { return values_[v].type; }
  // All values the constant integer tensor behind v can have are >= 0.
  bool ConstantIsNonNegative(ValueId v);

  // Logic on expressions, see forms_logic.cc.
  Expr Select(Expr condition, Expr then, Expr otherwise);
  Expr AsPredicate(Expr e);
  // Conjunction without conjuncts that others imply.
  Expr And(Expr p, Expr q);
  Expr Or(Expr p, Expr q);
  // Applies fn below selects; null if fn gives null or there are too many leaves.
  Expr Lift(std::vector<Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn);
  // No real number can come out of e: built from integers, integer loads and predicates.
  bool IsIntegral(Expr e);
  bool HasFloatLoad(Expr e);
  // e reads a tensor that is no constant of the graph.
  bool DependsOnData(Expr e);
  // e reads a constant float table at a place that data decides (an embedding).
  bool HasDataDependentTableRead(Expr e);

 private:
  bool IsCompared(NodeId node) const;  // see FormsOptions
  // e with the lengths in place of the axes that broadcasts have fixed.
  Expr WithTakenLengths(Expr e);
  Expr BehindShared(Expr condition, Expr then, Expr otherwise);
  void DeclareDims();
  void Ensure(ValueId v);
  void EvaluateSource(ValueId v);
  void EvaluateNode(NodeId n);
  void EvaluateConstant(ValueId v, const onnx::TensorProto& tensor);
  Expr DeclaredDim(ValueId v, int axis, const Dim& dim);
  Shape DeclaredShape(ValueId v);
  void SetDeclared(ValueId v);
  void Finish(ValueId v, Shape shape, Expr element);

  const Graph& graph_;
  FormsOptions options_;
  Pool pool_;
  std::vector<Value> values_;
  std::vector<bool> node_done_;
  std::vector<Assumption> assumptions_;
  absl::flat_hash_set<Expr> assumed_;
  absl::flat_hash_set<std::string> plain_dims_;  // names some graph input declares on their own
  absl::flat_hash_map<DimSymbol, Forms::DimOrigin> origins_;
  absl::flat_hash_set<DimSymbol> dims_of_reals_;  // declared by an input of real numbers
  absl::flat_hash_map<DimSymbol, Expr> taken_;    // lengths that broadcasts fixed
  absl::flat_hash_map<ValueId, bool> nonnegative_;
  Ranges ranges_{*this};
};

// What an operator's function sees of its node. A function sets every output it can; outputs left
// alone become opaque.
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
  // Inputs 0 to n-1 are there and of known rank.
  bool Known(int n);
  int32_t type(int input) const { return has(input) ? engine_.TypeOf(this->input(input)) : 0; }
  std::optional<std::vector<Expr>> Elements(int input);
  std::optional<std::vector<int64_t>> ConstantInts(int input);

  void Set(int output, Shape shape, const ElementFn& fn);
  void SetElements(int output, bool scalar, std::vector<Expr> elements);
  void SetOpaque(int output, Shape shape);
  void Copy(int output, int input);  // the output is the input
  void Assume(AssumptionReason reason, Expr predicate, std::string_view why) {
    engine_.Assume(node_, reason, predicate, why);
  }
  void AssumeNonNegative(AssumptionReason reason, Expr e, const Facts& facts,
                         std::string_view why) {
    engine_.AssumeNonNegative(node_, reason, e, facts, why);
  }
  // The one of two dims that are equal at run time, an assumption if that is not provable.
  Expr Unify(Expr a, Expr b, std::string_view why,
             AssumptionReason reason = AssumptionReason::kEqualExtents);
  // Multidirectional broadcasting; nullopt if constant dims contradict.
  std::optional<Shape> Broadcast(absl::Span<const Shape* const> shapes);
  // Element of a value broadcast to the rank of the indices.
  Expr AtBroadcast(const Value& value, Indices indices, const Facts& facts);

 private:
  Engine& engine_;
  NodeId node_;
};

using OpFn = void (*)(OpContext&);
// nullptr if the operator is not known.
OpFn FindOp(const std::string& domain, const std::string& op_type);

// The element type of an output, from the types of the inputs; 0 if unknown.
int32_t OutputType(const Engine& engine, NodeId node, int output);

// axis counted from the front; nullopt if outside.
std::optional<int> NormalAxis(int64_t axis, int rank);
std::optional<std::vector<int>> NormalAxes(absl::Span<const int64_t> axes, int rank);
Facts FactsOf(const Shape& shape);
std::vector<Expr> AllIndices(Pool& pool, int rank);
Expr Product(Pool& pool, absl::Span<const Expr> factors);
// The finite or infinite number a constant is.
std::optional<double> Number(Expr e);
// e >= 0 provable under facts, for all values of the indices.
bool NonNegative(Pool& pool, Expr e, const Facts& facts);
// A closed form of a constant integer, bool or float tensor; null if there is none.
Expr ConstantPattern(Engine& engine, const onnx::TensorProto& tensor);

// Operators, by family (ops_FAMILY.cc).
#define KVLIFT_SYM_OPS(X)  \
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
  X(Variadic)              \
  X(SameShape)             \
  X(SameShapeAll)          \
  X(Binary)                \
  X(MatMul)                \
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
  X(Dropout)               \
  X(MatMulNBits)           \
  X(DynamicQuantizeLinear) \
  X(Random)                \
  X(SkipNorm)
#define KVLIFT_SYM_DECLARE(name) void Op##name(OpContext& c);
KVLIFT_SYM_OPS(KVLIFT_SYM_DECLARE)
#undef KVLIFT_SYM_DECLARE

}  // namespace kvlift::sym::internal
