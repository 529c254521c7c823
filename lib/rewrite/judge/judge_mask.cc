// The part of AttentionJudge that judges masks: which keys they show, whether Attention-24 may have
// them, and the expression of the mask operand.
#include <algorithm>
#include <utility>

#include "base/overloaded.h"
#include "fmt/format.h"
#include "rewrite/judge/judge_attention.h"
#include "rewrite/recognise/input_assumptions.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;

bool AttentionJudge::DrawsHeads(const AttentionSite& site, Expr rest) const {
  if (sym::ContainsIndex(rest, 1)) return true;
  return std::any_of(site.mask.biases.begin(), site.mask.biases.end(), [&](const Bias& bias) {
    const std::vector<Expr>& shape = s_.forms.Of(bias.value).shape;
    if (bias.heads == HeadsOfScores::kInBatch) {
      return shape.size() == 3 && !shape[0]->is_integer(1);
    }
    return shape.size() > 2 && !shape[shape.size() - 3]->is_integer(1);
  });
}

bool AttentionJudge::HidesUnused(const MaskOfSite& mask) const {
  const Expr end = s_.pool.Add(mask.start, mask.key.new_length);
  // If the source cuts its keys at the end of the valid rows, no key lies behind it.
  if (mask.site.mask.keys != nullptr && Normal(mask.key, mask.site.mask.keys) == end) return true;
  return MaskAloneHidesUnused(mask);
}

bool AttentionJudge::MaskAloneHidesUnused(const MaskOfSite& mask) const {
  return Implies(s_, mask, s_.pool.Sub(mask.key.new_length, s_.pool.Integer(1)));
}

// Returns keep without the slots behind the keys that the source's attention reads.
Expr AttentionJudge::OfSourceKeys(const MaskOfSite& mask, Expr keep) const {
  const Expr keys = Normal(mask.key, mask.site.mask.keys);
  if (keys == CapacityOf(mask.key)) return keep;
  return s_.pool.And(keep, s_.pool.Lt(s_.pool.Index(3), keys, {}));
}

// Returns keep without the slots behind the new rows. The mask of a fixed buffer says in the source
// what becomes of each slot.
Expr AttentionJudge::OfValidKeys(const MaskOfSite& mask, Expr keep) const {
  if (!mask.key.grows() || MaskAloneHidesUnused(mask)) return keep;
  const Expr end = s_.pool.Add(mask.start, mask.key.new_length);
  return s_.pool.And(keep, s_.pool.Lt(s_.pool.Index(3), end, {}));
}

// One axis of a mask must count the keys. If several axes depend on the key's index, as after a
// Reshape to another batch, the place of a key depends on the mask's width.
std::optional<Finding> AttentionJudge::JudgeColumns(const MaskOfSite& mask) const {
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

// Returns true if what the mask shows depends on the number of new tokens, apart from what the host
// says of it.
bool AttentionJudge::CountsNewTokens(const MaskOfSite& mask) const {
  const Expr tokens = mask.key.new_length;
  if (tokens->kind() != sym::Kind::kDim) return false;
  const std::vector<Expr> parts = sym::ConjunctsOf(mask.keep);
  return std::any_of(parts.begin(), parts.end(), [&](Expr part) {
    const std::vector<ValueId> sources = sym::SourcesOf(part);
    return ContainsDim(part, tokens->dim()) &&
           std::none_of(sources.begin(), sources.end(),
                        [&](ValueId source) { return s_.graph.is_graph_input(source); });
  });
}

bool AttentionJudge::SeesLaterTokens(const MaskOfSite& mask) const {
  const bool biased = !mask.site.mask.biases.empty();
  return mask.key.grows() && !HidesLater(s_, mask) && !(biased && MayHideLater(s_, mask.site.node));
}

AttentionJudge::Objection AttentionJudge::JudgeMask(const MaskOfSite& mask) const {
  if (auto reason = JudgeColumns(mask)) return *std::move(reason);
  const bool biased = !mask.site.mask.biases.empty();
  // The rows of a window are not those of all tokens, so that its mask must say which it shows.
  const bool all_tokens = mask.key.linear() && !mask.key.window();
  if (SeesLaterTokens(mask) && !(all_tokens && s_.options.padding == Padding::kNone)) {
    return PlanRefusal{
        PlanRefusal::Cause::kModel,
        Reason("KV218",
               fmt::format("needs a mask that hides later tokens, found {}",
                           mask.keep->is_integer(1) ? "none" : sym::ToString(mask.keep, &s_.graph)),
               mask.site)};
  }
  if (KeepsRowsWithoutKeys(mask.site, s_.options) || SeesSomeKey(s_, mask)) return std::nullopt;
  Finding reason = Reason("KV228",
                          fmt::format("needs a mask that leaves each query a key, found {}",
                                      sym::ToString(mask.keep, &s_.graph)),
                          mask.site);
  // An attention that stays would average over padding tokens for such a query. In a buffer it does
  // so in the source as well, but where the mask depends on the number of new tokens, padding
  // tokens change which keys the others see.
  const bool one_token = mask.key.new_length->is_integer(1);
  if (one_token || biased || (!mask.key.grows() && !CountsNewTokens(mask))) return reason;
  return PlanRefusal{PlanRefusal::Cause::kModel, std::move(reason)};
}

std::variant<sym::Emitter::Request, Finding> AttentionJudge::MaskRequest(const AttentionSite& site,
                                                                         const PlannedCache& key,
                                                                         Expr rest) const {
  sym::Pool& pool = s_.pool;
  sym::Emitter::Request request;
  // ONNX Runtime 1.31 needs the full extent of the queries.
  const Expr rows = HasRowsOfOneToken(site, key) ? QueryShape(s_.forms, site)[2]
                    : key.grows()                ? s_.extents.new_length
                                                 : key.new_length;
  request.shape = {pool.Integer(1), pool.Integer(1), rows, pool.Dim(KeysSymbol())};
  request.element = key.grows() ? pool.Substitute(rest, s_.extents.normal, sym::Facts{}) : rest;
  request.elem_type = TensorProto::BOOL;
  request.batch_axis = 0;
  request.role = "mask";
  request.parts_guard = key.ring() == nullptr;  // InWindowRing bounds what it reads
  if (sym::ContainsIndex(request.element, 0) || s_.probe.IsPerSequence(request.element)) {
    request.shape[0] = key.grows() ? s_.extents.batch : QueryShape(s_.forms, site)[0];
  }
  if (sym::ContainsIndex(request.element, 1)) request.shape[1] = pool.Integer(site.q_heads);
  for (ValueId source : sym::SourcesOf(request.element)) {
    if (!key.grows()) {
      request.wide_axes[source] = KeyAxes(request.element, source, key.new_length);
      if (!MayBeEmpty(source, request.wide_axes[source])) continue;
      return Reason(
          "KV216",
          fmt::format("needs a mask of at least one column, found {}, as wide as data says",
                      s_.graph.name(source)),
          site, {source});
    }
    const bool input = s_.graph.is_graph_input(source);
    if (s_.prefix_read() || s_.graph.constant(source) != nullptr || (input && !s_.derived)) {
      continue;
    }
    if (!ReadAtKeys(request.element, source)) continue;
    return Reason("KV216",
                  fmt::format("needs a mask as wide as the buffer, found {}, as wide as the keys",
                              s_.graph.name(source)),
                  site, {source});
  }
  if (const absl::Status drawn = s_.probe.Tensor(request); !drawn.ok()) {
    return Reason("KV216",
                  fmt::format("the mask cannot be computed: {}", std::string(drawn.message())),
                  site);
  }
  return request;
}

// Conjuncts that read a mask with a row per query stay, since it may hide more than padding tokens.
Expr AttentionJudge::WithoutPadding(Expr rest, std::map<ValueId, int64_t>* assumed) const {
  Expr kept = s_.pool.True();
  for (Expr part : sym::ConjunctsOf(rest)) {
    if (!AssumePadding(part, assumed)) kept = s_.pool.And(kept, part);
  }
  return kept;
}

bool AttentionJudge::ReadsPerQuery(Expr part, absl::Span<const ValueId> masks) const {
  const std::vector<Expr> loads = sym::LoadsOf(part);
  return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
    return std::find(masks.begin(), masks.end(), load->source()) != masks.end() &&
           sym::ContainsIndex(load, 2);
  });
}

// Returns true if `part` holds where all masks of the host that it reads are ones, or are zeros.
bool AttentionJudge::AssumePadding(Expr part, std::map<ValueId, int64_t>* assumed) const {
  std::vector<ValueId> masks;
  for (const auto& [input, axis] : s_.extents.key_length_masks) {
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
      const auto it = assumed->find(mask);
      return it != assumed->end() && it->second != value;
    });
    if (otherwise || !s_.pool.Substitute(part, s, {})->is_integer(1)) continue;
    for (ValueId mask : masks) (*assumed)[mask] = value;
    return true;
  }
  return false;
}

bool AttentionJudge::ReadAtKeys(Expr e, ValueId source) {
  const std::vector<Expr> loads = sym::LoadsOf(e);
  return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
    return load->source() == source && sym::ContainsIndex(load, 3);
  });
}

// A value that is shorter than the buffer is read at its last element behind its end.
bool AttentionJudge::MayBeEmpty(ValueId source, absl::Span<const int> axes) const {
  const std::vector<Expr>& shape = s_.forms.Of(source).shape;
  return std::any_of(axes.begin(), axes.end(), [&](int axis) {
    const Expr extent = shape[static_cast<size_t>(axis)];
    const Expr filled = s_.pool.Lt(s_.pool.Integer(0), extent, {});
    return !sym::LoadsOf(extent).empty() && s_.pool.Prove(filled, {}) != sym::Truth::kYes;
  });
}

std::vector<int> AttentionJudge::KeyAxes(Expr e, ValueId source, Expr new_length) const {
  const std::vector<Expr>& shape = s_.forms.Of(source).shape;
  std::vector<int> axes;
  for (Expr load : sym::LoadsOf(e)) {
    if (load->source() != source) continue;
    for (int k = 0; k < static_cast<int>(load->args().size()); ++k) {
      const bool known = std::find(axes.begin(), axes.end(), k) != axes.end();
      // An axis of new tokens is read at the key where a mask tells tokens of one step apart.
      const bool of_step = static_cast<size_t>(k) < shape.size() && shape[k] == new_length;
      if (load->args()[k] == s_.pool.Index(3) && !known && !of_step) axes.push_back(k);
    }
  }
  return axes;
}

// Returns the source's mask as a predicate of all keys up to the last new one. The source may have
// fewer keys, `site.mask.keys`, of which alone its mask says anything; the others are hidden.
Expr AttentionJudge::KeepOf(const AttentionSite& site, const PlannedCache& key, Expr start) const {
  sym::Pool& pool = s_.pool;
  const Expr keep = Normal(key, site.mask.keep), keys = Normal(key, site.mask.keys);
  const Expr behind = pool.Sub(pool.Add(start, key.new_length), keys);
  if (pool.Prove(pool.Le(behind, pool.Integer(0), {}), {}) == sym::Truth::kYes) return keep;
  if (keys == Normal(key, s_.forms.Of(key.read_by_attention()).shape[key.axis])) return keep;
  return pool.And(keep, pool.Lt(pool.Index(3), keys, {}));
}

Expr AttentionJudge::CapacityOf(const PlannedCache& key) const {
  return s_.forms.Of(key.pair.past).shape[key.axis];
}

Expr AttentionJudge::FirstNewRow(const PlannedCache& key) const {
  return Normal(key, key.first_new_row(s_.pool, CapacityOf(key)));
}

Expr AttentionJudge::InSlots(const MaskOfSite& mask, Expr e) const {
  return std::visit(Overloaded{[&](const auto&) { return e; },  // slots in the order of rows
                               [&](const WindowRing& ring) { return InWindowRing(mask, ring, e); },
                               [&](const FifoRing&) { return InRingOrder(mask.key, e); }},
                    mask.key.buffer);
}

// Returns e, an expression of the rows of a Fifo, as one of the slots in which they stay.
Expr AttentionJudge::InRingOrder(const PlannedCache& key, Expr e) const {
  const Expr total = s_.pool.Add(key.write_index(s_.pool), key.new_length);
  sym::Pool::Substitution rows;
  rows.indices = {nullptr, nullptr, nullptr,
                  s_.pool.Mod(s_.pool.Sub(s_.pool.Index(3), total), CapacityOf(key), {})};
  return s_.pool.Substitute(e, rows, {});
}

// Returns e, a predicate of the source's rows, as one of the slots of a ring. Slots that hold no
// row of the window are hidden; what e reads at rows is read at the last row for them.
Expr AttentionJudge::InWindowRing(const MaskOfSite& mask, const WindowRing& ring, Expr e) const {
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
  return MaskAloneHidesUnused(mask) && !reads ? seen : pool.And(pool.Le(row, last, {}), seen);
}

Expr AttentionJudge::Normal(const PlannedCache& key, Expr e) const {
  if (!key.grows()) return CountedUp(s_.forms, e);
  sym::Pool::Substitution one_name = s_.extents.normal;
  const auto* last = std::get_if<KeepLast>(&key.how);
  if (last != nullptr) {
    for (const PlannedCache& cache : s_.caches) {
      const auto* other = std::get_if<KeepLast>(&cache.how);
      if (other == nullptr || other->window != last->window) continue;
      one_name.dims[other->past_length->dim()] = last->past_length;
    }
  }
  e = s_.pool.Substitute(e, one_name, {});
  if (last == nullptr) return e;
  // A past that keeps a window has no more rows than the window.
  const Expr most = s_.pool.Integer(last->window);
  return s_.pool.Assume(e, s_.pool.Le(last->past_length, most, {}), true, {});
}

}  // namespace kvlift::internal
