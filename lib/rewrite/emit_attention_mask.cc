// The part of AttentionEmitter that judges and builds the mask operand of an Attention.
#include <algorithm>
#include <limits>

#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/emit_attention.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;

// Returns the mask for groups as tokens from a mask of rank 4 with an axis of N heads, or of 1.
std::string AttentionEmitter::MaskOfGroupsAsTokens(const std::string& mask,
                                                   const AttentionSite& site, bool has_heads) {
  const int64_t groups = site.key.view.heads;
  s_.nodes.set_scope("shared");
  if (!has_heads) {
    const NodeBuilder::Inputs copies(site.q_heads / groups, mask);
    return s_.nodes.Add("Concat", copies, "mask_groups", {MakeAttribute("axis", int64_t{2})});
  }
  const std::string keys = s_.nodes.Extent(mask, 3, "keys");
  const std::string shape = s_.nodes.Add("Concat", {s_.nodes.Int64s({0, groups, -1}), keys},
                                         "shape", {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Reshape", {mask, shape}, "mask_groups");
}

bool AttentionEmitter::DrawsHeads(const AttentionSite& site, Expr rest) const {
  if (sym::ContainsIndex(rest, 1)) return true;
  return std::any_of(site.mask.biases.begin(), site.mask.biases.end(), [&](const Bias& bias) {
    const std::vector<Expr>& shape = s_.forms.Of(bias.value).shape;
    if (bias.batch_times_heads) return shape.size() == 3 && !shape[0]->is_integer(1);
    return shape.size() > 2 && !shape[shape.size() - 3]->is_integer(1);
  });
}

bool AttentionEmitter::HidesUnused(const MaskOfSite& mask) {
  const Expr end = s_.pool.Add(mask.start, mask.key.new_length);
  // If the source cuts its keys at the end of the valid rows, there are none behind it.
  if (mask.site.mask.keys != nullptr && Normal(mask.key, mask.site.mask.keys) == end) return true;
  return SaysWhatIsUnused(mask);
}

bool AttentionEmitter::SaysWhatIsUnused(const MaskOfSite& mask) {
  const Expr end = s_.pool.Add(mask.start, mask.key.new_length);
  return Implies(s_, mask, s_.pool.Sub(end, s_.pool.Integer(1)));
}

// Biases are not changed, so their extent must be that of the keys that attention is given.
std::optional<Finding> AttentionEmitter::JudgeBiases(const AttentionSite& site,
                                                     const PlannedCache& key, int32_t type) {
  for (const auto& [bias, batch_times_heads] : site.mask.biases) {
    if (key.grows() && !s_.views()) {
      return Reason("KV216",
                    fmt::format("needs one index for the batch and keys up to it, to add {}",
                                s_.graph.name(bias)),
                    site, {bias});
    }
    if (key.ring() != nullptr) {
      return Reason("KV216",
                    fmt::format("needs masks alone for keys in a ring, found the bias {}",
                                s_.graph.name(bias)),
                    site, {bias});
    }
    if (key.fifo() && batch_times_heads) {
      return Reason("KV216",
                    fmt::format("needs a bias of rank 4 at most for keys that move, found {}",
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

// Returns [B or 1, N or 1, S, W] of the type of the keys: the sum of the biases, and -inf where
// `mask`, which may be empty, hides the key.
absl::StatusOr<std::string> AttentionEmitter::MaskOfBiases(const AttentionSite& site,
                                                           const PlannedCache& key,
                                                           const Slots& slots,
                                                           const std::string& mask) {
  s_.nodes.set_scope("shared");
  std::string sum;
  bool has_rows = QueryShape(s_.forms, site)[2]->is_integer(1), has_keys = false, full = false;
  for (const Bias& bias : site.mask.biases) {
    s_.roots.push_back(bias.value);
    const std::vector<Expr>& shape = s_.forms.Of(bias.value).shape;
    const size_t rank = shape.size();
    const bool joined = bias.batch_times_heads && rank == 3 && !shape[0]->is_integer(1);
    std::string added = s_.graph.name(bias.value);
    if (!key.grows() && !slots.whole && rank > 0 && !shape.back()->is_integer(1)) {
      added = s_.nodes.Add(
          "Slice", {added, s_.nodes.Int64s({0}), slots.keys, s_.nodes.Int64s({-1})}, "bias");
    }
    if (joined) added = SplitBatchAndHeads(added, site.q_heads);
    if (key.fifo()) {
      KV_ASSIGN_OR_RETURN(added, BiasInRingOrder(site, key, bias.value));
      full = true;
    }
    sum = sum.empty() ? added : s_.nodes.Add("Add", {sum, added}, "bias");
    full = full || rank == 4 || joined;
    has_rows = has_rows || (rank > 1 && !shape[rank - 2]->is_integer(1));
    has_keys = has_keys || (rank > 0 && !shape[rank - 1]->is_integer(1));
  }
  if (!mask.empty()) {
    const double hidden = -std::numeric_limits<double>::infinity();
    const int32_t type = s_.forms.ElementType(site.mask.biases[0].value);
    return s_.nodes.Add("Where", {mask, sum, s_.nodes.Scalar(hidden, type)}, "bias");
  }
  if (full && has_rows && has_keys) return sum;
  // ONNX Runtime 1.31 needs rank 4 and the full extents of queries and keys.
  const std::string rows = QueryExtent(site);
  const std::string one = s_.nodes.Int64s({1});
  const std::string shape = s_.nodes.Add("Concat", {one, one, rows, slots.keys}, "shape",
                                         {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Expand", {sum, shape}, "bias");
}

// Returns a bias of the source's rows as one of the buffer's slots: [B, N or 1, S or 1, M].
absl::StatusOr<std::string> AttentionEmitter::BiasInRingOrder(const AttentionSite& site,
                                                              const PlannedCache& key,
                                                              ValueId bias) {
  sym::Pool& pool = s_.pool;
  sym::Emitter::Request request;
  request.shape = {QueryShape(s_.forms, site)[0], pool.Integer(1), pool.Integer(1),
                   CapacityOf(key)};
  request.elem_type = s_.forms.ElementType(bias);
  request.batch_axis = 0;
  request.role = "bias";
  const std::vector<Expr>& own = s_.forms.Of(bias).shape;
  std::vector<Expr> at;
  for (size_t k = 0; k < own.size(); ++k) {
    const size_t axis = request.shape.size() - own.size() + k;
    const bool one = own[k]->is_integer(1);
    at.push_back(one ? pool.Integer(0) : pool.Index(static_cast<int>(axis)));
    if (!one && axis != 0) request.shape[axis] = own[k];
  }
  request.element = InRingOrder(key, pool.Load(bias, at));
  return s_.emitter.Tensor(request);
}

// Returns [B, N, ., .] from [B*N, ., .].
std::string AttentionEmitter::SplitBatchAndHeads(const std::string& value, int64_t heads) {
  NodeBuilder& nodes = s_.nodes;
  const std::string rest =
      nodes.Add("Shape", {value}, "rest", {MakeAttribute("start", int64_t{1})});
  const std::string shape = nodes.Add("Concat", {nodes.Int64s({-1, heads}), rest}, "shape",
                                      {MakeAttribute("axis", int64_t{0})});
  return nodes.Add("Reshape", {value, shape}, "bias");
}

// One axis of a mask must count the keys. If several axes depend on the key's index, as after a
// Reshape to another batch, the place of a key depends on the mask's width.
std::optional<Finding> AttentionEmitter::JudgeColumns(const MaskOfSite& mask) {
  for (Expr load : sym::LoadsOf(mask.keep)) {
    if (!s_.graph.is_graph_input(load->source())) continue;
    const auto axes = std::count_if(load->args().begin(), load->args().end(),
                                    [](Expr arg) { return sym::ContainsIndex(arg, 3); });
    if (axes <= 1) continue;
    return Reason("KV216",
                  fmt::format("needs one axis of a mask for the keys, found {}",
                              sym::ToString(load, &s_.graph)),
                  mask.site, {load->source()});
  }
  return std::nullopt;
}

std::optional<Finding> AttentionEmitter::JudgeMask(const MaskOfSite& mask) {
  if (auto reason = JudgeColumns(mask)) return reason;
  const bool biased = !mask.site.mask.biases.empty();
  if (mask.key.grows() && !HidesLater(s_, mask) && !(biased && MayHideLater(s_, mask.site.node))) {
    s_.Refuse(Reason("KV218",
                     fmt::format("needs a mask that hides later tokens, found {}",
                                 sym::ToString(mask.keep, &s_.graph)),
                     mask.site));
    return std::nullopt;
  }
  if (HasNanGuard(mask.site) || SeesSomeKey(s_, mask)) return std::nullopt;
  Finding reason = Reason("KV228",
                          fmt::format("needs a mask that leaves each query a key, found {}",
                                      sym::ToString(mask.keep, &s_.graph)),
                          mask.site);
  // An attention that stays would average over padding tokens for such a query.
  const bool one_token = mask.key.new_length->is_integer(1);
  if (!mask.key.grows() || one_token || biased) return reason;
  s_.Refuse(std::move(reason));
  return std::nullopt;
}

// Returns the predicate without the conjuncts that hold if the masks of the host that they read are
// all ones, or all zeros. Conjuncts that read a mask with a row per query stay, since it may hide
// more than padding tokens.
Expr AttentionEmitter::WithoutPadding(Expr rest) {
  Expr kept = s_.pool.True();
  for (Expr part : sym::ConjunctsOf(rest)) {
    if (!AssumePadding(part)) kept = s_.pool.And(kept, part);
  }
  return kept;
}

bool AttentionEmitter::ReadsPerQuery(Expr part, absl::Span<const ValueId> masks) const {
  const std::vector<Expr> loads = sym::LoadsOf(part);
  return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
    return std::find(masks.begin(), masks.end(), load->source()) != masks.end() &&
           sym::ContainsIndex(load, 2);
  });
}

bool AttentionEmitter::AssumePadding(Expr part) {
  std::vector<ValueId> masks;
  for (const auto& [input, axis] : s_.key_length_masks) {
    if (ReadAtKeys(part, input)) masks.push_back(input);
  }
  if (masks.empty() || ReadsPerQuery(part, masks)) return false;
  // A mask that is added hides nothing where it is zero.
  const bool added = IsFloatType(s_.graph.type(masks[0]).elem_type);
  for (const int64_t value : {added ? 0 : 1, added ? 1 : 0}) {
    sym::Pool::Substitution s;
    for (Expr load : sym::LoadsOf(part)) {
      const bool mask = std::find(masks.begin(), masks.end(), load->source()) != masks.end();
      if (mask) s.atoms[load] = s_.pool.Integer(value);
    }
    const bool otherwise = std::any_of(masks.begin(), masks.end(), [&](ValueId mask) {
      const auto it = s_.assumed.find(mask);
      return it != s_.assumed.end() && it->second != value;
    });
    if (otherwise || !s_.pool.Substitute(part, s, {})->is_integer(1)) continue;
    for (ValueId mask : masks) s_.assumed[mask] = value;
    return true;
  }
  return false;
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
                                                       const PlannedCache& key, const Slots& slots,
                                                       Expr rest, std::optional<Finding>* reason) {
  s_.nodes.set_scope("shared");
  sym::Pool& pool = s_.pool;
  sym::Emitter::Request request;
  s_.emitter.BindDim(KeysSymbol(), {slots.keys, false});
  // ONNX Runtime 1.31 needs the full extent of the queries.
  request.shape = {pool.Integer(1), pool.Integer(1), key.grows() ? s_.new_length : key.new_length,
                   pool.Dim(KeysSymbol())};
  request.element = key.grows() ? pool.Substitute(rest, s_.normal, sym::Facts{}) : rest;
  request.elem_type = TensorProto::BOOL;
  request.batch_axis = 0;
  request.role = "mask";
  request.parts_guard = key.ring() == nullptr;  // InWindowRing bounds what it reads
  if (sym::ContainsIndex(request.element, 0) || s_.emitter.IsPerSequence(request.element)) {
    request.shape[0] = key.grows() ? s_.batch : QueryShape(s_.forms, site)[0];
  }
  if (sym::ContainsIndex(request.element, 1)) request.shape[1] = pool.Integer(site.q_heads);
  std::vector<ValueId> made;
  for (ValueId source : sym::SourcesOf(request.element)) {
    const bool input = s_.graph.is_graph_input(source);
    if (!input) made.push_back(source);
    if (!key.grows()) {
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

// Writes the tree into a mask of ones, as a square that starts at the write index.
std::string AttentionEmitter::WithTree(const std::string& mask, const Slots& slots) {
  s_.nodes.set_scope("shared");
  NodeBuilder& nodes = s_.nodes;
  const std::string& tree = control_.tree_input();
  const std::string front =
      nodes.Add("Shape", {tree}, "tokens_of_tree", {MakeAttribute("end", int64_t{3})});
  const std::string shape =
      nodes.Add("Concat", {front, slots.keys}, "shape", {MakeAttribute("axis", int64_t{0})});
  const std::string open = nodes.Add("Expand", {nodes.Scalar(1, TensorProto::BOOL), shape}, "open");
  const std::string drawn = nodes.Add("TensorScatter", {open, tree, slots.write}, "tree",
                                      {MakeAttribute("axis", int64_t{3})});
  return mask.empty() ? drawn : nodes.Add("And", {mask, drawn}, "mask");
}

}  // namespace kvlift::internal
