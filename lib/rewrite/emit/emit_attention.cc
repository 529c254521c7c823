#include "rewrite/emit/emit_attention.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "base/overloaded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/lower/decoded_rows.h"
#include "rewrite/recognise/input_assumptions.h"
#include "rewrite/recognise/match.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;
using sym::Kind;

namespace {
// Scales of the scores for which no part of the computation overflows or underflows.
constexpr double kLeastScale = 1e-6, kLargestScale = 1e6;
constexpr int64_t kMostHeads = 1 << 16;

// Returns the largest factor by which a scale may be moved to the other side of a product of
// numbers of this type. Larger factors, and inverses of them, may overflow or underflow on the way.
double LargestMove(int32_t type) {
  return type == TensorProto::DOUBLE ? 0x1p256 : type == TensorProto::FLOAT ? 0x1p32 : 0x1p8;
}

bool MovesFar(const AttentionSite& site, const AttentionSpelledOut& spelled, int32_t type) {
  const double most = std::min(LargestMove(type), LargestMove(spelled.product_type));
  const auto far = [&](double moved) {
    return !(std::abs(moved) >= 1 / most && std::abs(moved) <= most);
  };
  return far(spelled.operand_scale) || far(site.scale / spelled.operand_scale);
}
}  // namespace

Finding AttentionEmitter::Reason(std::string_view code, std::string text, const AttentionSite& site,
                                 std::vector<ValueId> values) const {
  return MakeFinding(code, std::move(text), s_.graph, {site.node}, values);
}

absl::StatusOr<std::optional<Finding>> AttentionEmitter::Emit(int number,
                                                              const AttentionSite& site) {
  const PlannedCache& key = s_.caches[site.key.cache];
  const PlannedCache& value = s_.caches[site.value.cache];
  const int layer = LayerOf(s_.a, site.key.cache);
  const int32_t type = TypeOfRows(s_.forms, key, site.key.view);
  if (!OneType(site, type)) {
    return Reason(
        "KV210",
        fmt::format("queries and values need the type of the keys, {}", ElementTypeName(type)),
        site);
  }
  // Attention rounds in other places than the source. Results of the source that are cast back to
  // the wider type show that.
  if (site.key.view.cast_to != 0 || site.value.view.cast_to != 0) {
    return Reason(
        "KV210",
        fmt::format("needs rows of the type in which it reads them, {}, found {}",
                    ElementTypeName(type), ElementTypeName(s_.forms.ElementType(key.pair.past))),
        site);
  }
  if (key.writes_some_sequences() || value.writes_some_sequences()) {
    return Reason("KV210", "needs caches of the sequences of the step, found larger ones", site);
  }
  if (auto reason = JudgeBiases(site, key, type)) return reason;
  if (!RowPerToken(site, key) || !RowPerToken(site, value)) {
    s_.Refuse(Reason("KV209",
                     fmt::format("needs one row per token, found {} rows for {} queries",
                                 sym::ToString(key.new_length, &s_.graph),
                                 sym::ToString(QueryShape(s_.forms, site)[2], &s_.graph)),
                     site));
    return std::nullopt;
  }
  if (site.q_heads > kMostHeads) {
    return Reason("KV210",
                  fmt::format("needs at most {} heads, found {}", kMostHeads, site.q_heads), site);
  }
  // Attention multiplies queries and keys by the square root of the scale each.
  if (!(site.scale >= kLeastScale && site.scale <= kLargestScale)) {
    return Reason("KV210",
                  fmt::format("needs a scale of the scores from {} to {}, found {}", kLeastScale,
                              kLargestScale, site.scale),
                  site);
  }
  // The scale of an operator stays where it is.
  const auto* spelled = std::get_if<AttentionSpelledOut>(&site.spelling);
  if (spelled != nullptr && spelled->product_type != 0 && MovesFar(site, *spelled, type)) {
    return Reason(
        "KV210",
        fmt::format("needs a scale near the product of queries and keys, found {} of {} in front "
                    "of it in {}",
                    spelled->operand_scale, site.scale, ElementTypeName(spelled->product_type)),
        site);
  }
  const Expr start = FirstNewRow(key);
  const Expr keep = KeepOf(site, key, start);
  if (!site.mask.biases.empty() && keep != Normal(key, site.mask.keep)) {
    return Reason("KV216",
                  fmt::format("needs biases of all keys up to the new ones, found {} of {}",
                              s_.graph.name(site.mask.biases[0].value),
                              sym::ToString(site.mask.keys, &s_.graph)),
                  site, {site.mask.biases[0].value});
  }
  const MaskOfSite judged = {site, key, s_.pool.And(keep, Normal(key, site.mask.bias_keep)), start};
  if (auto reason = JudgeMask(judged)) return reason;
  if (s_.plan.refusal) return std::nullopt;
  const bool whole = !key.grows() && (!key.linear() || !s_.prefix_read() || !HidesUnused(judged));
  KV_ASSIGN_OR_RETURN(const Slots slots, whole ? control_.WholeBuffer(key) : control_.SlotsOf(key));
  if (!WrittenAlike(key, value)) {
    return Reason("KV210", "needs keys and values that are written at the same slots", site);
  }
  const bool one_token = QueryShape(s_.forms, site)[2]->is_integer(1);
  Visibility visible = ReadVisibility(s_.forms, keep, start, one_token);
  const bool groups_as_tokens = HasGroupsAsTokens(site);
  // ONNX Runtime 1.31 aligns is_causal top-left for doubles, without an error.
  const bool given = s_.options.target == Target::kGenaiStatic;  // the host feeds the valid length
  const bool drawn = whole || given || s_.options.mask == MaskForm::kExplicit ||
                     type == TensorProto::DOUBLE || (groups_as_tokens && !one_token);
  if (!key.linear() || (drawn && visible.causal)) {
    visible.rest = InSlots(judged, keep);
    visible.causal = false;
  }
  if (s_.options.padding == Padding::kNone && key.grows()) {
    visible.rest = WithoutPadding(visible.rest);
  }
  const bool draws = !visible.rest->is_integer(1);
  if (draws && s_.options.mask == MaskForm::kCausal) {
    s_.RefuseOption(Reason("KV224",
                           fmt::format("--mask causal, but the mask also says {}",
                                       sym::ToString(visible.rest, &s_.graph)),
                           site));
    return std::nullopt;
  }
  const bool in_last_axis = HasHeadsInLastAxis(site);
  const std::string k =
      ReadCache(layer, "key", key, site.key.view, site.head_dim, in_last_axis, slots);
  const std::string v =
      ReadCache(layer, "value", value, site.value.view, site.v_head_dim, in_last_axis, slots);
  std::string mask;
  if (draws) {
    std::optional<Finding> reason;
    KV_ASSIGN_OR_RETURN(mask, DrawMask(site, key, slots, visible.rest, &reason));
    if (reason) return reason;
  }
  if (!control_.tree_input().empty()) mask = WithTree(mask, slots);
  if (!site.mask.biases.empty()) {
    KV_ASSIGN_OR_RETURN(mask, MaskOfBiases(site, key, slots, mask));
  }
  if (groups_as_tokens && !mask.empty()) {
    mask = MaskOfGroupsAsTokens(mask, site, DrawsHeads(site, visible.rest));
  }
  s_.nodes.set_scope(fmt::format("layers.{}", layer));
  NodeBuilder::Attributes attributes;
  // A single query sees all valid keys anyway.
  if (visible.causal && !one_token) attributes.push_back(MakeAttribute("is_causal", int64_t{1}));
  const auto scale = static_cast<float>(site.scale);
  const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(site.head_dim)));
  if (scale != usual) attributes.push_back(MakeAttribute("scale", scale));
  if (site.softcap != 0) {
    attributes.push_back(MakeAttribute("softcap", static_cast<float>(site.softcap)));
  }
  if (site.softmax_type != 0 && site.softmax_type != type) {
    attributes.push_back(MakeAttribute("softmax_precision", int64_t{site.softmax_type}));
  }
  s_.plan.patch.remove_nodes.insert(site.node);
  std::string q = Query(site);
  if (groups_as_tokens) q = GroupsAsTokens(q, site);
  if (in_last_axis) {
    q = JoinHeads(s_, q, site.q_heads, site.head_dim);
    attributes.push_back(MakeAttribute("q_num_heads", site.q_heads));
    attributes.push_back(MakeAttribute("kv_num_heads", site.key.view.heads));
  }
  EmitResult(site, {q, k, v, mask, "", "", slots.valid},
             number == layer ? "Attention" : fmt::format("Attention_{}", number),
             std::move(attributes));
  s_.roots.push_back(site.query);
  return std::nullopt;
}

// Returns true if the cache holds the heads of this attention and nothing else.
bool AttentionEmitter::IsWhole(const CacheUpdate& update, const CacheView& view,
                               int64_t head_dim) const {
  const auto extent = [&](char letter) {
    const size_t axis = update.layout.find(letter);
    const Expr e =
        axis == std::string::npos ? s_.pool.Integer(1) : s_.forms.Of(update.pair.past).shape[axis];
    return e->kind() == Kind::kInteger ? e->value() : 0;
  };
  return !view.batch_times_heads && view.offset == 0 &&
         extent('N') * extent('D') == view.heads * head_dim;
}

// Returns true if queries, keys, values and the result are 3-D, for targets with 3-D caches.
bool AttentionEmitter::HasHeadsInLastAxis(const AttentionSite& site) const {
  if (s_.options.layout != Layout::kHeadsInLastAxis || IsBatchTimesHeads(site)) return false;
  const PlannedCache& key = s_.caches[site.key.cache];
  const PlannedCache& value = s_.caches[site.value.cache];
  const auto three = [&](const CacheUpdate& update) {
    const std::string layout = PlacementOf(s_.options, update).layout;
    return layout == kHeadsInLastAxis || layout == "BSD";
  };
  for (const CacheView* view : {&site.key.view, &site.value.view}) {
    if (!IsElementwise(s_.graph, view->decode)) return false;
  }
  return three(key) && three(value) && IsWhole(key, site.key.view, site.head_dim) &&
         IsWhole(value, site.value.view, site.v_head_dim);
}

// Returns true if the queries of a group are stacked on the axis of tokens: ONNX Runtime 1.31 reads
// keys and values once per query head, and so reads them once per group. They are not stacked with
// --tree-mask, since the host may feed a mask for each head.
bool AttentionEmitter::HasGroupsAsTokens(const AttentionSite& site) const {
  return s_.options.target == Target::kOrt && site.q_heads > site.key.view.heads &&
         control_.tree_input().empty();
}

// Returns the queries, [B, N, S, D].
std::string AttentionEmitter::Query(const AttentionSite& site) {
  const std::string& query = s_.graph.name(site.query);
  if (s_.forms.Of(site.query).shape.size() == 4) return query;
  return s_.nodes.Add("Unsqueeze", {query, s_.nodes.Int64s({0})}, "sequence");
}

// Returns S, int64 [1].
std::string AttentionEmitter::QueryExtent(const AttentionSite& site) {
  const auto rank = static_cast<int64_t>(s_.forms.Of(site.query).shape.size());
  return s_.nodes.Extent(s_.graph.name(site.query), rank - 2, "queries");
}

// Returns [B, Nk, N/Nk*S, D] from [B, N, S, D].
std::string AttentionEmitter::GroupsAsTokens(const std::string& query, const AttentionSite& site) {
  const std::string shape = s_.nodes.Int64s({0, site.key.view.heads, -1, site.head_dim});
  return s_.nodes.Add("Reshape", {query, shape}, "query_groups");
}

void AttentionEmitter::EmitResult(const AttentionSite& site, const NodeBuilder::Inputs& inputs,
                                  const std::string& role, NodeBuilder::Attributes attributes) {
  NodeBuilder& nodes = s_.nodes;
  const std::string& output = s_.graph.name(s_.graph.outputs(site.node)[0]);
  if (!IsBatchTimesHeads(site) && !HasGroupsAsTokens(site) && !HasHeadsInLastAxis(site)) {
    nodes.AddNamed("Attention", inputs, role, output, std::move(attributes));
    return;
  }
  const std::string result = nodes.Add("Attention", inputs, role, std::move(attributes));
  if (HasHeadsInLastAxis(site)) {
    const std::string split = nodes.Add(
        "Reshape", {result, nodes.Int64s({0, 0, site.q_heads, site.v_head_dim})}, "heads");
    nodes.AddNamed("Transpose", {split}, "heads_first", output,
                   {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
    return;
  }
  std::string shape = nodes.Int64s({0, site.q_heads, -1, site.v_head_dim});
  if (IsBatchTimesHeads(site)) {
    const std::string rows = QueryExtent(site);
    shape = nodes.Add("Concat", {nodes.Int64s({-1}), rows, nodes.Int64s({site.v_head_dim})},
                      "shape", {MakeAttribute("axis", int64_t{0})});
  }
  nodes.AddNamed("Reshape", {result, shape}, "heads", output);
}

// Returns true if queries, keys, values and the result have this type. The operator needs that of
// queries and keys only.
bool AttentionEmitter::OneType(const AttentionSite& site, int32_t type) {
  return s_.forms.ElementType(site.query) == type &&
         TypeOfRows(s_.forms, s_.caches[site.value.cache], site.value.view) == type &&
         s_.forms.ElementType(s_.graph.outputs(site.node)[0]) == type;
}

std::string AttentionEmitter::ReadCache(int layer, std::string_view role,
                                        const PlannedCache& update, const CacheView& view,
                                        int64_t head_dim, bool heads_in_last_axis,
                                        const Slots& slots) {
  s_.nodes.set_scope(fmt::format("layers.{}/{}", layer, role));
  std::string value = s_.graph.name(update.pair.present);
  if (update.grows() && update.linear() && s_.views()) {
    value = control_.ViewForAttention(update);
  } else if (!slots.whole) {
    const int64_t axis = PlacementOf(s_.options, update).axis;
    value = s_.nodes.Add(
        "Slice", {value, s_.nodes.Int64s({0}), slots.keys, s_.nodes.Int64s({axis})}, "visible");
  }
  std::string layout = PlacementOf(s_.options, update).layout;
  const bool rowwise = !IsElementwise(s_.graph, view.decode);
  if (rowwise) {
    value = ToSourceLayout(s_, update, value);
    layout = update.layout;
  }
  value = Decoded(value, view);
  // If heads and their elements are on one axis, the attention reads all of it.
  const bool joined = layout == kHeadsInLastAxis;
  if (joined) layout = "BSD";
  for (auto fixed = view.fixed_axes.rbegin(); fixed != view.fixed_axes.rend(); ++fixed) {
    value = s_.nodes.Add("Gather", {value, s_.nodes.Int64(fixed->index)}, std::string(role),
                         {MakeAttribute("axis", int64_t{fixed->axis})});
    layout.erase(fixed->axis, 1);
  }
  const bool headless = layout.find('N') == std::string::npos;
  const int64_t size = headless && !view.batch_times_heads ? view.heads * head_dim : head_dim;
  const ValueId rows = rowwise ? s_.graph.outputs(view.decode.back())[0] : update.pair.past;
  const Expr extent = s_.forms.Of(rows).shape[update.layout.find('D')];
  if (!joined && !extent->is_integer(size)) {
    const auto axis = static_cast<int64_t>(layout.find('D'));
    value = s_.nodes.Add("Slice",
                         {value, s_.nodes.Int64s({view.offset}),
                          s_.nodes.Int64s({view.offset + size}), s_.nodes.Int64s({axis})},
                         "part");
  }
  const std::string_view wanted = headless ? "BSD" : "BNSD";
  if (layout != wanted) {
    std::vector<int64_t> perm;
    for (char letter : wanted) perm.push_back(static_cast<int64_t>(layout.find(letter)));
    value = s_.nodes.Add("Transpose", {value}, "heads_first", {MakeAttribute("perm", perm)});
  }
  if (!headless || heads_in_last_axis) return value;
  return SplitHeads(value, view, head_dim, slots);
}

// Adds the nodes that decode the rows as those of the source do.
std::string AttentionEmitter::Decoded(const std::string& rows, const CacheView& view) {
  absl::flat_hash_map<ValueId, std::string> made;
  for (ValueId cache : view.decoded) made[cache] = rows;
  std::string value = rows;
  for (NodeId n : view.decode) {
    const onnx::NodeProto& node = s_.graph.node(n);
    NodeBuilder::Inputs inputs;
    for (ValueId v : s_.graph.inputs(n)) {
      const auto it = made.find(v);
      const ValueId spread = it != made.end() ? kNoValue : SpreadConstant(s_.graph, v);
      inputs.push_back(it != made.end()     ? it->second
                       : spread != kNoValue ? Spread(spread, v, inputs[0])
                       : v == kNoValue      ? ""
                                            : s_.graph.name(v));
    }
    value = s_.nodes.Add(node.op_type(), inputs,
                         node.op_type() == "DequantizeLinear" ? "dequantized" : "decoded",
                         {node.attribute().begin(), node.attribute().end()});
    made[s_.graph.outputs(n)[0]] = value;
  }
  return value;
}

// Repeats a constant for each of these rows, as the source does for its own.
std::string AttentionEmitter::Spread(ValueId constant, ValueId spread, const std::string& rows) {
  const std::string lead =
      s_.nodes.Add("Shape", {rows}, "row_places",
                   {MakeAttribute("start", int64_t{0}), MakeAttribute("end", int64_t{-1})});
  const std::string last = s_.nodes.Int64s({s_.forms.Of(spread).shape.back()->value()});
  const std::string shape =
      s_.nodes.Add("Concat", {lead, last}, "scale_shape", {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Expand", {s_.graph.name(constant), shape}, "scales");
}

std::string AttentionEmitter::SplitHeads(const std::string& value, const CacheView& view,
                                         int64_t head_dim, const Slots& slots) {
  NodeBuilder& nodes = s_.nodes;
  if (view.heads == 1) return nodes.Add("Unsqueeze", {value, nodes.Int64s({1})}, "one_head");
  if (view.batch_times_heads) {
    const std::string shape =
        nodes.Add("Concat", {nodes.Int64s({-1, view.heads}), slots.keys, nodes.Int64s({head_dim})},
                  "shape", {MakeAttribute("axis", int64_t{0})});
    return nodes.Add("Reshape", {value, shape}, "heads");
  }
  const std::string split =
      nodes.Add("Reshape", {value, nodes.Int64s({0, 0, view.heads, head_dim})}, "heads");
  return nodes.Add("Transpose", {split}, "heads_first",
                   {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
}

// Returns the source's mask as a predicate of all keys up to the last new one. The source may have
// fewer keys, `site.mask.keys`, of which alone its mask says anything; the others are hidden.
Expr AttentionEmitter::KeepOf(const AttentionSite& site, const PlannedCache& key, Expr start) {
  sym::Pool& pool = s_.pool;
  const Expr keep = Normal(key, site.mask.keep), keys = Normal(key, site.mask.keys);
  const Expr behind = pool.Sub(pool.Add(start, key.new_length), keys);
  if (pool.Prove(pool.Le(behind, pool.Integer(0), {}), {}) == sym::Truth::kYes) return keep;
  if (keys == Normal(key, s_.forms.Of(key.read_by_attention()).shape[key.axis])) return keep;
  return pool.And(keep, pool.Lt(pool.Index(3), keys, {}));
}

Expr AttentionEmitter::CapacityOf(const PlannedCache& key) {
  return s_.forms.Of(key.pair.past).shape[key.axis];
}

Expr AttentionEmitter::FirstNewRow(const PlannedCache& key) {
  const auto written = [&] { return Normal(key, key.write_index(s_.pool)); };
  return std::visit(
      Overloaded{
          [&](const AppendAll&) { return written(); }, [&](const KeepLast&) { return written(); },
          [&](const WriteAt&) { return written(); }, [&](const WriteAround&) { return written(); },
          [&](const Fifo&) { return s_.pool.Sub(CapacityOf(key), key.new_length); }},
      key.how);
}

bool AttentionEmitter::WrittenAlike(const PlannedCache& key, const PlannedCache& value) {
  if (key.how.index() != value.how.index() || key.buffer != value.buffer) return false;
  if (key.grows()) return key.window() == value.window();
  return Normal(key, key.write_index(s_.pool)) == Normal(value, value.write_index(s_.pool));
}

Expr AttentionEmitter::InSlots(const MaskOfSite& mask, Expr e) {
  return std::visit(Overloaded{[&](const LinearBuffer&) { return e; },
                               [&](const WindowRing& ring) { return InWindowRing(mask, ring, e); },
                               [&](const SourceRing&) { return e; },
                               [&](const FifoRing&) { return InRingOrder(mask.key, e); }},
                    mask.key.buffer);
}

// Returns e, an expression of the rows of a Fifo, as one of the slots in which they stay.
Expr AttentionEmitter::InRingOrder(const PlannedCache& key, Expr e) {
  const Expr total = s_.pool.Add(key.write_index(s_.pool), key.new_length);
  sym::Pool::Substitution rows;
  rows.indices = {nullptr, nullptr, nullptr,
                  s_.pool.Mod(s_.pool.Sub(s_.pool.Index(3), total), CapacityOf(key), {})};
  return s_.pool.Substitute(e, rows, {});
}

// Returns e, a predicate of the source's rows, as one of the slots of a ring. Slots that hold no
// row of the window are hidden; what e reads at rows is read at the last row for them.
Expr AttentionEmitter::InWindowRing(const MaskOfSite& mask, const WindowRing& ring, Expr e) {
  sym::Pool& pool = s_.pool;
  const PlannedCache& key = mask.key;
  const Expr past = pool.Dim(PastSymbol()), window = pool.Integer(ring.window);
  const Expr dropped = pool.Max(pool.Sub(past, window), pool.Integer(0), {});
  Expr row = pool.Mod(pool.Sub(pool.Index(3), dropped), pool.Dim(RingSymbol(ring.window)), {});
  if (!key.window()) row = pool.Add(row, dropped);  // the source's first row is the first token
  const Expr last = pool.Sub(pool.Add(key.write_index(pool), key.new_length), pool.Integer(1));
  const std::vector<Expr> loads = sym::LoadsOf(e);
  const bool reads = std::any_of(loads.begin(), loads.end(),
                                 [](Expr load) { return sym::ContainsIndex(load, 3); });
  sym::Pool::Substitution rows;
  rows.indices = {nullptr, nullptr, nullptr, reads ? pool.Min(row, last, {}) : row};
  const Expr seen = pool.Substitute(e, rows, {});
  return SaysWhatIsUnused(mask) && !reads ? seen : pool.And(pool.Le(row, last, {}), seen);
}

Expr AttentionEmitter::Normal(const PlannedCache& key, Expr e) {
  if (!key.grows()) return CountedUp(s_.forms, e);
  sym::Pool::Substitution one_name = s_.normal;
  if (const auto* last = std::get_if<KeepLast>(&key.how)) {
    for (const PlannedCache& cache : s_.caches) {
      const auto* other = std::get_if<KeepLast>(&cache.how);
      if (other == nullptr || other->window != last->window) continue;
      one_name.dims[other->past_length->dim()] = last->past_length;
    }
  }
  return s_.pool.Substitute(e, one_name, {});
}

bool AttentionEmitter::RowPerToken(const AttentionSite& site, const PlannedCache& key) {
  return Normal(key, QueryShape(s_.forms, site)[2]) == Normal(key, key.new_length);
}

}  // namespace kvlift::internal
