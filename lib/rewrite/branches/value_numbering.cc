#include "rewrite/branches/value_numbering.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/sha256.h"
#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "rewrite/types/matrix_product.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMaxSplits = 12;
constexpr size_t kMaxPartners = 400;

bool IsIn(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* other) { return op == other; });
}

bool Commutes(const std::string& op) {
  return IsIn(op, {"Add", "Mul", "And", "Or", "Xor", "Equal"});
}

void CollectLoads(Expr e, absl::flat_hash_set<Expr>* seen, std::vector<Expr>* loads) {
  if (!seen->insert(e).second) return;
  if (e->kind() == Kind::kLoad) {
    loads->push_back(e);
    return;
  }
  for (Expr arg : e->args()) CollectLoads(arg, seen, loads);
  for (const sym::Term& term : e->terms()) {
    for (Expr atom : term.atoms) CollectLoads(atom, seen, loads);
  }
}

// Returns a comparison inside e; null if there is none.
Expr SomeCondition(Expr e, absl::flat_hash_set<Expr>* seen) {
  if (!seen->insert(e).second) return nullptr;
  if (e->kind() == Kind::kLe || e->kind() == Kind::kEq) return e;
  for (Expr arg : e->args()) {
    if (Expr found = SomeCondition(arg, seen)) return found;
  }
  for (const sym::Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (Expr found = SomeCondition(atom, seen)) return found;
    }
  }
  return nullptr;
}

// Returns e given the truth of the condition. A load that an equality fixes is replaced by its
// value.
Expr Under(sym::Pool& pool, Expr e, Expr condition, bool truth) {
  if (truth && condition->kind() == Kind::kEq) {
    absl::flat_hash_set<Expr> seen;
    std::vector<Expr> loads;
    CollectLoads(condition->args()[0], &seen, &loads);
    for (Expr load : loads) {
      const auto linear = sym::LinearIn(pool, condition->args()[0], load);
      if (!linear || std::abs(linear->coefficient) != 1) continue;
      sym::Pool::Substitution s;
      s.atoms[load] = pool.Mul(linear->rest, pool.Integer(-linear->coefficient));
      return pool.Substitute(e, s, {});
    }
  }
  return pool.Assume(e, condition, truth, {});
}

}  // namespace

bool ValueNumbering::IsProductOfMatrices(NodeId n) {
  if (!ReadProduct(graph_, n) || graph_.inputs(n).size() != 2) return false;
  const auto inputs = graph_.inputs(n);
  return std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
    return v != kNoValue && forms_.Of(v).known_rank && forms_.Of(v).shape.size() >= 2;
  });
}

bool ValueNumbering::TransposesOperand(NodeId n, int operand) {
  if (operand > 1 || !IsProductOfMatrices(n)) return false;
  const Product product = *ReadProduct(graph_, n);
  return operand == 0 ? product.trans_a : product.trans_b;
}

bool ValueNumbering::Broadcasts(NodeId n) const {
  const auto& node = graph_.node(n);
  if (!IsDefaultDomain(node.domain())) return false;
  return IsIn(node.op_type(), {"Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Where", "And", "Or",
                               "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"});
}

// Returns the numbered element of a value, with index 0 on axes of extent 1; that of its transpose
// if `transposed`.
Expr ValueNumbering::ElementOf(ValueId v, bool transposed) {
  const sym::Form& form = forms_.Of(v);
  if (!form.known_rank) return nullptr;
  sym::Pool& pool = forms_.pool();
  std::vector<Expr> indices;
  sym::Facts facts = forms_.FactsFor(v);
  if (transposed) std::iter_swap(facts.extents.rbegin(), facts.extents.rbegin() + 1);
  for (size_t k = 0; k < form.shape.size(); ++k) {
    indices.push_back(facts.extents[k]->is_integer(1) ? pool.Integer(0)
                                                      : pool.Index(static_cast<int>(k)));
  }
  if (transposed) std::iter_swap(indices.rbegin(), indices.rbegin() + 1);
  const Expr element = forms_.At(v, indices, facts);
  return element == nullptr ? nullptr : Numbered(element);
}

Expr ValueNumbering::Numbered(Expr e) {
  if (const auto it = numbered_.find(e); it != numbered_.end()) return it->second;
  sym::Pool& pool = forms_.pool();
  absl::flat_hash_set<Expr> seen;
  std::vector<Expr> loads;
  CollectLoads(e, &seen, &loads);
  sym::Pool::Substitution s;
  for (Expr load : loads) {
    std::vector<Expr> args;
    for (Expr arg : load->args()) args.push_back(Numbered(arg));
    if (graph_.constant(load->source()) != nullptr) NumberConstant(load->source());
    Expr to = nullptr;
    if (const auto alias = aliases_.find(load->source()); alias != aliases_.end()) {
      to = forms_.At(alias->second, args, {});
      if (to != nullptr) to = Numbered(to);
    }
    if (to == nullptr) {
      to = pool.Load(StandingFor(load->source()), args);
    }
    if (to != load) s.atoms[load] = to;
  }
  if (!sizes_.empty()) {
    for (const sym::DimSymbol& dim : sym::DimsOf(e)) {
      if (const auto it = sizes_.find(dim); it != sizes_.end()) s.dims[dim] = it->second;
    }
  }
  // Substitutes even if nothing changes, so that equal expressions reach one normal form in the
  // same way.
  const Expr result = loads.empty() && s.dims.empty() ? e : pool.Substitute(e, s, {});
  numbered_[e] = result;
  return result;
}

void ValueNumbering::NumberConstant(ValueId v) {
  if (representative_.contains(v)) return;
  const onnx::TensorProto& tensor = *graph_.constant(v);
  std::string key = fmt::format("{}[{}]", tensor.data_type(), fmt::join(tensor.dims(), ","));
  const SpanRange span = SpanOf(tensor);
  const bool in_file =
      span.source != nullptr && span.source->content().kind == SpanSource::Kind::kDataFile;
  if (in_file || IsElsewhere(tensor)) {
    std::map<std::string, std::string> where;
    for (const auto& entry : tensor.external_data()) where[entry.key()] = entry.value();
    for (const auto& [name, value] : where) key += fmt::format("|{}={}", name, value);
  } else {
    const auto bytes = InlineBytes(tensor);
    if (!bytes.ok()) {
      representative_[v] = v;
      return;
    }
    Sha256 hash;
    hash.Update(*bytes);
    key += hash.FinishHex();
  }
  representative_[v] = constants_.try_emplace(key, v).first->second;
}

std::vector<NodeId> ValueNumbering::Behind(absl::Span<const ValueId> roots) const {
  absl::flat_hash_set<NodeId> seen;
  std::vector<NodeId> stack, result;
  const auto visit = [&](ValueId v) {
    if (v == kNoValue) return;
    const NodeId n = graph_.producer(v);
    if (n != kNoNode && seen.insert(n).second) stack.push_back(n);
  };
  for (ValueId v : roots) visit(v);
  while (!stack.empty()) {
    const NodeId n = stack.back();
    stack.pop_back();
    result.push_back(n);
    for (ValueId v : graph_.inputs(n)) visit(v);
    for (ValueId v : graph_.captures(n)) visit(v);
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool ValueNumbering::NeedsKey(NodeId n) const {
  for (ValueId v : graph_.outputs(n)) {
    if (v == kNoValue || graph_.constant(v) != nullptr) continue;
    const sym::Form& form = forms_.Of(v);
    if (!form.known_rank || form.opaque) return true;
  }
  return false;
}

// Returns operator and attributes as a text; empty if the node counts as equal to no other one.
std::string ValueNumbering::Signature(NodeId n) {
  const auto& node = graph_.node(n);
  if (IsRandomOperator(node)) return {};
  if (IsProductOfMatrices(n)) {
    return fmt::format("product:{}", FloatAttribute(node, "alpha", 1.0f));
  }
  std::map<std::string, std::string> attributes;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() > 0) return {};
    onnx::AttributeProto plain = attribute;
    plain.clear_doc_string();
    plain.clear_name();
    if (plain.has_t()) plain.mutable_t()->clear_name();
    attributes[attribute.name()] = plain.SerializeAsString();
  }
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  std::string key = fmt::format("{}:{}:{}", domain, node.op_type(), node.input_size());
  for (const auto& [name, value] : attributes) {
    key += fmt::format("|{}={}:{}", name, value.size(), value);
  }
  return key;
}

std::vector<Expr> ValueNumbering::NumberedShape(ValueId v, bool transposed) {
  std::vector<Expr> shape;
  for (Expr dim : forms_.Of(v).shape) shape.push_back(Numbered(dim));
  if (transposed) std::iter_swap(shape.rbegin(), shape.rbegin() + 1);
  return shape;
}

Expr ValueNumbering::OperandElement(NodeId n, int operand) {
  const ValueId v = graph_.inputs(n)[operand];
  const sym::Form& out = forms_.Of(graph_.outputs(n)[0]);
  const sym::Form& form = forms_.Of(v);
  if (!form.known_rank) return nullptr;
  if (!Broadcasts(n) || !out.known_rank || out.shape.size() < form.shape.size()) {
    return ElementOf(v, TransposesOperand(n, operand));
  }
  sym::Pool& pool = forms_.pool();
  const size_t offset = out.shape.size() - form.shape.size();
  std::vector<Expr> indices;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    const bool one = form.shape[k]->is_integer(1) || out.shape[offset + k]->is_integer(1);
    indices.push_back(one ? pool.Integer(0) : pool.Index(static_cast<int>(offset + k)));
  }
  const Expr element = forms_.At(v, indices, forms_.FactsFor(graph_.outputs(n)[0]));
  return element == nullptr ? nullptr : Numbered(element);
}

std::string ValueNumbering::OperandKey(NodeId n, int operand) {
  const ValueId v = graph_.inputs(n)[operand];
  if (v == kNoValue) return "-";
  std::string key = fmt::format("t{}", forms_.ElementType(v));
  const sym::Form& form = forms_.Of(v);
  if (!form.known_rank) {
    return key + fmt::format("v{}", StandingFor(v));
  }
  if (!Broadcasts(n)) {
    for (Expr dim : NumberedShape(v, TransposesOperand(n, operand))) {
      key += fmt::format(",{}", dim->id());
    }
  }
  if (const auto elements = forms_.Elements(v); elements && form.opaque) {
    for (Expr e : *elements) key += fmt::format(";{}", Numbered(e)->id());
    return key;
  }
  return key + fmt::format("e{}", OperandElement(n, operand)->id());
}

ValueId ValueNumbering::StandingFor(ValueId v) const {
  const auto it = representative_.find(v);
  return it == representative_.end() ? v : it->second;
}

void ValueNumbering::Merge(NodeId n, NodeId into) {
  const auto outputs = graph_.outputs(n);
  const auto others = graph_.outputs(into);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k] == kNoValue) continue;
    if (k >= others.size() || others[k] == kNoValue) continue;
    const ValueId equal = StandingFor(others[k]);
    representative_[outputs[k]] = equal;
    const sym::Form& form = forms_.Of(outputs[k]);
    for (int axis = 0; form.known_rank && axis < static_cast<int>(form.shape.size()); ++axis) {
      const sym::DimSymbol own = forms_.OwnSymbol(outputs[k], axis);
      if (outputs[k] != equal && sym::ContainsDim(form.shape[axis], own)) {
        sizes_[own] = forms_.pool().Dim(forms_.OwnSymbol(equal, axis));
      }
    }
  }
  if (n != into && first_side_.contains(into)) matched_.insert(n);
}

bool ValueNumbering::SameOperand(NodeId a, NodeId b, int operand) {
  const ValueId x = graph_.inputs(a)[operand], y = graph_.inputs(b)[operand];
  if (x == kNoValue || y == kNoValue) return x == y;
  if (OperandKey(a, operand) == OperandKey(b, operand)) return true;
  if (forms_.ElementType(x) != forms_.ElementType(y)) return false;
  if (!forms_.Of(x).known_rank || !forms_.Of(y).known_rank) return false;
  if (!Broadcasts(a) && NumberedShape(x, TransposesOperand(a, operand)) !=
                            NumberedShape(y, TransposesOperand(b, operand))) {
    return false;
  }
  return Same(OperandElement(a, operand), OperandElement(b, operand));
}

// Looks for a node of the first side that is equal by cases, or that the bridge takes as equal.
// Merges n into it and returns true if there is one.
bool ValueNumbering::Bridged(NodeId n, const std::string& signature) {
  const auto it = by_signature_.find(signature);
  if (it == by_signature_.end() || it->second.size() > kMaxPartners) return false;
  std::vector<OperandGap> gaps;
  for (NodeId other : it->second) {
    if (Broadcasts(n) &&
        NumberedShape(graph_.outputs(n)[0]) != NumberedShape(graph_.outputs(other)[0])) {
      continue;
    }
    int differing = -1, count = 0;
    for (int k = 0; k < static_cast<int>(graph_.inputs(n).size()) && count < 2; ++k) {
      if (SameOperand(n, other, k)) continue;
      differing = k;
      ++count;
    }
    if (count == 0) {
      Merge(n, other);
      return true;
    }
    if (count == 1) gaps.push_back({n, other, differing});
  }
  if (bridge_ == nullptr) return false;
  for (const OperandGap& gap : gaps) {
    if (!bridge_(context_, *this, gap)) continue;
    Merge(n, gap.partner);
    return true;
  }
  return false;
}

void ValueNumbering::NumberNode(NodeId n) {
  if (!done_.insert(n).second) return;
  if (side_ == 1) first_side_.insert(n);
  if (!NeedsKey(n)) return;
  const std::string signature = Signature(n);
  if (signature.empty()) return;
  std::vector<std::string> operands;
  for (int k = 0; k < static_cast<int>(graph_.inputs(n).size()); ++k) {
    operands.push_back(OperandKey(n, k));
  }
  if (Commutes(graph_.node(n).op_type())) std::sort(operands.begin(), operands.end());
  std::string key = fmt::format("{}({})", signature, fmt::join(operands, "/"));
  if (Broadcasts(n) && forms_.Of(graph_.outputs(n)[0]).known_rank) {
    for (Expr dim : NumberedShape(graph_.outputs(n)[0])) key += fmt::format(",{}", dim->id());
  }
  const auto [it, fresh] = by_key_.try_emplace(key, n);
  if (!fresh) return Merge(n, it->second);
  if (side_ == 1) {
    by_signature_[signature].push_back(n);
  } else {
    Bridged(n, signature);
  }
}

void ValueNumbering::Number(absl::Span<const ValueId> roots, Bridge bridge, void* context) {
  ++side_;
  bridge_ = bridge;
  context_ = context;
  for (NodeId n : Behind(roots)) NumberNode(n);
}

bool ValueNumbering::Same(Expr a, Expr b) {
  if (a == nullptr || b == nullptr) return false;
  return SplitCases(a, b, 0);
}

bool ValueNumbering::SplitCases(Expr a, Expr b, int depth) {
  if (a == b) return true;
  if (depth == kMaxSplits) return false;
  absl::flat_hash_set<Expr> seen;
  Expr condition = SomeCondition(a, &seen);
  if (condition == nullptr) condition = SomeCondition(b, &seen);
  if (condition == nullptr) return false;
  sym::Pool& pool = forms_.pool();
  for (bool truth : {true, false}) {
    const Expr x = Under(pool, a, condition, truth), y = Under(pool, b, condition, truth);
    if (x == a && y == b) return false;
    if (!SplitCases(x, y, depth + 1)) return false;
  }
  return true;
}

bool ValueNumbering::Same(ValueId a, ValueId b) {
  if (forms_.ElementType(a) != forms_.ElementType(b)) return false;
  if (StandingFor(a) == StandingFor(b)) return true;
  if (!forms_.Of(a).known_rank || !forms_.Of(b).known_rank) return false;
  if (NumberedShape(a) != NumberedShape(b)) return false;
  return Same(ElementOf(a), ElementOf(b));
}

NodeId ValueNumbering::FirstWithoutPartner(absl::Span<const ValueId> values) {
  for (NodeId n : Behind(values)) {
    if (first_side_.contains(n) || matched_.contains(n) || !NeedsKey(n)) continue;
    return n;
  }
  return kNoNode;
}

}  // namespace kvlift
