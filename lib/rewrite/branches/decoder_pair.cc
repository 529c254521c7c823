#include "rewrite/branches/decoder_pair.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "ir/subgraphs.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;

absl::StatusOr<onnx::ModelProto> Combine(const onnx::ModelProto& later,
                                         const onnx::ModelProto& first,
                                         const absl::flat_hash_set<std::string>& shared) {
  onnx::ModelProto both = later;
  onnx::GraphProto* graph = both.mutable_graph();
  absl::flat_hash_map<std::string, std::string> names;
  const auto define = [&](const std::string& name) {
    if (!name.empty() && !shared.contains(name)) names[name] = kFirstCall + name;
  };
  for (const auto& tensor : first.graph().initializer()) define(tensor.name());
  for (const auto& node : first.graph().node()) {
    for (const auto& output : node.output()) define(output);
  }
  for (const auto& tensor : first.graph().initializer()) {
    const auto it = names.find(tensor.name());
    if (it == names.end()) continue;
    onnx::TensorProto* copy = graph->add_initializer();
    *copy = tensor;
    copy->set_name(it->second);
  }
  for (const auto& node : first.graph().node()) {
    onnx::NodeProto* copy = graph->add_node();
    *copy = node;
    KV_RETURN_IF_ERROR(RenameValues(names, copy));
  }
  return both;
}

absl::flat_hash_set<ValueId> InputsBehind(const Graph& graph, absl::Span<const ValueId> roots) {
  absl::flat_hash_set<ValueId> seen(roots.begin(), roots.end()), found;
  std::vector<ValueId> stack(roots.begin(), roots.end());
  const auto visit = [&](ValueId v) {
    if (v != kNoValue && seen.insert(v).second) stack.push_back(v);
  };
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    if (graph.is_graph_input(v)) found.insert(v);
    const NodeId n = graph.producer(v);
    if (n == kNoNode) continue;
    for (ValueId input : graph.inputs(n)) visit(input);
    for (ValueId input : graph.captures(n)) visit(input);
  }
  return found;
}

absl::StatusOr<std::unique_ptr<DecoderPair>> DecoderPair::Create(onnx::ModelProto model) {
  auto pair = std::make_unique<DecoderPair>();
  KV_ASSIGN_OR_RETURN(Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(model))));
  pair->graph_ = std::make_unique<Graph>(std::move(graph));
  pair->forms_ = std::make_unique<sym::Forms>(*pair->graph_);
  for (ValueId v : pair->graph_->graph_outputs()) {
    pair->later_.push_back(v);
    const ValueId first = pair->graph_->Find(kFirstCall + pair->graph_->name(v));
    pair->first_.push_back(first == kNoValue ? v : first);
  }
  return pair;
}

std::vector<Growth> DecoderPair::Growths(const std::optional<sym::DimSymbol>& zero_at_first) {
  const std::vector<ValueId> only_later = OnlyLater();
  std::vector<Growth> growths;
  for (ValueId past : Only(later_, {})) {
    for (ValueId present : later_) {
      const auto growth = GrowthOf(past, present);
      if (!growth) continue;
      const bool counts = (zero_at_first && growth->length->dim() == *zero_at_first) ||
                          absl::c_linear_search(only_later, past);
      if (counts) growths.push_back(*growth);
      break;
    }
  }
  return growths;
}

std::vector<CrossAttentionCache> DecoderPair::Crossings(absl::Span<const Growth> growths) {
  std::vector<ValueId> pasts;
  for (ValueId v : OnlyLater()) {
    if (std::none_of(growths.begin(), growths.end(),
                     [&](const Growth& growth) { return growth.past == v; })) {
      pasts.push_back(v);
    }
  }
  std::vector<CrossAttentionCache> found;
  for (size_t k = 0; k < later_.size(); ++k) {
    if (!IsEmptyConstant(later_[k]) || first_[k] == later_[k] || IsEmptyConstant(first_[k])) {
      continue;
    }
    if (found.size() == pasts.size()) return {};
    found.push_back(
        {graph_->name(pasts[found.size()]), graph_->name(later_[k]), graph_->name(first_[k])});
  }
  return found;
}

sym::Pool::Substitution DecoderPair::EmptyPasts(absl::Span<const Growth> growths,
                                                absl::Span<const CrossAttentionCache> crossings) {
  sym::Pool& pool = forms_->pool();
  sym::Pool::Substitution s;
  for (const Growth& growth : growths) {
    s.dims[growth.length->dim()] = pool.Integer(0);
    for (const sym::DimSymbol& dim : sym::DimsOf(growth.added)) Protect(dim);
  }
  for (ValueId v : later_) forms_->Of(v);
  for (ValueId v : first_) forms_->Of(v);
  for (const sym::FormAssumption& assumption : forms_->assumptions()) {
    if (assumption.predicate->kind() == Kind::kEq) Solve(assumption.predicate->args()[0], &s);
  }
  for (const CrossAttentionCache& c : crossings) {
    const sym::Form x = forms_->Of(graph_->Find(c.past)), y = forms_->Of(graph_->Find(c.first));
    for (size_t k = 0; k < x.shape.size() && k < y.shape.size(); ++k) {
      Solve(pool.Sub(x.shape[k], y.shape[k]), &s);
    }
  }
  return s;
}

onnx::ModelProto DecoderPair::WithExtents(const sym::Pool::Substitution& s) {
  onnx::ModelProto model = graph_->model();
  for (auto& info : *model.mutable_graph()->mutable_input()) {
    const ValueId v = graph_->Find(info.name());
    if (v == kNoValue || graph_->constant(v) != nullptr) continue;
    const sym::Form form = forms_->Of(v);
    if (!form.known_rank) continue;
    auto* shape = info.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int k = 0; k < shape->dim_size() && k < static_cast<int>(form.shape.size()); ++k) {
      const Expr extent = forms_->pool().Substitute(form.shape[k], s, {});
      if (extent->kind() == Kind::kInteger) shape->mutable_dim(k)->set_dim_value(extent->value());
      if (extent->kind() == Kind::kDim) shape->mutable_dim(k)->set_dim_param(extent->dim().name());
    }
  }
  return model;
}

std::vector<ValueId> DecoderPair::Only(absl::Span<const ValueId> mine,
                                       absl::Span<const ValueId> other) const {
  const auto read = InputsBehind(*graph_, mine), also = InputsBehind(*graph_, other);
  std::vector<ValueId> only;
  for (ValueId v : graph_->graph_inputs()) {
    const TensorType& type = graph_->type(v);
    const bool big = type.shape && type.shape->size() >= 3 && IsFloatType(type.elem_type);
    if (big && read.contains(v) && !also.contains(v)) only.push_back(v);
  }
  return only;
}

bool DecoderPair::IsEmptyConstant(ValueId v) const { return EmptyConstant(*graph_, v) != nullptr; }

std::optional<Growth> DecoderPair::GrowthOf(ValueId past, ValueId present) {
  const sym::Form before = forms_->Of(past), after = forms_->Of(present);
  if (!after.known_rank || after.opaque || before.shape.size() != after.shape.size()) return {};
  const auto sources = sym::SourcesOf(after.element);
  if (std::find(sources.begin(), sources.end(), past) == sources.end()) return {};
  std::optional<Growth> growth;
  for (size_t k = 0; k < before.shape.size(); ++k) {
    if (before.shape[k] == after.shape[k]) continue;
    if (growth || before.shape[k]->kind() != Kind::kDim) return {};
    const Expr added = forms_->pool().Sub(after.shape[k], before.shape[k]);
    growth = Growth{past, static_cast<int>(k), before.shape[k], added};
  }
  return growth;
}

void DecoderPair::Protect(const sym::DimSymbol& dim) {
  protected_.insert(dim);
  const auto origin = forms_->OriginOf(dim);
  if (!origin) return;
  for (sym::Expr extent : forms_->Of(origin->input).shape) {
    if (extent->kind() == Kind::kDim) protected_.insert(extent->dim());
  }
}

void DecoderPair::Solve(Expr e, sym::Pool::Substitution* s) {
  sym::Pool& pool = forms_->pool();
  e = pool.Substitute(e, *s, {});
  constexpr int kIndices = 8;
  for (int k = 0; k < kIndices; ++k) {
    if (sym::ContainsIndex(e, k)) return;
  }
  if (!sym::SourcesOf(e).empty()) return;
  std::optional<std::pair<ValueId, int>> last;
  sym::DimSymbol chosen;
  Expr value = nullptr;
  for (const sym::DimSymbol& dim : sym::DimsOf(e)) {
    const auto origin = forms_->OriginOf(dim);
    const auto linear = sym::LinearIn(pool, e, pool.Dim(dim));
    if (protected_.contains(dim) || !origin || !linear || std::abs(linear->coefficient) != 1)
      continue;
    const std::pair<ValueId, int> place(origin->input, origin->axis);
    if (last && place < *last) continue;
    last = place;
    chosen = dim;
    value = pool.Mul(linear->rest, pool.Integer(-linear->coefficient));
  }
  if (value == nullptr) return;
  sym::Pool::Substitution one;
  one.dims[chosen] = value;
  for (auto& [dim, extent] : s->dims) extent = pool.Substitute(extent, one, {});
  s->dims[chosen] = value;
}

}  // namespace kvlift
