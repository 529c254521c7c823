#include "sym/forms/forms.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "ir/declared_sizes.h"
#include "ir/operators/operator_changes.h"
#include "ir/tensor_data.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym {
namespace internal {
namespace {

// Returns first + step * i0 for three or more elements at equal distances; null otherwise.
Expr Progression(Engine& engine, absl::Span<const Expr> elements) {
  Pool& pool = engine.pool();
  if (elements.size() < 3) return nullptr;
  for (Expr e : elements) {
    if (!engine.IsIntegral(e)) return nullptr;
  }
  const Expr step = pool.Sub(elements[1], elements[0]);
  for (size_t k = 2; k < elements.size(); ++k) {
    if (pool.Sub(elements[k], elements[k - 1]) != step) return nullptr;
  }
  return pool.Add(elements[0], pool.Mul(step, pool.Index(0)));
}

// Returns the elements as one expression of i0.
Expr FromElements(Engine& engine, absl::Span<const Expr> elements) {
  Pool& pool = engine.pool();
  if (elements.empty()) return pool.Integer(0);
  if (const Expr even = Progression(engine, elements)) return even;
  const Expr i0 = pool.Index(0);
  Expr result = elements.back();
  for (size_t k = elements.size() - 1; k-- > 0;) {
    const Expr here = pool.Eq(i0, pool.Integer(static_cast<int64_t>(k)), Facts{});
    result = pool.Select(here, elements[k], result);
  }
  return result;
}

}  // namespace

Engine::Engine(const Graph& graph, const FormsOptions& options)
    : graph_(graph), options_(options), values_(graph.num_values()), node_done_(graph.num_nodes()) {
  DeclareDims();
}

void Engine::DeclareDims() {
  named_dims_ = NamesOfSizesIn(graph_.proto());
  for (ValueId v : graph_.graph_inputs()) {
    if (!graph_.type(v).shape) continue;
    const Shape shape = DeclaredShape(v);
    const bool of_reals = !IsCountOrMask(v);
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      if (shape[axis]->kind() != Kind::kDim) continue;
      origins_.try_emplace(shape[axis]->dim(), Forms::DimOrigin{v, axis});
      if (of_reals) dims_of_reals_.insert(shape[axis]->dim());
    }
  }
}

DimSymbol Engine::OwnSymbol(ValueId v, int axis) const {
  return DimSymbol::Internal(fmt::format("{}.shape[{}]", graph_.name(v), axis));
}

Expr Engine::DeclaredDim(ValueId v, int axis, const Dim& dim) {
  if (dim.value) return *dim.value >= 0 ? pool_.Integer(*dim.value) : OwnDim(v, axis);
  if (named_dims_.contains(dim.param)) return pool_.Dim(dim.param);
  if (dim.param.find('+') == std::string::npos) return OwnDim(v, axis);
  Expr sum = pool_.Integer(0);
  for (const std::string& part : SummandsOf(dim.param)) {
    if (!named_dims_.contains(part)) return OwnDim(v, axis);
    sum = pool_.Add(sum, pool_.Dim(part));
  }
  return sum;
}

Shape Engine::DeclaredShape(ValueId v) {
  Shape shape;
  for (const Dim& dim : *graph_.type(v).shape) {
    shape.push_back(DeclaredDim(v, static_cast<int>(shape.size()), dim));
  }
  return shape;
}

std::optional<Forms::DimOrigin> Engine::OriginOf(const DimSymbol& dim) const {
  const auto it = origins_.find(dim);
  if (it == origins_.end()) return std::nullopt;
  return it->second;
}

const Value& Engine::Of(ValueId v) {
  if (!values_[v].done) Ensure(v);
  return values_[v];
}

// The stack is explicit because decoders are thousands of nodes deep.
void Engine::Ensure(ValueId v) {
  std::vector<NodeId> stack;
  const auto visit = [&](ValueId value) {
    if (value == kNoValue || values_[value].done) return false;
    if (graph_.producer(value) == kNoNode || graph_.constant(value) != nullptr) {
      EvaluateSource(value);
      return false;
    }
    stack.push_back(graph_.producer(value));
    return true;
  };
  visit(v);
  while (!stack.empty()) {
    const NodeId n = stack.back();
    bool ready = true;
    if (!node_done_[n]) {
      const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
      ready = std::none_of(inputs.begin(), inputs.end(), visit) &&
              (!graph_.Is(n, "If") || std::none_of(captures.begin(), captures.end(), visit));
    }
    if (!ready) continue;
    stack.pop_back();
    if (!node_done_[n]) EvaluateNode(n);
  }
}

void Engine::EvaluateSource(ValueId v) {
  Value& value = values_[v];
  value.type = graph_.type(v).elem_type;
  if (const onnx::TensorProto* tensor = graph_.constant(v)) {
    value.type = tensor->data_type();
    EvaluateConstant(v, *tensor);
  } else if (graph_.is_graph_input(v) && graph_.type(v).shape) {
    SetOpaque(v, DeclaredShape(v));
  } else {
    SetDeclared(v);
  }
}

void Engine::EvaluateNode(NodeId n) {
  const absl::Span<const ValueId> outputs = graph_.outputs(n);
  for (int k = 0; k < static_cast<int>(outputs.size()); ++k) {
    if (outputs[k] != kNoValue) values_[outputs[k]].type = OutputType(*this, n, k);
  }
  const onnx::NodeProto& proto = graph_.node(n);
  if (const OpFn fn = FindOp(proto.domain(), proto.op_type()); fn && !pool_.exhausted()) {
    OpContext context(*this, n);
    fn(context);
  }
  for (ValueId v : outputs) {
    if (v != kNoValue && !values_[v].done) SetDeclared(v);
  }
  node_done_[n] = true;
}

// Returns true if the shape of a node's results depends on an operator of another domain of which
// nothing is known.
bool Engine::IsForeign(NodeId n) const {
  if (n == kNoNode) return false;
  if (!IsDefaultDomain(graph_.node(n).domain())) return true;
  const auto inputs = graph_.inputs(n);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return foreign_.contains(v); });
}

// Makes a value opaque with the rank that the model declares for it. Declared extents are trusted
// only behind operators of other domains, of which nothing else is known, and that is an
// assumption: exporters leave the extents of the run that they traced, and runtimes compute others.
void Engine::SetDeclared(ValueId v) {
  const NodeId n = graph_.producer(v);
  const bool foreign = IsForeign(n);
  const TensorType& type = graph_.type(v);
  if (!type.shape) {
    if (foreign) foreign_.insert(v);
    return SetUnknown(v);
  }
  Shape shape;
  for (int axis = 0; axis < static_cast<int>(type.shape->size()); ++axis) {
    const std::optional<int64_t>& size = (*type.shape)[axis].value;
    const Expr own = OwnDim(v, axis);
    const bool usable = foreign && size && *size >= 0;
    shape.push_back(usable ? pool_.Integer(*size) : own);
    if (!usable) continue;
    Assume(n, AssumptionReason::kDeclared, pool_.Eq(own, shape.back(), Facts{}), "declared size");
  }
  SetOpaque(v, std::move(shape));
}

void Engine::EvaluateConstant(ValueId v, const onnx::TensorProto& tensor) {
  Shape shape;
  for (int64_t d : tensor.dims()) {
    if (d < 0) return SetUnknown(v);
    shape.push_back(pool_.Integer(d));
  }
  const bool is_whole =
      IsIntegerType(tensor.data_type()) || tensor.data_type() == onnx::TensorProto::BOOL;
  if (is_whole && shape.size() == 1 && tensor.dims(0) > 0 && tensor.dims(0) <= kMaxVector) {
    if (const auto ints = ReadInts(tensor); ints.ok()) {
      std::vector<Expr> elements;
      for (int64_t x : *ints) elements.push_back(pool_.Integer(x));
      const Expr pattern = ConstantPattern(*this, tensor);
      const bool small = elements.size() <= 8;
      if (pattern == nullptr && !small) {
        SetOpaque(v, std::move(shape));
      } else {
        Finish(v, std::move(shape), pattern != nullptr ? pattern : FromElements(*this, elements));
      }
      values_[v].elements = std::move(elements);
      return;
    }
  }
  const Expr pattern = ConstantPattern(*this, tensor);
  if (pattern == nullptr) return SetOpaque(v, std::move(shape));
  Finish(v, std::move(shape), pattern);
}

Expr Engine::At(const Value& value, Indices indices, const Facts& facts) {
  if (static_cast<int>(indices.size()) != value.rank()) return nullptr;
  if (value.elements && indices.size() == 1 && indices[0]->kind() == Kind::kInteger) {
    const int64_t k = indices[0]->value();
    if (k >= 0 && k < static_cast<int64_t>(value.elements->size())) return (*value.elements)[k];
  }
  const Expr element = value.form.element;
  if (value.form.opaque) return pool_.Load(element->source(), indices);
  bool same = facts.extents == value.form.shape;
  for (size_t k = 0; k < indices.size(); ++k) {
    same = same && indices[k] == pool_.Index(static_cast<int>(k));
  }
  if (same) return element;
  Pool::Substitution s;
  s.indices.assign(indices.begin(), indices.end());
  return pool_.Substitute(element, s, facts);
}

std::optional<std::vector<Expr>> Engine::Elements(const Value& value) {
  if (value.elements) {
    std::vector<Expr> elements = *value.elements;
    for (Expr& x : elements) x = clipped_.Simplified(x);
    return elements;
  }
  if (!value.form.known_rank || value.rank() > 1) return std::nullopt;
  if (value.rank() == 0) return std::vector<Expr>{value.form.element};
  if (value.dim(0)->kind() != Kind::kInteger || value.dim(0)->value() > kMaxVector) {
    return std::nullopt;
  }
  std::vector<Expr> result;
  for (int64_t k = 0; k < value.dim(0)->value(); ++k) {
    const Expr index = pool_.Integer(k);
    result.push_back(At(value, {&index, 1}, Facts{}));
  }
  return result;
}

void Engine::Finish(ValueId v, Shape shape, Expr element) {
  if (element == nullptr || element->size() > kMaxExprSize) {
    return SetOpaque(v, std::move(shape));
  }
  Value& value = values_[v];
  value.form.known_rank = true;
  value.form.shape = std::move(shape);
  value.form.element = element;
  value.form.opaque = element->kind() == Kind::kLoad && element->source() == v;
  value.done = true;
}

void Engine::Set(ValueId v, Shape shape, const ElementFn& fn) {
  if (v == kNoValue) return;
  for (Expr& dim : shape) {
    if (dim == nullptr || dim->size() > kMaxExprSize) return SetUnknown(v);
    dim = clipped_.Simplified(dim);
  }
  const Facts facts = FactsOf(shape);
  const int rank = static_cast<int>(shape.size());
  Expr element = fn(AllIndices(pool_, rank), facts);
  std::optional<std::vector<Expr>> elements;
  const bool exact = !IsFloatType(values_[v].type);
  if (exact && rank == 1 && shape[0]->kind() == Kind::kInteger && shape[0]->value() <= kMaxVector) {
    elements.emplace();
    for (int64_t k = 0; k < shape[0]->value(); ++k) {
      const Expr index = pool_.Integer(k);
      const Expr x = fn({&index, 1}, Facts{});
      if (x == nullptr || x->size() > kMaxExprSize) {
        elements.reset();
        break;
      }
      elements->push_back(x);
    }
  }
  Finish(v, std::move(shape), element);
  values_[v].elements = std::move(elements);
}

void Engine::SetElements(ValueId v, bool scalar, std::vector<Expr> elements) {
  if (v == kNoValue) return;
  for (Expr x : elements) {
    if (x == nullptr) return SetUnknown(v);
  }
  if (scalar && elements.size() == 1) return Finish(v, {}, elements[0]);
  const Expr length = pool_.Integer(static_cast<int64_t>(elements.size()));
  Finish(v, {length}, FromElements(*this, elements));
  values_[v].elements = std::move(elements);
}

void Engine::KeepElements(ValueId v, std::vector<Expr> elements) {
  if (v != kNoValue) values_[v].elements = std::move(elements);
}

void Engine::SetOpaque(ValueId v, Shape shape) {
  if (v == kNoValue) return;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == nullptr || shape[axis]->size() > kMaxExprSize) {
      shape[axis] = OwnDim(v, static_cast<int>(axis));
    }
    shape[axis] = clipped_.Simplified(shape[axis]);
  }
  Value& value = values_[v];
  value.form.known_rank = true;
  value.form.opaque = true;
  value.form.element = pool_.Load(v, AllIndices(pool_, static_cast<int>(shape.size())));
  value.form.shape = std::move(shape);
  value.elements.reset();
  value.done = true;
}

void Engine::SetUnknown(ValueId v) {
  if (v == kNoValue) return;
  values_[v].form = Form{};
  values_[v].elements.reset();
  values_[v].done = true;
}

void Engine::Assume(NodeId node, AssumptionReason reason, Expr predicate, std::string_view why) {
  if (predicate->is_integer(1)) return;
  const auto [it, fresh] = assumed_.try_emplace(predicate, reason);
  // A condition that was recorded for a broadcast is recorded again if an operator also requires it
  // in every run.
  const bool stronger = !fresh && reason == AssumptionReason::kEqualExtents &&
                        it->second == AssumptionReason::kBroadcast;
  if (!fresh && !stronger) return;
  it->second = reason;
  if (reason == AssumptionReason::kInside) clipped_.Take(predicate);
  std::string text =
      fmt::format("{} ({}, {})", ToString(predicate, &graph_), why, graph_.NodeName(node));
  assumptions_.push_back({node, reason, std::move(text), predicate});
}

bool Engine::IsNonNegative(Expr e, const Facts& facts) {
  constexpr size_t kMaxConsulted = 64;
  if (NonNegative(pool_, e, facts)) return true;
  size_t consulted = 0;
  for (const FormAssumption& other : assumptions_) {
    if (++consulted > kMaxConsulted) break;
    if (other.predicate->kind() != Kind::kLe) continue;
    if (NonNegative(pool_, pool_.Add(e, other.predicate->args()[0]), facts)) return true;
  }
  return false;
}

void Engine::AssumeNonNegative(NodeId node, AssumptionReason reason, Expr e, const Facts& facts,
                               std::string_view why) {
  if (IsNonNegative(e, facts)) return;
  Assume(node, reason, pool_.Le(pool_.Integer(0), e, facts), why);
}

bool Engine::ConstantIsNonNegative(ValueId v) {
  const auto [it, fresh] = nonnegative_.try_emplace(v, false);
  if (!fresh) return it->second;
  const onnx::TensorProto* tensor = graph_.constant(v);
  if (tensor == nullptr) return false;
  const auto ints = ReadInts(*tensor);
  if (!ints.ok()) return false;
  const bool result = std::all_of(ints->begin(), ints->end(), [](int64_t x) { return x >= 0; });
  nonnegative_[v] = result;
  return result;
}

}  // namespace internal

struct Forms::Impl {
  internal::Engine engine;
};

Forms::Forms(const Graph& graph, const FormsOptions& options)
    : impl_(new Impl{internal::Engine(graph, options)}) {}
Forms::~Forms() = default;

const Graph& Forms::graph() const { return impl_->engine.graph(); }
Pool& Forms::pool() { return impl_->engine.pool(); }
const Form& Forms::Of(ValueId v) {
  static const Form unknown;
  return v == kNoValue ? unknown : impl_->engine.Of(v).form;
}

const Form* Forms::Known(ValueId v) const {
  return v == kNoValue ? nullptr : impl_->engine.Known(v);
}

Expr Forms::At(ValueId v, absl::Span<const Expr> indices, const Facts& facts) {
  if (v == kNoValue) return nullptr;
  const internal::Value& value = impl_->engine.Of(v);
  if (!value.form.known_rank) return nullptr;
  return impl_->engine.At(value, indices, facts);
}

Facts Forms::FactsFor(ValueId v) { return internal::FactsOf(Of(v).shape); }

std::optional<std::vector<Expr>> Forms::Elements(ValueId v) {
  if (v == kNoValue) return std::nullopt;
  return impl_->engine.Elements(impl_->engine.Of(v));
}

int32_t Forms::ElementType(ValueId v) {
  if (v == kNoValue) return onnx::TensorProto::UNDEFINED;
  impl_->engine.Of(v);
  return impl_->engine.TypeOf(v);
}

Truth Forms::ProveByRanges(Expr e, const Facts& facts) {
  const auto opposite = [](Truth truth) {
    return truth == Truth::kYes ? Truth::kNo : truth == Truth::kNo ? Truth::kYes : truth;
  };
  if (e->kind() == Kind::kInteger) return e->value() != 0 ? Truth::kYes : Truth::kNo;
  if (e->kind() == Kind::kNot) return opposite(ProveByRanges(e->args()[0], facts));
  if (e->kind() == Kind::kAnd) {
    Truth all = Truth::kYes;
    for (Expr part : e->args()) {
      const Truth one = ProveByRanges(part, facts);
      if (one == Truth::kNo) return Truth::kNo;
      if (one == Truth::kUnknown) all = Truth::kUnknown;
    }
    return all;
  }
  if (e->kind() != Kind::kLe) return Truth::kUnknown;
  const internal::Interval range = impl_->engine.RangeOf(e->args()[0], facts);
  return range.high <= 0 ? Truth::kYes : range.low > 0 ? Truth::kNo : Truth::kUnknown;
}

void Forms::AssumeNumbersOf(ValueId input, const NumberSet& numbers) {
  impl_->engine.AssumeNumbersOf(input, numbers);
}

void Forms::AssumeCounts(ValueId input) {
  const Form& form = Of(input);
  if (!form.known_rank || form.shape.size() > 1) return;
  const std::vector<Expr> first(form.shape.size(), pool().Integer(0));
  const Expr count = pool().Load(input, first);
  impl_->engine.clipped().Take(pool().Le(pool().Integer(0), count, Facts{}));
}

namespace {

thread_local int64_t most_size = int64_t{1} << 20;

}  // namespace

int64_t MostSize() { return most_size; }

SizesUpTo::SizesUpTo(int64_t size) : before_(most_size) { most_size = std::max(before_, size); }

SizesUpTo::~SizesUpTo() { most_size = before_; }

NumberSet Forms::NumbersOf(ValueId v) {
  if (v == kNoValue) return {};
  impl_->engine.Of(v);
  return impl_->engine.NumbersOf(v);
}

std::optional<Forms::DimOrigin> Forms::OriginOf(const DimSymbol& dim) const {
  return impl_->engine.OriginOf(dim);
}

DimSymbol Forms::OwnSymbol(ValueId v, int axis) const { return impl_->engine.OwnSymbol(v, axis); }

bool Forms::FitsInt64(Expr e, const Facts& facts) {
  return impl_->engine.RangeOf(e, facts).Within(
      internal::ExactIntegersOf(onnx::TensorProto::INT64));
}

bool Forms::exhausted() const { return impl_->engine.exhausted(); }

absl::Span<const FormAssumption> Forms::assumptions() const { return impl_->engine.assumptions(); }

}  // namespace kvlift::sym
