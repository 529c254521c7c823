#include "rewrite/emit/emit_plan.h"

#include <utility>

#include "base/overloaded.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/emit/control.h"
#include "rewrite/emit/emit_attention.h"
#include "rewrite/emit/emit_cache.h"
#include "rewrite/emit/emit_state.h"
#include "rewrite/emit/manifest_of.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/plan/declared_types.h"

namespace kvlift {
namespace {

using internal::EmitState;

// Makes what stays, and what read growing caches, read views of the valid rows.
void EmitViews(EmitState& s, internal::Control& control) {
  for (const AnalysedCache& cache : s.a.caches) {
    if (cache.update_index < 0) continue;
    const PlannedCache& planned = s.plan.caches[cache.update_index];
    if (!planned.grows() || !planned.linear()) continue;
    s.nodes.set_scope(fmt::format("layers.{}/{}", cache.layer, WordOf(cache.role)));
    auto& uses = s.patch.replace_uses;
    uses[s.graph.name(planned.pair.past)] =
        internal::ToSourceLayout(s, planned, control.PastView(planned));
    uses[s.graph.name(planned.pair.present)] =
        internal::ToSourceLayout(s, planned, control.PresentView(planned));
    for (const AttendedSlice& same : s.plan.writes[cache.update_index].attended_slices) {
      std::string view = internal::ToSourceLayout(s, planned, control.ViewForAttention(planned));
      for (auto fixed = same.fixed_axes.rbegin(); fixed != same.fixed_axes.rend(); ++fixed) {
        view = s.nodes.Add("Gather", {view, s.nodes.Int64(fixed->index)}, "rows",
                           {MakeAttribute("axis", int64_t{fixed->axis})});
      }
      const int32_t type = s.forms.ElementType(same.value);
      if (type != s.forms.ElementType(planned.pair.past)) {
        view = s.nodes.Add("Cast", {view}, "rows", {MakeAttribute("to", int64_t{type})});
      }
      uses[s.graph.name(same.value)] = view;
    }
  }
}

// Reads the capacities of the source's buffers on the axes that they have in the result.
void BindCapacities(EmitState& s) {
  s.nodes.set_scope("shared");
  for (const PlannedCache& cache : s.plan.caches) {
    if (cache.grows() || !cache.placement.moved) continue;
    const sym::Expr slots = s.forms.Of(cache.pair.past).shape[cache.axis];
    if (slots->kind() != sym::Kind::kDim) continue;
    const std::string& past = s.graph.name(cache.pair.past);
    s.emitter.BindDim(slots->dim(),
                      {s.nodes.Extent(past, cache.placement.axis, "capacity"), false});
  }
}

absl::Status EmitOperands(EmitState& s) {
  s.nodes.set_scope("shared");
  for (const RederivedOperand& operand : s.plan.operands) {
    std::string& value = s.patch.replace_inputs[{operand.node, operand.operand}];
    if (const auto* table = std::get_if<ValueId>(&operand.value)) {
      value = s.graph.name(*table);
      continue;
    }
    KV_ASSIGN_OR_RETURN(value, s.emitter.Tensor(std::get<sym::Emitter::Request>(operand.value)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EmittedPlan> EmitPlan(const Analysis& a, const ConversionPlan& plan) {
  EmitState s(a, plan);
  internal::Control control(s);
  KV_RETURN_IF_ERROR(control.Emit());
  BindCapacities(s);
  KV_RETURN_IF_ERROR(internal::CacheEmitter(s, control).Emit());
  internal::AttentionEmitter attention(s, control);
  for (size_t k = 0; k < a.attention.size(); ++k) {
    const PlannedAttention* planned = plan.replaced(k);
    if (planned == nullptr) continue;
    KV_RETURN_IF_ERROR(attention.Emit(static_cast<int>(k), *planned));
  }
  if (plan.views()) EmitViews(s, control);
  KV_RETURN_IF_ERROR(EmitOperands(s));
  EmittedPlan emitted;
  emitted.patch = std::move(s.patch);
  emitted.patch.new_nodes = s.nodes.TakeNodes();
  emitted.patch.new_initializers = s.nodes.TakeInitializers();
  emitted.patch.retype = RetypedValues(a, plan);
  emitted.patch.new_inputs = NewInputs(a, plan);
  for (ValueId dropped : plan.dropped) emitted.patch.remove_inputs.insert(a.graph->name(dropped));
  emitted.manifest = MakeManifest(a, plan);
  for (const AnalysedCache* cache : ConvertedCaches(a)) {
    emitted.caches.push_back(std::move(s.caches[cache->update_index]));
  }
  return emitted;
}

}  // namespace kvlift
