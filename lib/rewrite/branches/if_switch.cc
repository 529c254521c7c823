#include "rewrite/branches/if_switch.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr char kPositive[] = "extent above 0";

// Returns the condition's only element; null if its rank is not known.
Expr ElementOf(sym::Forms& forms, ValueId condition) {
  const sym::Form& form = forms.Of(condition);
  if (!form.known_rank) return nullptr;
  std::vector<Expr> zeros(form.shape.size(), forms.pool().Integer(0));
  return forms.At(condition, zeros, {});
}

std::optional<bool> Truth(sym::Pool& pool, Expr e) {
  if (e->kind() == Kind::kInteger) return e->value() != 0;
  if (!e->is_predicate()) return std::nullopt;
  switch (pool.Prove(e, {})) {
    case sym::Truth::kYes:
      return true;
    case sym::Truth::kNo:
      return false;
    default:
      return std::nullopt;
  }
}

std::optional<bool> WithInput(sym::Forms& forms, Expr e, const std::string& input, bool value) {
  const std::vector<Expr> loads = sym::OuterLoadsOf(e);
  sym::Pool::Substitution s;
  for (Expr load : loads) {
    if (forms.graph().name(load->source()) != input) return std::nullopt;
    s.atoms[load] = forms.pool().Integer(value ? 1 : 0);
  }
  return Truth(forms.pool(), forms.pool().Substitute(e, s, {}));
}

std::optional<bool> WithExtent(sym::Forms& forms, Expr e, const sym::DimSymbol& dim,
                               bool positive) {
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution s;
  s.dims[dim] = positive ? pool.Internal(kPositive, 1) : pool.Integer(0);
  return Truth(pool, pool.Substitute(e, s, {}));
}

// Returns true for a bool or integer input of rank 0 or 1.
bool MayDecide(const Graph& graph, ValueId v) {
  const TensorType& type = graph.type(v);
  if (!graph.is_graph_input(v) || graph.constant(v) != nullptr) return false;
  const bool flag = type.elem_type == onnx::TensorProto::BOOL || IsIntegerType(type.elem_type);
  return flag && type.shape && type.shape->size() <= 1;
}

std::optional<Switch> SwitchOf(sym::Forms& forms, ValueId condition) {
  const Expr e = ElementOf(forms, condition);
  if (e == nullptr) return std::nullopt;
  const auto sources = sym::SourcesOf(e);
  const auto dims = sym::DimsOf(e);
  Switch found;
  if (sources.size() == 1 && dims.empty() && MayDecide(forms.graph(), sources[0])) {
    found.input = forms.graph().name(sources[0]);
  } else if (sources.empty() && dims.size() == 1 && forms.OriginOf(dims[0])) {
    found.dim = dims[0];
  } else {
    return std::nullopt;
  }
  const auto yes = found.Taken(true)(forms, condition), no = found.Taken(false)(forms, condition);
  if (!yes || !no || *yes == *no) return std::nullopt;
  return found;
}

}  // namespace

ConditionFn Switch::Taken(bool truth) const {
  const Switch self = *this;
  return [self, truth](sym::Forms& forms, ValueId asked) -> std::optional<bool> {
    const Expr e = ElementOf(forms, asked);
    if (e == nullptr) return std::nullopt;
    return self.by_input() ? WithInput(forms, e, self.input, truth)
                           : WithExtent(forms, e, self.dim, truth);
  };
}

absl::StatusOr<std::optional<Switch>> FindSwitch(const onnx::ModelProto& model) {
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(model)));
  sym::Forms forms(graph);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!graph.Is(n, "If") || graph.inputs(n).size() != 1) continue;
    auto found = SwitchOf(forms, graph.inputs(n)[0]);
    if (!found) continue;
    found->node = graph.NodeName(n);
    found->condition = graph.name(graph.inputs(n)[0]);
    return found;
  }
  return std::nullopt;
}

std::optional<bool> ProvableCondition(sym::Forms& forms, ValueId condition) {
  const Expr e = ElementOf(forms, condition);
  return e == nullptr ? std::nullopt : Truth(forms.pool(), e);
}

}  // namespace kvlift
