#include "rewrite/emit_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/host_facts.h"
#include "rewrite/match.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;
using sym::Kind;

Finding AttentionEmitter::Reason(std::string_view code, std::string text, const AttentionSite& site,
                                 std::vector<ValueId> values) const {
  return MakeFinding(code, std::move(text), s_.graph, {site.node}, values);
}

absl::StatusOr<std::optional<Finding>> AttentionEmitter::Emit(int number,
                                                              const AttentionSite& site) {
  const CacheUpdate& key = s_.a.updates[site.key_cache];
  const CacheUpdate& value = s_.a.updates[site.value_cache];
  const int layer = LayerOf(site.key_cache);
  const int32_t type = s_.forms.ElementType(key.pair.past);
  if (!OneType(site, type)) {
    return Reason(
        "KV210",
        fmt::format("queries and values need the type of the keys, {}", ElementTypeName(type)),
        site);
  }
  if (key.part || value.part) {
    return Reason("KV210", "needs caches of the sequences of the step, found larger ones", site);
  }
  if (auto reason = JudgeBiases(site, key, type)) return reason;
  if (!RowPerToken(site, key) || !RowPerToken(site, value)) {
    s_.plan.refusal =
        Reason("KV209",
               fmt::format("needs one row per token, found {} rows for {} queries",
                           sym::ToString(key.new_length, &s_.graph),
                           sym::ToString(s_.forms.Of(site.query).shape[2], &s_.graph)),
               site);
    return std::nullopt;
  }
  const Expr keep = Normal(key, site.keep);
  const Expr start = Normal(key, key.start);
  const MaskOfSite judged = {site, key, s_.pool.And(keep, Normal(key, site.bias_keep)), start};
  if (auto reason = JudgeMask(judged)) return reason;
  if (s_.plan.refusal) return std::nullopt;
  const bool whole = !key.growing && (!s_.prefix_read() || !HidesUnused(judged));
  KV_ASSIGN_OR_RETURN(const Slots slots, whole ? control_.WholeBuffer(key) : control_.SlotsOf(key));
  if (key.growing != value.growing || key.window != value.window ||
      (!key.growing && start != Normal(value, value.start))) {
    return Reason("KV210", "needs keys and values that are written at the same slots", site);
  }
  const bool one_token = s_.forms.Of(site.query).shape[2]->is_integer(1);
  Visibility visible = ReadVisibility(s_.forms, keep, start, one_token);
  // ONNX Runtime 1.31 runs a causal Attention of doubles top-left, without a word.
  const bool drawn = whole || s_.options.mask == MaskForm::kExplicit || type == TensorProto::DOUBLE;
  if (drawn && visible.causal) {
    visible.rest = keep;
    visible.causal = false;
  }
  if (s_.options.padding == Padding::kNone && key.growing) {
    visible.rest = WithoutPadding(visible.rest);
  }
  const bool draws = !visible.rest->is_integer(1);
  if (draws && s_.options.mask == MaskForm::kCausal) {
    s_.plan.refusal = Reason("KV224",
                             fmt::format("--mask causal, but the mask also says {}",
                                         sym::ToString(visible.rest, &s_.graph)),
                             site);
    return std::nullopt;
  }
  const std::string k = ReadCache(layer, "key", key, site.key_view, site.head_dim, slots);
  const std::string v = ReadCache(layer, "value", value, site.value_view, site.v_head_dim, slots);
  std::string mask;
  if (draws) {
    std::optional<Finding> reason;
    KV_ASSIGN_OR_RETURN(mask, DrawMask(site, key, slots, visible.rest, &reason));
    if (reason) return reason;
  }
  if (!site.biases.empty()) {
    KV_ASSIGN_OR_RETURN(mask, MaskOfBiases(site, key, slots, mask));
  }
  s_.nodes.set_scope(fmt::format("layers.{}", layer));
  NodeBuilder::Attributes attributes;
  // A single query sees all valid keys anyway.
  if (visible.causal && !one_token) attributes.push_back(MakeAttribute("is_causal", int64_t{1}));
  const auto scale = static_cast<float>(site.scale);
  const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(site.head_dim)));
  if (std::abs(scale - usual) > 1e-6f * usual) attributes.push_back(MakeAttribute("scale", scale));
  if (site.softcap != 0) {
    attributes.push_back(MakeAttribute("softcap", static_cast<float>(site.softcap)));
  }
  if (site.softmax_type != 0 && site.softmax_type != type) {
    attributes.push_back(MakeAttribute("softmax_precision", int64_t{site.softmax_type}));
  }
  s_.plan.patch.remove_nodes.insert(site.node);
  EmitResult(site, {s_.graph.name(site.query), k, v, mask, "", "", slots.valid},
             number == layer ? "Attention" : fmt::format("Attention_{}", number),
             std::move(attributes));
  s_.roots.push_back(site.query);
  return std::nullopt;
}

void AttentionEmitter::EmitResult(const AttentionSite& site, NodeBuilder::Inputs inputs,
                                  std::string role, NodeBuilder::Attributes attributes) {
  NodeBuilder& nodes = s_.nodes;
  const std::string& output = s_.graph.name(s_.graph.outputs(site.node)[0]);
  if (!site.folded) {
    nodes.AddNamed("Attention", inputs, role, output, std::move(attributes));
    return;
  }
  const std::string rows = nodes.Extent(s_.graph.name(site.query), 2, "queries");
  const std::string shape =
      nodes.Add("Concat", {nodes.Int64s({-1}), rows, nodes.Int64s({site.v_head_dim})}, "shape",
                {MakeAttribute("axis", int64_t{0})});
  nodes.AddNamed("Reshape", {nodes.Add("Attention", inputs, role, std::move(attributes)), shape},
                 "folded", output);
}

int AttentionEmitter::LayerOf(int update_index) const {
  for (const AnalysedCache& cache : s_.a.caches) {
    if (cache.update_index == update_index) return cache.layer;
  }
  return 0;
}

// Attention has one type for queries and keys, and here also for values and the result.
bool AttentionEmitter::OneType(const AttentionSite& site, int32_t type) {
  return s_.forms.ElementType(site.query) == type &&
         s_.forms.ElementType(s_.a.updates[site.value_cache].pair.past) == type &&
         s_.forms.ElementType(s_.graph.outputs(site.node)[0]) == type;
}

std::string AttentionEmitter::ReadCache(int layer, std::string_view role, const CacheUpdate& update,
                                        const CacheView& view, int64_t head_dim,
                                        const Slots& slots) {
  s_.nodes.set_scope(fmt::format("layers.{}/{}", layer, role));
  std::string value = s_.graph.name(update.pair.present);
  if (update.growing && s_.views()) {
    value = control_.AttendedView(update);
  } else if (!slots.whole) {
    value = s_.nodes.Add("Slice",
                         {value, s_.nodes.Int64s({0}), slots.keys, s_.nodes.Int64s({update.axis})},
                         "visible");
  }
  std::string layout = update.layout;
  for (auto lane = view.lanes.rbegin(); lane != view.lanes.rend(); ++lane) {
    value = s_.nodes.Add("Gather", {value, s_.nodes.Int64(lane->index)}, std::string(role),
                         {MakeAttribute("axis", int64_t{lane->axis})});
    layout.erase(lane->axis, 1);
  }
  const bool headless = layout.find('N') == std::string::npos;
  const int64_t size = headless && !view.folded ? view.heads * head_dim : head_dim;
  const Expr extent = s_.forms.Of(update.pair.past).shape[update.layout.find('D')];
  if (!extent->is_integer(size)) {
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
  return headless ? SplitHeads(value, view, head_dim, slots) : value;
}

std::string AttentionEmitter::SplitHeads(const std::string& value, const CacheView& view,
                                         int64_t head_dim, const Slots& slots) {
  NodeBuilder& nodes = s_.nodes;
  if (view.heads == 1) return nodes.Add("Unsqueeze", {value, nodes.Int64s({1})}, "one_head");
  if (view.folded) {
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

Expr AttentionEmitter::Normal(const CacheUpdate& key, Expr e) {
  if (!key.growing) return CountedUp(s_.forms, e);
  sym::Pool::Substitution one_name = s_.normal;
  for (const CacheUpdate& update : s_.a.updates) {
    if (key.window == 0 || !update.growing || update.window != key.window) continue;
    one_name.dims[update.start->dim()] = key.start;
  }
  return s_.pool.Substitute(e, one_name, {});
}

bool AttentionEmitter::HidesUnused(const MaskOfSite& mask) {
  const Expr end = s_.pool.Add(mask.start, mask.key.new_length);
  // keys <= end says it, too: the graph cut them there.
  if (mask.site.keys != nullptr && Normal(mask.key, mask.site.keys) == end) return true;
  return Implies(s_, mask, s_.pool.Sub(end, s_.pool.Integer(1)));
}

// Biases are taken as they are, so they must have the keys' extent as attention reads them.
std::optional<Finding> AttentionEmitter::JudgeBiases(const AttentionSite& site,
                                                     const CacheUpdate& key, int32_t type) {
  for (const auto& [bias, folded] : site.biases) {
    if (key.growing && !s_.views()) {
      return Reason("KV216",
                    fmt::format("needs one index for the batch and keys up to it, to add {}",
                                s_.graph.name(bias)),
                    site, {bias});
    }
    const int32_t found = s_.forms.ElementType(bias);
    if (found != type) {
      return Reason("KV210",
                    fmt::format("needs biases of the type of the keys, {}, found {}",
                                ElementTypeName(type), ElementTypeName(found)),
                    site, {bias});
    }
  }
  return std::nullopt;
}

// [B or 1, N or 1, S, W] of the keys' type: the biases' sum, -inf where `mask` (may be empty)
// hides.
absl::StatusOr<std::string> AttentionEmitter::MaskOfBiases(const AttentionSite& site,
                                                           const CacheUpdate& key,
                                                           const Slots& slots,
                                                           const std::string& mask) {
  s_.nodes.set_scope("shared");
  std::string sum;
  bool has_rows = s_.forms.Of(site.query).shape[2]->is_integer(1), has_keys = false, full = false;
  for (const Bias& bias : site.biases) {
    s_.roots.push_back(bias.value);
    const std::vector<Expr>& shape = s_.forms.Of(bias.value).shape;
    const size_t rank = shape.size();
    const bool unfolds = bias.folded && rank == 3 && !shape[0]->is_integer(1);
    std::string added = s_.graph.name(bias.value);
    if (!key.growing && !slots.whole && rank > 0 && !shape.back()->is_integer(1)) {
      added = s_.nodes.Add(
          "Slice", {added, s_.nodes.Int64s({0}), slots.keys, s_.nodes.Int64s({-1})}, "bias");
    }
    if (unfolds) added = Unfold(added, site.q_heads);
    sum = sum.empty() ? added : s_.nodes.Add("Add", {sum, added}, "bias");
    full = full || rank == 4 || unfolds;
    has_rows = has_rows || (rank > 1 && !shape[rank - 2]->is_integer(1));
    has_keys = has_keys || (rank > 0 && !shape[rank - 1]->is_integer(1));
  }
  if (!mask.empty()) {
    const double hidden = -std::numeric_limits<double>::infinity();
    const int32_t type = s_.forms.ElementType(site.biases[0].value);
    return s_.nodes.Add("Where", {mask, sum, s_.nodes.Scalar(hidden, type)}, "bias");
  }
  if (full && has_rows && has_keys) return sum;
  // ONNX Runtime 1.31 wants rank 4 with the queries and keys drawn.
  const std::string rows = s_.nodes.Extent(s_.graph.name(site.query), 2, "queries");
  const std::string one = s_.nodes.Int64s({1});
  const std::string shape = s_.nodes.Add("Concat", {one, one, rows, slots.keys}, "shape",
                                         {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Expand", {sum, shape}, "bias");
}

// [B*N, ., .] to [B, N, ., .].
std::string AttentionEmitter::Unfold(const std::string& value, int64_t heads) {
  NodeBuilder& nodes = s_.nodes;
  const std::string rest =
      nodes.Add("Shape", {value}, "rest", {MakeAttribute("start", int64_t{1})});
  const std::string shape = nodes.Add("Concat", {nodes.Int64s({-1, heads}), rest}, "shape",
                                      {MakeAttribute("axis", int64_t{0})});
  return nodes.Add("Reshape", {value, shape}, "bias");
}

std::optional<Finding> AttentionEmitter::JudgeMask(const MaskOfSite& mask) {
  const bool biased = !mask.site.biases.empty();
  if (mask.key.growing && !HidesLater(s_, mask) && !(biased && MayHideLater(s_, mask.site.node))) {
    s_.plan.refusal = Reason("KV218",
                             fmt::format("needs a mask that hides later tokens, found {}",
                                         sym::ToString(mask.keep, &s_.graph)),
                             mask.site);
    return std::nullopt;
  }
  if (mask.site.nan_guard || SeesSomeKey(s_, mask)) return std::nullopt;
  Finding reason = Reason("KV228",
                          fmt::format("needs a mask that leaves each query a key, found {}",
                                      sym::ToString(mask.keep, &s_.graph)),
                          mask.site);
  // As it is, it would average over pads, too.
  const bool one_token = mask.key.new_length->is_integer(1);
  if (!mask.key.growing || one_token || biased) return reason;
  s_.plan.refusal = std::move(reason);
  return std::nullopt;
}

bool AttentionEmitter::RowPerToken(const AttentionSite& site, const CacheUpdate& key) {
  const Expr queries = Normal(key, s_.forms.Of(site.query).shape[2]);
  const Expr rows = Normal(key, key.new_length);
  if (queries == rows || rows->is_integer(1)) return true;
  // Symbols that inputs declare for themselves are equal where the graph joins them.
  const std::vector<std::string> known = sym::DimsOf(rows);
  for (const std::string& dim : sym::DimsOf(queries)) {
    if (!std::binary_search(known.begin(), known.end(), dim)) return true;
  }
  return false;
}

// The predicate with every read of a padding mask taken as true.
Expr AttentionEmitter::WithoutPadding(Expr rest) {
  Expr kept = s_.pool.True();
  for (Expr part : sym::ConjunctsOf(rest)) {
    const bool padding = std::any_of(s_.wide.begin(), s_.wide.end(), [&](const auto& wide) {
      return ReadAtKeys(part, wide.first);
    });
    if (!padding) kept = s_.pool.And(kept, part);
  }
  return kept;
}

bool AttentionEmitter::ReadAtKeys(Expr e, ValueId source) const {
  const std::vector<Expr> loads = sym::LoadsOf(e);
  return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
    return load->source() == source && sym::ContainsIndex(load, 3);
  });
}

std::vector<int> AttentionEmitter::KeyAxes(Expr e, ValueId source) const {
  std::vector<int> axes;
  for (Expr load : sym::LoadsOf(e)) {
    if (load->source() != source) continue;
    for (int k = 0; k < static_cast<int>(load->args().size()); ++k) {
      const bool known = std::find(axes.begin(), axes.end(), k) != axes.end();
      if (load->args()[k] == s_.pool.Index(3) && !known) axes.push_back(k);
    }
  }
  return axes;
}

absl::StatusOr<std::string> AttentionEmitter::DrawMask(const AttentionSite& site,
                                                       const CacheUpdate& key, const Slots& slots,
                                                       Expr rest, std::optional<Finding>* reason) {
  s_.nodes.set_scope("shared");
  sym::Pool& pool = s_.pool;
  sym::Emitter::Request request;
  s_.emitter.BindDim(kKeysSymbol, {slots.keys, false});
  // ONNX Runtime 1.31 wants the query dimension drawn.
  request.shape = {pool.Integer(1), pool.Integer(1), key.growing ? s_.new_length : key.new_length,
                   pool.Dim(kKeysSymbol)};
  request.element = key.growing ? pool.Substitute(rest, s_.normal, sym::Facts{}) : rest;
  request.elem_type = TensorProto::BOOL;
  request.batch_axis = 0;
  request.role = "mask";
  if (sym::ContainsIndex(request.element, 0) || s_.emitter.IsPerSequence(request.element)) {
    request.shape[0] = key.growing ? s_.batch : s_.forms.Of(site.query).shape[0];
  }
  if (sym::ContainsIndex(request.element, 1)) request.shape[1] = pool.Integer(site.q_heads);
  std::vector<ValueId> made;
  for (ValueId source : sym::SourcesOf(request.element)) {
    const bool input = s_.graph.is_graph_input(source);
    if (!input) made.push_back(source);
    if (!key.growing) {
      s_.emitter.BindSource(source, {s_.graph.name(source), KeyAxes(request.element, source)});
      continue;
    }
    if (s_.prefix_read() || s_.graph.constant(source) != nullptr || (input && !s_.derived)) {
      continue;
    }
    if (!ReadAtKeys(request.element, source)) continue;
    *reason =
        Reason("KV216",
               fmt::format("needs a mask as wide as the buffer, found {}, as wide as the keys",
                           s_.graph.name(source)),
               site, {source});
    return std::string();
  }
  auto mask = s_.emitter.Tensor(request);
  if (!mask.ok()) {
    *reason = Reason(
        "KV216", fmt::format("the mask cannot be drawn: {}", std::string(mask.status().message())),
        site);
    return std::string();
  }
  s_.roots.insert(s_.roots.end(), made.begin(), made.end());
  return mask;
}

}  // namespace kvlift::internal
