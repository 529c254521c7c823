#include "rewrite/emit/make_plan.h"

#include <algorithm>
#include <utility>

#include "base/overloaded.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/emit/control.h"
#include "rewrite/emit/emit_attention.h"
#include "rewrite/emit/emit_cache.h"
#include "rewrite/emit/manifest_of.h"
#include "rewrite/emit/rederive.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/plan/attended_slices.h"
#include "rewrite/plan/cross_token_ops.h"
#include "rewrite/plan/fifo_readers.h"
#include "rewrite/plan/mask_safety.h"
#include "rewrite/plan/plan_state.h"

namespace kvlift {
namespace {

using internal::AttentionEmitter;
using internal::PlanState;
using internal::Slots;
using onnx::TensorProto;
using sym::Expr;

// One attempt to plan, with a past length per sequence, or with one for all (uniform).
class Planner {
 public:
  Planner(Analysis& a, const std::vector<PlannedCache>& caches, const ConvertOptions& options,
          bool uniform, bool keep_unguarded = false)
      : s_(a, caches, options), control_(s_), caches_(s_, control_), attention_(s_, control_) {
    s_.derived = options.control == Control::kDerived ||
                 (options.control == Control::kAuto && options.target == Target::kGenai);
    s_.uniform = uniform || s_.derived;
    s_.keep_unguarded = keep_unguarded;
  }

  // Set by Run if another layer, or another reader of a cache, may see rows of padding tokens,
  // which may differ from those of the source.
  bool rows_read_elsewhere() const { return rows_read_elsewhere_; }

  // Set by Run, with the reason, if positions cannot differ between sequences.
  const std::optional<std::string>& needs_uniform() const { return needs_uniform_; }

  absl::StatusOr<ConversionPlan> Run() {
    s_.plan.kept.resize(s_.a.attention.size());
    control_.Survey();
    if (!s_.plan.refusal) RefuseIf(internal::JudgeLayouts(s_));
    if (s_.plan.refusal) return std::move(s_.plan);
    if (s_.growing && !s_.keep_unguarded && internal::PadsLeak(s_)) {
      rows_read_elsewhere_ = true;
      if (!s_.uniform) {
        needs_uniform_ = "rows of pads, which may differ, are seen by another layer";
        return std::move(s_.plan);
      }
    }
    KV_RETURN_IF_ERROR(control_.Emit());
    if (s_.plan.refusal) return std::move(s_.plan);
    if (s_.options.tree_mask) JudgeTree();
    if (s_.plan.refusal) return std::move(s_.plan);
    KV_RETURN_IF_ERROR(caches_.Emit());
    for (size_t k = 0; k < s_.a.attention.size() && !s_.plan.refusal; ++k) {
      KV_RETURN_IF_ERROR(EmitAttention(static_cast<int>(k)));
    }
    const bool kept = std::any_of(s_.plan.kept.begin(), s_.plan.kept.end(),
                                  [](const auto& reason) { return reason.has_value(); });
    if (s_.options.tree_mask && kept && !s_.plan.refusal) {
      RefuseTree("needs every attention converted to draw a tree of tokens");
    }
    if ((s_.fifos || s_.rings) && !s_.plan.refusal) RefuseIf(internal::MovedRowsReadElsewhere(s_));
    if (s_.plan.refusal) return std::move(s_.plan);
    if (s_.growing && s_.views()) EmitViews();
    if (s_.growing) RederiveRest();
    if (s_.plan.refusal || needs_uniform_) return std::move(s_.plan);
    DeclareTypes();
    s_.plan.patch.new_nodes = s_.nodes.TakeNodes();
    s_.plan.patch.new_initializers = s_.nodes.TakeInitializers();
    DropPadding();
    FillManifest();
    return std::move(s_.plan);
  }

 private:
  void RefuseIf(std::optional<Finding> finding) {
    if (finding) s_.Refuse(*std::move(finding));
  }

  absl::Status EmitAttention(int number) {
    const AnalysedAttention& attention = s_.a.attention[number];
    const bool may_stay = !s_.fifos && !s_.rings && (!s_.growing || s_.views());
    std::optional<Finding> reason = attention.reason;
    if (attention.site) {
      reason = s_.keep_unguarded ? Unguarded(*attention.site) : BeforeItsRows(*attention.site);
      if (!reason) reason = BeforeQuantization(*attention.site);
      if (!reason) {
        KV_ASSIGN_OR_RETURN(reason, attention_.Emit(number, *attention.site));
      }
    }
    if (!may_stay) RefuseIf(reason);
    if (reason && s_.growing && !s_.plan.refusal && !internal::MayHideLater(s_, attention.node)) {
      s_.Refuse("KV218", "needs a mask that hides later tokens, found none that can be read",
                {attention.node});
    }
    s_.plan.kept[number] = std::move(reason);
    return absl::OkStatus();
  }

  // Keeps an attention whose result for queries without visible keys would differ from the source.
  std::optional<Finding> Unguarded(const AttentionSite& site) {
    if (HasNanGuard(site) || s_.key_length_masks.empty()) return BeforeItsRows(site);
    return MakeFinding(
        "KV214",
        "needs caches that attention alone reads: rows of pads, which may differ, are "
        "read elsewhere",
        s_.graph, {site.node});
  }

  // Attention-24 may differ from the source in the last bit. A dynamic quantisation of its result
  // can turn that into a whole quantisation step, so such attentions stay.
  std::optional<Finding> BeforeQuantization(const AttentionSite& site) {
    const NodeId n = quantized_behind_[site.node];
    if (n == kNoNode) return std::nullopt;
    return MakeFinding("KV248",
                       fmt::format("needs results that are not quantised by their range, found {}",
                                   s_.graph.NodeName(n)),
                       s_.graph, {site.node});
  }

  // Keeps an attention that later layers of the same tensor depend on: the tensor is written once,
  // with the rows of all its layers.
  std::optional<Finding> BeforeItsRows(const AttentionSite& site) {
    for (int index : {site.key.cache, site.value.cache}) {
      const CacheUpdate& update = s_.a.updates[index];
      if (!UpdateDependsOn(s_.graph, update, site.node)) continue;
      return MakeFinding("KV213",
                         fmt::format("needs a cache of its own, found {}, which later layers share",
                                     s_.graph.name(update.pair.past)),
                         s_.graph, {site.node}, {update.pair.past});
    }
    return std::nullopt;
  }

  // Makes the remaining readers of growing caches read views of the valid rows.
  void EmitViews() {
    for (const AnalysedCache& cache : s_.a.caches) {
      if (cache.update_index < 0) continue;
      const PlannedCache& update = s_.caches[cache.update_index];
      if (!update.grows() || !update.linear()) continue;
      s_.nodes.set_scope(fmt::format("layers.{}/{}", cache.layer, WordOf(cache.role)));
      auto& uses = s_.plan.patch.replace_uses;
      uses[s_.graph.name(update.pair.past)] =
          internal::ToSourceLayout(s_, update, control_.PastView(update));
      uses[s_.graph.name(update.pair.present)] =
          internal::ToSourceLayout(s_, update, control_.PresentView(update));
      for (const Equivalent& same : FindEquivalents(s_.forms, update)) {
        std::string view = internal::ToSourceLayout(s_, update, control_.ViewForAttention(update));
        for (auto fixed = same.fixed_axes.rbegin(); fixed != same.fixed_axes.rend(); ++fixed) {
          view = s_.nodes.Add("Gather", {view, s_.nodes.Int64(fixed->index)}, "rows",
                              {MakeAttribute("axis", int64_t{fixed->axis})});
        }
        uses[s_.graph.name(same.value)] = view;
        provided_.insert(same.value);
      }
    }
  }

  void RederiveRest() {
    RederiveInput in;
    for (const CacheUpdate& update : s_.a.updates) {
      if (!update.grows()) {
        in.provided.insert(update.pair.present);
        continue;
      }
      in.caches.insert(update.pair.past);
      in.caches.insert(update.pair.present);
      in.provided.insert(update.pair.present);
    }
    // An Identity of a cache counts as the cache, unless it is a graph output.
    for (NodeId n = 0; n < s_.graph.num_nodes(); ++n) {
      if (!s_.graph.Is(n, "Identity") || !in.caches.contains(s_.graph.inputs(n)[0])) continue;
      const ValueId alias = s_.graph.outputs(n)[0];
      if (!s_.graph.is_graph_output(alias)) in.caches.insert(alias);
    }
    in.provided.insert(provided_.begin(), provided_.end());
    for (size_t k = 0; k < s_.a.attention.size(); ++k) {
      if (s_.plan.kept[k]) continue;
      in.provided.insert(s_.graph.outputs(s_.a.attention[k].node)[0]);
    }
    if (!s_.views()) {
      for (const auto& [input, axis] : s_.key_length_masks) in.key_length_masks.insert(input);
    }
    in.roots = s_.roots;
    for (ValueId output : s_.graph.graph_outputs()) {
      if (!in.caches.contains(output)) in.roots.push_back(output);
    }
    in.lengths = s_.lengths;
    in.normal = s_.normal;
    in.batch = s_.batch;
    in.per_sequence = !s_.uniform;
    in.views = s_.views() && !s_.rings;
    s_.nodes.set_scope("shared");
    Rederived result = Rederive(s_.forms, s_.emitter, in);
    RefuseIf(std::move(result.refusal));
    needs_uniform_ = std::move(result.needs_uniform);
    rows_read_elsewhere_ = rows_read_elsewhere_ || result.reads_caches;
    s_.plan.patch.replace_inputs = std::move(result.operands);
  }

  void DeclareTypes() {
    for (const PlannedCache& update : s_.caches) {
      onnx::TypeProto type =
          internal::TypeInTargetLayout(s_, update, TypeOfInput(update.pair.past));
      if (update.grows()) {
        SetDim(&type, internal::PlacementOf(s_.options, update).axis,
               update.ring() != nullptr ? RingDim(*update.ring()) : CapacityDim());
      }
      s_.plan.patch.retype[s_.graph.name(update.pair.past)] = type;
      s_.plan.patch.retype[s_.graph.name(update.pair.present)] = type;
    }
    for (const auto& [input, axis] : s_.key_length_masks) {
      if (s_.views() && !s_.derived) continue;
      onnx::TypeProto type = TypeOfInput(input);
      onnx::TensorShapeProto::Dimension total;
      total.set_dim_param("total_sequence_length");
      SetDim(&type, axis, s_.derived ? total : CapacityDim());
      s_.plan.patch.retype[s_.graph.name(input)] = type;
    }
    if (s_.derived) return;
    for (const std::string& name : {control_.input(), control_.valid_input()}) {
      if (!name.empty()) AddControl(name);
    }
    if (!control_.tree_input().empty()) AddTree(control_.tree_input());
  }

  // Refuses --tree-mask unless caches grow linearly and an input gives a write index per sequence.
  void JudgeTree() {
    if (!control_.tree_input().empty() && !s_.uniform && !s_.fifos && !s_.rings) return;
    const std::string_view found = s_.fifos     ? "a buffer that shifts"
                                   : s_.rings   ? "a ring"
                                   : s_.derived ? "an index that is derived"
                                   : s_.uniform ? "one index for the batch"
                                                : "caches of a fixed capacity";
    RefuseTree(fmt::format(
        "needs growing caches and an index of its own for each sequence, found {}", found));
  }

  void RefuseTree(std::string text) {
    s_.RefuseOption(MakeFinding("KV235", std::move(text), s_.graph, {s_.a.updates.front().node}));
  }

  // Adds the input of --tree-mask, bool [B, 1 or N, S, S].
  void AddTree(const std::string& name) {
    AddControl(name);
    auto* tensor = s_.plan.patch.new_inputs.back().mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(TensorProto::BOOL);
    tensor->mutable_shape()->add_dim()->set_dim_param("tree_heads");
    for (int k = 0; k < 2; ++k) {
      auto* dim = tensor->mutable_shape()->add_dim();
      if (s_.new_length->kind() == sym::Kind::kInteger) dim->set_dim_value(s_.new_length->value());
      if (s_.new_length->kind() == sym::Kind::kDim) dim->set_dim_param(s_.new_length->dim().name());
    }
  }

  void AddControl(const std::string& name) {
    onnx::ValueInfoProto control;
    control.set_name(name);
    auto* tensor = control.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(TensorProto::INT64);
    auto* dim = tensor->mutable_shape()->add_dim();
    const onnx::TypeProto source = TypeOfInput(s_.batch_source);
    int axis = 0;
    for (const CacheUpdate& update : s_.a.updates) {
      if (update.pair.past == s_.batch_source) axis = static_cast<int>(update.layout.find('B'));
    }
    *dim = source.tensor_type().shape().dim(axis);
    s_.plan.patch.new_inputs.push_back(std::move(control));
  }

  onnx::TypeProto TypeOfInput(ValueId v) const {
    for (const auto& info : s_.graph.proto().input()) {
      if (info.name() == s_.graph.name(v)) return info.type();
    }
    return {};
  }

  static void SetDim(onnx::TypeProto* type, int axis,
                     const onnx::TensorShapeProto::Dimension& dim) {
    *type->mutable_tensor_type()->mutable_shape()->mutable_dim(axis) = dim;
  }

  static onnx::TensorShapeProto::Dimension SizeOrName(std::optional<int64_t> size,
                                                      std::string name) {
    onnx::TensorShapeProto::Dimension dim;
    if (size) {
      dim.set_dim_value(*size);
    } else {
      dim.set_dim_param(std::move(name));
    }
    return dim;
  }

  onnx::TensorShapeProto::Dimension CapacityDim() const {
    return SizeOrName(s_.options.max_seq_len, "max_sequence_length");
  }

  onnx::TensorShapeProto::Dimension RingDim(const WindowRing& ring) const {
    return SizeOrName(s_.options.window_capacity, RingDimension(s_.caches, ring));
  }

  // Removes padding masks that nothing reads with --padding none. A uniform plan keeps them, since
  // it may derive the length from them.
  void DropPadding() {
    if (s_.options.padding != Padding::kNone || s_.uniform) return;
    for (const auto& [input, axis] : s_.key_length_masks) {
      if (s_.graph.is_graph_output(input)) continue;
      const std::string& name = s_.graph.name(input);
      const auto& nodes = s_.plan.patch.new_nodes;
      const bool read = std::any_of(nodes.begin(), nodes.end(), [&](const onnx::NodeProto& node) {
        return std::find(node.input().begin(), node.input().end(), name) != node.input().end();
      });
      if (read) continue;
      s_.plan.patch.remove_inputs.insert(name);
      s_.plan.patch.retype.erase(name);
    }
  }

  void FillManifest() {
    ManifestFacts facts;
    facts.write_indices = control_.input();
    facts.nonpad_kv_seqlen = control_.valid_input();
    facts.tree_mask = control_.tree_input();
    facts.uniform = s_.uniform;
    facts.prefix = s_.prefix_read();
    facts.masks_padded = !s_.views() && !s_.derived;
    for (const auto& [input, axis] : s_.key_length_masks)
      facts.key_length_masks[s_.graph.name(input)] = axis;
    for (const auto& [input, value] : s_.assumed) facts.assumed[s_.graph.name(input)] = value;
    facts.dropped = s_.plan.patch.remove_inputs;
    s_.plan.manifest = MakeManifest(s_.a, s_.caches, s_.options, facts);
  }

  PlanState s_;
  internal::Control control_;
  internal::CacheEmitter caches_;
  AttentionEmitter attention_;
  absl::flat_hash_set<ValueId> provided_;
  const std::vector<NodeId> quantized_behind_ = DynamicQuantizationBehind(s_.graph);
  bool rows_read_elsewhere_ = false;
  std::optional<std::string> needs_uniform_;
};

// Returns why all sequences of the cache must be written at one index, as the end of a sentence;
// nullopt if each can be written at an index of its own.
std::optional<std::string_view> NeedsOneIndex(const CacheUpdate& update) {
  using Why = std::optional<std::string_view>;
  return std::visit(
      Overloaded{[&](const AppendAll& all) {
                   if (all.reordered_past != nullptr) {
                     return Why("takes its sequences in another order");
                   }
                   return update.layout[0] == 'B' ? Why() : Why("does not have the batch in front");
                 },
                 [](const KeepLast&) { return Why("keeps a window"); },
                 [](const WriteAt&) { return Why(); }, [](const WriteAround&) { return Why(); },
                 [](const Fifo&) { return Why(); }},
      update.how);
}

// Returns why the sequences of a batch must have one length; nullopt if no reason is known.
std::optional<std::string> NeedsUniform(const Analysis& a) {
  for (const CacheUpdate& update : a.updates) {
    const auto why = NeedsOneIndex(update);
    if (why) return fmt::format("{} {}", a.graph->name(update.pair.past), *why);
  }
  if (!a.states.empty()) return "a state takes in every token of a step";
  if (const NodeId n = FindMixing(a); n != kNoNode) {
    return fmt::format("{} at {} takes in all tokens of a step", a.graph->node(n).op_type(),
                       a.graph->NodeName(n));
  }
  if (const NodeId n = FindJoinedSequences(a); n != kNoNode) {
    return fmt::format("{} at {} takes all sequences of a batch together",
                       a.graph->node(n).op_type(), a.graph->NodeName(n));
  }
  for (const AnalysedCache& cache : a.caches) {
    const bool stays = cache.reason && cache.reason->cause != StayCause::kConverted;
    if (!stays || !cache.candidate.growing) continue;
    return fmt::format("{} stays and grows", a.graph->name(cache.candidate.pair.past));
  }
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) return fmt::format("an attention stays: {}", attention.reason->text);
    for (int cache : {attention.site->key.cache, attention.site->value.cache}) {
      const bool key = cache == attention.site->key.cache;
      const CacheView& view = key ? attention.site->key.view : attention.site->value.view;
      if (!view.batch_times_heads) continue;
      return fmt::format("{} has sequences and heads on one axis",
                         a.graph->name(a.updates[cache].pair.past));
    }
    if (attention.site->mask.biases.empty()) continue;
    return fmt::format("a bias is added to the scores: {}",
                       a.graph->name(attention.site->mask.biases.front().value));
  }
  if (const NodeId n = FindMovedSequences(a); n != kNoNode) {
    return fmt::format("{} at {} computes with rows of other sequences", a.graph->node(n).op_type(),
                       a.graph->NodeName(n));
  }
  return std::nullopt;
}

// Refuses models in which padding tokens behind a prompt would change the results of its real
// tokens, since no mask prevents that. Models with states are accepted: their hosts must avoid
// padding tokens in any case, since a state keeps what it has read.
std::optional<Finding> PadsChangeRows(const Analysis& a, const ConvertOptions& options) {
  if (options.padding == Padding::kNone || !a.states.empty()) return std::nullopt;
  const NodeId n = FindMixingWithPads(a);
  if (n == kNoNode) return std::nullopt;
  return MakeFinding(
      "KV251",
      fmt::format("needs tokens of a step that do not change each other, found {}: padding tokens "
                  "would change real ones (--padding none says that there are none)",
                  a.graph->node(n).op_type()),
      *a.graph, {n});
}

// Refuses a buffer of a fixed size whose capacity is not that of the model's other caches.
std::optional<Finding> CapacitiesDiffer(const Analysis& a, const ConvertOptions& options) {
  std::optional<int64_t> common;
  const bool grows = std::any_of(a.updates.begin(), a.updates.end(),
                                 [](const CacheUpdate& update) { return update.grows(); });
  if (grows) common = options.max_seq_len;
  for (const CacheUpdate& update : a.updates) {
    if (update.grows()) continue;
    const Expr slots = a.forms->Of(update.pair.past).shape[update.axis];
    if (slots->kind() != sym::Kind::kInteger) continue;
    if (!common) common = slots->value();
    if (slots->value() == *common) continue;
    return MakeFinding(
        "KV252",
        fmt::format("needs caches of one capacity, found {} and {} slots", *common, slots->value()),
        *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

// Refuses rings that the user asks to be too small for their windows.
std::optional<Finding> RingTooSmall(const Analysis& a, absl::Span<const PlannedCache> caches,
                                    const ConvertOptions& options) {
  for (const PlannedCache& cache : caches) {
    const WindowRing* ring = cache.ring();
    if (ring == nullptr || !options.window_capacity) continue;
    const int64_t slots = *options.window_capacity;
    if (slots > ring->window) continue;
    return MakeFinding("KV250",
                       fmt::format("needs a ring for a window of {} rows and a new one, "
                                   "found --window circular:{}",
                                   ring->window, slots),
                       *a.graph, {cache.node}, {cache.pair.past});
  }
  return std::nullopt;
}

// Refuses to give attention the whole buffer of a cache of which it reads the last rows.
std::optional<Finding> WindowReadInFull(const Analysis& a, const ConvertOptions& options) {
  if (options.read != ReadForm::kFull) return std::nullopt;
  for (const CacheUpdate& update : a.updates) {
    if (!update.window()) continue;
    return MakeFinding(
        "KV217", fmt::format("--read full, but {} keeps a window", a.graph->name(update.pair.past)),
        *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

// Returns a reason to refuse that holds for every way to plan; nullopt if nothing speaks against
// all of them.
std::optional<Finding> RefuseBeforePlanning(const Analysis& a,
                                            absl::Span<const PlannedCache> caches,
                                            const ConvertOptions& options) {
  if (auto finding = PadsChangeRows(a, options)) return finding;
  if (auto finding = CapacitiesDiffer(a, options)) return finding;
  if (auto finding = RingTooSmall(a, caches, options)) return finding;
  return WindowReadInFull(a, options);
}

// Returns true if some replaced attention may give other rows than the source for queries without
// visible keys.
bool LosesRows(const Analysis& a, const ConversionPlan& plan) {
  for (size_t k = 0; k < a.attention.size(); ++k) {
    if (a.attention[k].site && !plan.kept[k] && !HasNanGuard(*a.attention[k].site)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options) {
  const std::vector<PlannedCache> caches = PlanBuffers(analysis, options.window);
  if (auto finding = RefuseBeforePlanning(analysis, caches, options)) {
    ConversionPlan refused;
    refused.refusal = PlanRefusal{PlanRefusal::Cause::kOption, *std::move(finding)};
    return refused;
  }
  const bool growing = std::any_of(analysis.updates.begin(), analysis.updates.end(),
                                   [](const CacheUpdate& update) { return update.grows(); });
  if (!growing) return Planner(analysis, caches, options, false).Run();
  std::optional<std::string> why = NeedsUniform(analysis);
  if (!why) {
    Planner per_sequence(analysis, caches, options, false);
    KV_ASSIGN_OR_RETURN(ConversionPlan plan, per_sequence.Run());
    const bool leaks =
        !plan.refusal && per_sequence.rows_read_elsewhere() && LosesRows(analysis, plan);
    if (!plan.refusal && !per_sequence.needs_uniform() && !leaks) return plan;
    if (plan.refusal && plan.refusal->cause == PlanRefusal::Cause::kOption) return plan;
    why = plan.refusal ? plan.refusal->finding.text
          : leaks      ? "rows of pads, which may differ, are read elsewhere"
                       : *per_sequence.needs_uniform();
  }
  Planner uniform(analysis, caches, options, true);
  KV_ASSIGN_OR_RETURN(ConversionPlan plan, uniform.Run());
  if (!plan.refusal && uniform.rows_read_elsewhere() && LosesRows(analysis, plan)) {
    KV_ASSIGN_OR_RETURN(plan, Planner(analysis, caches, options, true, true).Run());
  }
  plan.manifest.uniform_reason = std::move(*why);
  return plan;
}

}  // namespace kvlift
