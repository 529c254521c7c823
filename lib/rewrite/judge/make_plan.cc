#include "rewrite/judge/make_plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/overloaded.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "rewrite/judge/before_planning.h"
#include "rewrite/judge/fifo_readers.h"
#include "rewrite/judge/judge_attention.h"
#include "rewrite/judge/judge_caches.h"
#include "rewrite/judge/judge_storage.h"
#include "rewrite/judge/lost_roundings.h"
#include "rewrite/judge/mask_safety.h"
#include "rewrite/judge/plan_basis.h"
#include "rewrite/judge/rederive.h"
#include "rewrite/judge/shared_extents.h"
#include "rewrite/plan/cross_token_ops.h"
#include "rewrite/recognise/attention/attention_search.h"
#include "rewrite/recognise/input_assumptions.h"
#include "rewrite/recognise/rotations.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using internal::PlanBasis;

// A plan under one scheme.
struct Candidacy {
  ConversionPlan plan;
  // Another layer, or another reader of a cache, may see rows of padding tokens, which may differ
  // from those of the source.
  bool rows_read_elsewhere = false;
  // Why positions cannot differ between sequences; if set, the plan is not complete.
  std::optional<std::string> needs_uniform;
};

// Judges all parts of a model under one scheme.
class SchemeJudge {
 public:
  SchemeJudge(const Analysis& a, const std::vector<PlannedCache>& caches,
              const ResolvedOptions& options, const internal::FoundExtents& surveyed, Scheme scheme)
      : s_(a, caches, options, surveyed.extents, scheme), surveyed_(surveyed) {
    plan_.options = options;
    plan_.attention.resize(a.attention.size());
    plan_.uniform = s_.uniform;
    plan_.extents = surveyed.extents;
    plan_.caches = caches;
  }

  Candidacy Run() {
    JudgeAll();
    return std::move(out_);
  }

 private:
  void Refuse(Finding finding) {
    plan_.refusal = PlanRefusal{PlanRefusal::Cause::kModel, std::move(finding)};
  }
  void RefuseOption(Finding finding) {
    plan_.refusal = PlanRefusal{PlanRefusal::Cause::kOption, std::move(finding)};
  }

  void JudgeAll() {
    if (auto refusal = JudgeInputs()) return Refuse(*std::move(refusal));
    if (s_.growing && !s_.keep_unguarded && internal::PadsLeak(s_)) {
      out_.rows_read_elsewhere = true;
      if (!s_.uniform) {
        out_.needs_uniform = "rows of pads, which may differ, are seen by another layer";
        return;
      }
    }
    auto index = internal::JudgeIndex(s_);
    if (auto* refusal = std::get_if<Finding>(&index)) return Refuse(std::move(*refusal));
    plan_.index = std::get<PlannedIndex>(std::move(index));
    if (auto refusal = JudgeTree()) return RefuseOption(*std::move(refusal));
    internal::JudgedCaches caches = internal::JudgeCaches(s_);
    if (caches.refusal) return Refuse(*std::move(caches.refusal));
    plan_.writes = std::move(caches.writes);
    plan_.capacity_cache = internal::CapacityCache(s_);
    for (size_t k = 0; k < s_.a.attention.size(); ++k) {
      JudgeAttention(k);
      if (plan_.refusal) return;
    }
    if (s_.options.tree_mask && Stays()) {
      return RefuseOption(OfTree("needs every attention converted to draw a tree of tokens"));
    }
    roots_ = ValuesRead(s_.a, plan_);
    if (s_.fifos || s_.rings) {
      if (auto refusal = internal::MovedRowsReadElsewhere(s_, roots_)) {
        return Refuse(*std::move(refusal));
      }
    }
    if (s_.growing && s_.views()) FindViews();
    if (s_.growing && !RederiveRest()) return;
    if (!s_.views() && s_.growing) plan_.mask_width = MaskWidth::kCapacity;
    if (s_.derived) plan_.mask_width = MaskWidth::kTotalLength;
    DropMasks();
    NameUniformReason();
  }

  // Returns why an input, or the layout of a cache, does not fit the conversion.
  std::optional<Finding> JudgeInputs() const {
    if (s_.growing && !s_.views()) {
      if (auto finding = internal::OtherInputOfKeyLength(s_)) return finding;
    }
    if (surveyed_.refusal) return surveyed_.refusal;
    return JudgeLayouts(s_.a, s_.caches, s_.options);
  }

  // Refuses --tree-mask unless caches grow linearly and an input gives a write index per sequence.
  std::optional<Finding> JudgeTree() const {
    if (!s_.options.tree_mask) return std::nullopt;
    if (s_.growing && !s_.uniform && !s_.fifos && !s_.rings) return std::nullopt;
    const std::string_view found = s_.fifos     ? "a buffer that shifts"
                                   : s_.rings   ? "a ring"
                                   : s_.derived ? "an index that is derived"
                                   : s_.uniform ? "one index for the batch"
                                                : "caches of a fixed capacity";
    return OfTree(fmt::format(
        "needs growing caches and an index of its own for each sequence, found {}", found));
  }

  Finding OfTree(std::string text) const {
    return MakeFinding("KV235", std::move(text), s_.graph, {s_.a.updates.front().node});
  }

  void JudgeAttention(size_t number) {
    const AnalysedAttention& attention = s_.a.attention[number];
    AttentionOutcome& outcome = plan_.attention[number];
    std::optional<Finding> reason = attention.reason;
    if (attention.site) {
      reason = s_.keep_unguarded ? Unguarded(*attention.site) : BeforeItsRows(*attention.site);
      if (!reason) reason = BeforeQuantization(*attention.site);
      if (!reason) reason = OverNarrowNumbers(*attention.site);
    }
    if (attention.site && !reason) {
      internal::JudgedAttention judged = judge_.Judge(*attention.site, plan_.assumed);
      if (auto* planned = std::get_if<PlannedAttention>(&judged)) {
        plan_.assumed = planned->assumed;
        if (planned->sees_later_tokens) plan_.no_padding = LaterTokensSeen{attention.node};
        outcome = std::move(*planned);
        return;
      }
      if (auto* refusal = std::get_if<PlanRefusal>(&judged)) {
        plan_.refusal = std::move(*refusal);
        return;
      }
      reason = std::get<Finding>(std::move(judged));
    }
    outcome = *reason;
    const bool may_stay = !s_.fifos && !s_.rings && (!s_.growing || s_.views());
    if (!may_stay) return Refuse(*std::move(reason));
    const bool hides = internal::MayHideLater(s_, attention.node);
    if (!s_.growing) {
      if (hides && !WeighsLaterTokens(attention.node)) return;
      const bool rounds = QuantizerOfScores(s_.graph, attention.node) != kNoNode;
      if (rounds && s_.options.padding != Padding::kNone) return RefuseUnmasked(attention.node);
      plan_.no_padding = LaterTokensSeen{attention.node};
      return;
    }
    if (hides) return;
    const bool windows = absl::c_any_of(
        s_.caches, [](const PlannedCache& cache) { return cache.window().has_value(); });
    if (!windows && s_.options.padding == Padding::kNone) {
      plan_.no_padding = LaterTokensSeen{attention.node};
      return;
    }
    RefuseUnmasked(attention.node);
  }

  // Returns true if a function of the weights may give tokens that a mask hides, and that stand
  // behind others of their step, another weight than 0.
  bool WeighsLaterTokens(NodeId attention) const {
    const bool several = absl::c_any_of(
        s_.a.updates, [](const CacheUpdate& update) { return !update.new_length->is_integer(1); });
    return several && MayWeighHiddenKeys(s_.graph, attention);
  }

  void RefuseUnmasked(NodeId attention) {
    const NodeId quantizer = QuantizerOfScores(s_.graph, attention);
    if (quantizer == kNoNode) {
      Refuse(MakeFinding("KV218",
                         "needs a mask that hides later tokens, found none that can be read",
                         s_.graph, {attention}));
      return;
    }
    Refuse(MakeFinding(
        "KV218",
        fmt::format("needs a mask that hides later tokens, found scores that {} rounds behind it: "
                    "what the mask hides gets the lowest code, and so a weight",
                    s_.graph.node(quantizer).op_type()),
        s_.graph, {quantizer}));
  }

  bool Stays() const {
    return std::any_of(
        plan_.attention.begin(), plan_.attention.end(),
        [](const AttentionOutcome& outcome) { return std::holds_alternative<Finding>(outcome); });
  }

  // Keeps an attention whose result for queries without visible keys would differ from the source.
  std::optional<Finding> Unguarded(const AttentionSite& site) const {
    if (internal::KeepsRowsWithoutKeys(site, s_.options) || s_.extents.key_length_masks.empty()) {
      return BeforeItsRows(site);
    }
    return MakeFinding(
        "KV214",
        "needs caches that attention alone reads: rows of pads, which may differ, are "
        "read elsewhere",
        s_.graph, {site.node});
  }

  // Attention-24 may differ from the source in the last bit. A dynamic quantisation of its result
  // can turn that into a whole quantisation step, so such attentions stay unless roundings are
  // free.
  std::optional<Finding> BeforeQuantization(const AttentionSite& site) const {
    const NodeId n = quantized_behind_[site.node];
    if (n == kNoNode || s_.options.rounding == Rounding::kFree) return std::nullopt;
    return MakeFinding("KV248",
                       fmt::format("needs results that are not quantised by their range, found {}",
                                   s_.graph.NodeName(n)),
                       s_.graph, {site.node});
  }

  // Attention-24 may round its scores elsewhere than the source's operators do. In half precision
  // that shows in float32 results, so attentions over caches that are declared with more bits than
  // their numbers have stay unless roundings are free.
  std::optional<Finding> OverNarrowNumbers(const AttentionSite& site) const {
    if (s_.options.rounding == Rounding::kFree) return std::nullopt;
    for (int index : {site.key.cache, site.value.cache}) {
      const ValueId past = s_.a.updates[index].pair.past;
      if (!sym::HoldsNarrowerNumbers(s_.forms, past)) continue;
      return MakeFinding("KV248",
                         fmt::format("needs caches of the type that they are read in, found {} "
                                     "numbers in {} (--rounding free converts it)",
                                     ElementTypeName(s_.forms.NumbersOf(past).type),
                                     ElementTypeName(s_.forms.ElementType(past))),
                         s_.graph, {site.node}, {past});
    }
    return std::nullopt;
  }

  // Keeps an attention that later layers of the same tensor depend on: the tensor is written once,
  // with the rows of all its layers.
  std::optional<Finding> BeforeItsRows(const AttentionSite& site) const {
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

  // Finds the values that become views of the valid rows, besides past and present.
  void FindViews() {
    for (const AnalysedCache& cache : s_.a.caches) {
      if (cache.update_index < 0) continue;
      const PlannedCache& planned = s_.caches[cache.update_index];
      if (!planned.grows() || !planned.linear()) continue;
      plan_.writes[cache.update_index].attended_slices = FindAttendedSlices(s_.forms, planned);
    }
  }

  // Plans the operands that depend on the past's length. Returns false if the plan ends here.
  bool RederiveRest() {
    RederiveInput in;
    for (const CacheUpdate& update : s_.a.updates) {
      in.provided.insert(update.pair.present);
      if (update.grows()) in.caches.insert({update.pair.past, update.pair.present});
    }
    // An Identity of a cache counts as the cache, unless it is a graph output.
    for (NodeId n = 0; n < s_.graph.num_nodes(); ++n) {
      if (!s_.graph.Is(n, "Identity") || !in.caches.contains(s_.graph.inputs(n)[0])) continue;
      const ValueId alias = s_.graph.outputs(n)[0];
      if (!s_.graph.is_graph_output(alias)) in.caches.insert(alias);
    }
    for (const PlannedWrite& write : plan_.writes) {
      for (const AttendedSlice& same : write.attended_slices) in.provided.insert(same.value);
    }
    for (size_t k = 0; k < s_.a.attention.size(); ++k) {
      if (plan_.replaced(k) == nullptr) continue;
      in.provided.insert(s_.graph.outputs(s_.a.attention[k].node)[0]);
    }
    if (!s_.views()) {
      for (const auto& [input, axis] : s_.extents.key_length_masks) {
        in.key_length_masks.insert(input);
      }
    }
    in.roots = roots_;
    for (ValueId output : s_.graph.graph_outputs()) {
      if (!in.caches.contains(output)) in.roots.push_back(output);
    }
    in.lengths = s_.extents.lengths;
    in.normal = s_.extents.normal;
    in.batch = s_.extents.batch;
    in.per_sequence = !s_.uniform;
    in.views = s_.views() && !s_.rings;
    Rederived result = Rederive(s_.forms, s_.probe, in);
    out_.needs_uniform = std::move(result.needs_uniform);
    out_.rows_read_elsewhere = out_.rows_read_elsewhere || result.reads_caches;
    plan_.operands = std::move(result.operands);
    plan_.widened = std::move(result.widened);
    if (result.refusal) Refuse(*std::move(result.refusal));
    return !plan_.refusal && !out_.needs_uniform;
  }

  // Masks of ones of which nothing is read any more are left out, and with --padding none all masks
  // that nothing reads. A uniform plan keeps them, since it may derive the length from them.
  void DropMasks() {
    if (s_.uniform) return;
    const absl::flat_hash_set<ValueId> read = InputsRead();
    const auto drop = [&](ValueId input) {
      if (!s_.graph.is_graph_output(input) && !read.contains(input)) plan_.dropped.insert(input);
    };
    for (ValueId ones : internal::WidthsOfOnes(s_.a)) drop(ones);
    if (s_.options.padding != Padding::kNone) return;
    for (const auto& [input, axis] : s_.extents.key_length_masks) drop(input);
  }

  // Returns the graph inputs that new nodes read, or read the shape of.
  absl::flat_hash_set<ValueId> InputsRead() const {
    absl::flat_hash_set<ValueId> read;
    const auto add = [&](const std::vector<ValueId>& more) {
      read.insert(more.begin(), more.end());
    };
    const auto add_request = [&](const std::optional<sym::Emitter::Request>& request) {
      if (request) add(s_.probe.InputsOf(*request));
    };
    add(roots_);
    add(s_.probe.InputsOfDim(s_.extents.new_length));
    for (const PlannedWrite& write : plan_.writes) {
      std::visit(Overloaded{[](const SharedIndex&) {},
                            [&](const RepeatedIndex& i) { add(s_.probe.InputsOfDim(i.count)); },
                            [&](const SourceIndex& i) {
                              add(s_.probe.InputsOf(i.slot));
                              add(s_.probe.InputsOf(i.start));
                              add(s_.probe.InputsOfDim(i.new_length));
                            }},
                 write.index);
      if (const auto* drawn = std::get_if<DrawnRows>(&write.rows)) add_request(drawn->rows);
      add_request(write.reordered_past);
    }
    for (size_t k = 0; k < plan_.attention.size(); ++k) {
      const PlannedAttention* attention = plan_.replaced(k);
      if (attention == nullptr) continue;
      add_request(attention->mask);
      for (const PlannedBias& bias : attention->biases) add_request(bias.in_ring_order);
      if (const auto* all = std::get_if<AllSlotsValid>(&attention->keys)) {
        add(s_.probe.InputsOfDim(all->slots));
        add(s_.probe.InputsOfDim(all->batch));
      }
    }
    for (const RederivedOperand& operand : plan_.operands) {
      if (const auto* request = std::get_if<sym::Emitter::Request>(&operand.value)) {
        add(s_.probe.InputsOf(*request));
      }
    }
    return read;
  }

  void NameUniformReason() {
    if (!s_.growing) {
      plan_.uniform_reason = internal::UniformBuffers(s_.a);
    } else if (s_.derived) {
      plan_.uniform_reason = "the past's length is derived from the width of an input";
    }
  }

  const PlanBasis s_;
  const internal::FoundExtents& surveyed_;
  const internal::AttentionJudge judge_{s_};
  const std::vector<NodeId> quantized_behind_ = DynamicQuantizationBehind(s_.graph);
  std::vector<ValueId> roots_;  // values of the source that new nodes read
  Candidacy out_;
  ConversionPlan& plan_ = out_.plan;
};

// Returns true if some replaced attention may give other rows than the source for queries without
// visible keys.
bool LosesRows(const Analysis& a, const ConversionPlan& plan) {
  for (size_t k = 0; k < a.attention.size(); ++k) {
    const bool stays =
        k < plan.attention.size() && std::holds_alternative<Finding>(plan.attention[k]);
    const auto& site = a.attention[k].site;
    if (site && !stays && !internal::KeepsRowsWithoutKeys(*site, plan.options)) return true;
  }
  return false;
}

// Judges the model under the schemes that are open to it, and returns the plan of one.
ConversionPlan ChoosePlan(const Analysis& a, const ResolvedOptions& options) {
  const std::vector<PlannedCache> caches = PlanBuffers(a, options);
  if (auto finding = internal::RefuseBeforePlanning(a, caches, options)) {
    ConversionPlan refused;
    refused.options = options;
    refused.refusal = PlanRefusal{PlanRefusal::Cause::kOption, *std::move(finding)};
    return refused;
  }
  const bool growing = HasGrowing(a);
  std::optional<std::string> why = growing ? internal::NeedsUniform(a) : std::nullopt;
  const internal::FoundExtents surveyed = internal::FindSharedExtents(a, caches);
  const auto under = [&](Scheme scheme) {
    return SchemeJudge(a, caches, options, surveyed, scheme).Run();
  };
  if (!growing) return under(Scheme::kPerSequence).plan;
  if (!why) {
    Candidacy each = under(Scheme::kPerSequence);
    const std::optional<PlanRefusal>& refusal = each.plan.refusal;
    const bool leaks = !refusal && each.rows_read_elsewhere && LosesRows(a, each.plan);
    const bool complete = !refusal && !each.needs_uniform && !leaks;
    const bool is_final = refusal && refusal->cause == PlanRefusal::Cause::kOption;
    if (complete || is_final) return std::move(each.plan);
    why = refusal ? refusal->finding.text
          : leaks ? "rows of pads, which may differ, are read elsewhere"
                  : *each.needs_uniform;
  }
  Candidacy one = under(Scheme::kUniform);
  if (!one.plan.refusal && one.rows_read_elsewhere && LosesRows(a, one.plan)) {
    one = under(Scheme::kUniformKeepUnguarded);
  }
  one.plan.uniform_reason = std::move(*why);
  return std::move(one.plan);
}

// Returns true if some cache is of a type that ONNX's Slice does not take, so that attention reads
// its whole buffer.
bool HasUncutBuffers(const Analysis& a) {
  return std::any_of(a.updates.begin(), a.updates.end(), [&](const CacheUpdate& update) {
    const int32_t type = a.forms->ElementType(update.pair.past);
    const int bits = ElementBits(type);
    return bits > 0 && (bits < 8 || (bits == 8 && IsFloatType(type)));
  });
}

// Returns the rotations of the source that become RotaryEmbedding.
std::vector<Rotation> RotationsOf(const Analysis& a, const ConversionPlan& plan) {
  absl::flat_hash_map<std::pair<NodeId, int>, const RederivedOperand*> rederived;
  for (const RederivedOperand& operand : plan.operands) {
    rederived[{operand.node, operand.operand}] = &operand;
  }
  return FindRotations(*a.graph, [&](const NodeOperand& operand) {
    const auto found = rederived.find({operand.node, operand.index});
    if (found == rederived.end()) {
      return plan.widened.contains(a.graph->inputs(operand.node)[operand.index]);
    }
    const auto* request = std::get_if<sym::Emitter::Request>(&found->second->value);
    return request != nullptr && request->batch_axis == 0;
  });
}

}  // namespace

ConversionPlan MakePlan(const Analysis& a, const ResolvedOptions& given) {
  ResolvedOptions options = given;
  if (HasUncutBuffers(a)) options.read = ReadForm::kFull;
  ConversionPlan plan = ChoosePlan(a, options);
  if (plan.refusal) return plan;
  if (auto finding = internal::PadsChangeRows(a, plan)) {
    plan.refusal = PlanRefusal{PlanRefusal::Cause::kOption, *std::move(finding)};
    return plan;
  }
  if (auto finding = internal::LosesRounding(a, plan)) {
    plan.refusal = PlanRefusal{PlanRefusal::Cause::kOption, *std::move(finding)};
    return plan;
  }
  internal::JudgedStorage storage = internal::JudgeStorage(a, plan);
  if (storage.refusal) {
    plan.refusal = PlanRefusal{PlanRefusal::Cause::kOption, *std::move(storage.refusal)};
    return plan;
  }
  plan.quantization = std::move(storage.quantization);
  plan.one_tensor = options.cache_tensors == CacheTensors::kPacked;
  plan.names = std::move(storage.names);
  if (options.rotary == Rotary::kFused) plan.rotations = RotationsOf(a, plan);
  if (auto forbids = internal::ForbidsPadding(a)) plan.no_padding = *forbids;
  plan.may_hide_all_keys = internal::MayHideAllKeys(a, !plan.extents.key_length_masks.empty());
  if (!plan.no_padding && plan.may_hide_all_keys && LosesRows(a, plan)) {
    if (const NodeId n = FindOtherTokens(a); n != kNoNode) plan.no_padding = OtherRowsRead{n};
  }
  plan.assumptions = HostAssumptions(a);
  return plan;
}

}  // namespace kvlift
