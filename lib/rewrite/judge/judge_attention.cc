#include "rewrite/judge/judge_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "rewrite/lower/fused/decoded_rows.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/attention/visibility.h"

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

bool HasOneToken(const PlanBasis& s, const AttentionSite& site) {
  return QueryShape(s.forms, site)[2]->is_integer(1);
}

JudgedAttention AsJudged(std::variant<Finding, PlanRefusal> objection) {
  return std::visit([](auto& why) { return JudgedAttention(std::move(why)); }, objection);
}
}  // namespace

Finding AttentionJudge::Reason(std::string_view code, std::string text, const AttentionSite& site,
                               std::vector<ValueId> values) const {
  return MakeFinding(code, std::move(text), s_.graph, {site.node}, values);
}

JudgedAttention AttentionJudge::Judge(const AttentionSite& site,
                                      const std::map<ValueId, int64_t>& assumed) const {
  if (auto objection = JudgeOperands(site)) return AsJudged(*std::move(objection));
  const PlannedCache& key = s_.caches[site.key.cache];
  const int32_t type = TypeOfRows(s_.forms, key, site.key.view);
  const Expr start = FirstNewRow(key);
  Expr keep = KeepOf(site, key, start);
  MaskOfSite judged = {site, key, s_.pool.And(keep, Normal(key, site.mask.bias_keep)), start};
  PlannedAttention planned;
  planned.keys = KeysOf(judged);
  if (std::holds_alternative<AllSlotsValid>(planned.keys)) {
    keep = OfSourceKeys(judged, keep);
    judged.keep = OfSourceKeys(judged, judged.keep);
  }
  if (!site.mask.biases.empty() && keep != Normal(key, site.mask.keep)) {
    return Reason("KV216",
                  fmt::format("needs biases of all keys up to the new ones, found {} of {}",
                              s_.graph.name(site.mask.biases[0].value),
                              sym::ToString(site.mask.keys, &s_.graph)),
                  site, {site.mask.biases[0].value});
  }
  if (auto objection = JudgeMask(judged)) return AsJudged(*std::move(objection));
  planned.sees_later_tokens = key.grows()
                                  ? s_.options.padding == Padding::kNone && SeesLaterTokens(judged)
                                  : !HidesLater(s_, judged) && !MayHideLater(s_, site.node);
  if (!WrittenAlike(key, s_.caches[site.value.cache])) {
    return Reason("KV210", "needs keys and values that are written at the same slots", site);
  }
  const bool one_token = HasOneToken(s_, site) || HasRowsOfOneToken(site, key);
  Visibility visible = ReadVisibility(s_.forms, keep, start, one_token);
  planned.groups_as_tokens = HasGroupsAsTokens(site);
  // ONNX Runtime 1.31 aligns is_causal top-left for doubles, without an error.
  const bool given = s_.options.target == Target::kGenaiStatic;  // the host feeds the valid length
  const bool drawn = std::holds_alternative<AllSlotsValid>(planned.keys) || given ||
                     s_.options.mask == MaskForm::kExplicit || type == TensorProto::DOUBLE ||
                     (planned.groups_as_tokens && !one_token);
  if (!key.linear() || (drawn && visible.causal)) {
    visible.rest = InSlots(judged, keep);
    visible.causal = false;
  }
  planned.states_length = s_.options.mask != MaskForm::kAdditive;
  planned.additive = !planned.states_length || site.sink != nullptr;
  if (planned.additive) {
    visible.rest = InSlots(judged, OfValidKeys(judged, keep));
    visible.causal = false;
  }
  planned.assumed = assumed;
  if (s_.options.padding == Padding::kNone && key.grows()) {
    visible.rest = WithoutPadding(visible.rest, &planned.assumed);
  }
  const bool draws = !visible.rest->is_integer(1);
  if (draws && s_.options.mask == MaskForm::kCausal) {
    return PlanRefusal{PlanRefusal::Cause::kOption,
                       Reason("KV224",
                              fmt::format("--mask causal, but the mask also says {}",
                                          sym::ToString(visible.rest, &s_.graph)),
                              site)};
  }
  if (draws) {
    auto mask = MaskRequest(site, key, visible.rest);
    if (auto* reason = std::get_if<Finding>(&mask)) return std::move(*reason);
    planned.mask = std::get<sym::Emitter::Request>(std::move(mask));
  }
  // A single query sees all valid keys anyway.
  planned.is_causal = visible.causal && !one_token;
  planned.tree = s_.options.tree_mask;
  planned.mask_has_heads = site.sink != nullptr || DrawsHeads(site, visible.rest);
  planned.heads_in_last_axis = HasHeadsInLastAxis(site);
  if (site.sink != nullptr) {
    auto sink = SinkRequest(site, type);
    if (auto* reason = std::get_if<Finding>(&sink)) return std::move(*reason);
    planned.sink = std::get<sym::Emitter::Request>(std::move(sink));
  }
  PlanBiases(site, &planned);
  SetAttributes(site, type, &planned);
  return planned;
}

std::variant<sym::Emitter::Request, Finding> AttentionJudge::SinkRequest(const AttentionSite& site,
                                                                         int32_t type) const {
  if (s_.options.target == Target::kGenaiStatic) {
    return Reason("KV210", "needs scores without a sink, which no valid length counts", site);
  }
  if (site.softmax_type != type) {
    return Reason("KV210",
                  fmt::format("needs a sink of the type of the keys, {}, found a softmax in {}",
                              ElementTypeName(type), ElementTypeName(site.softmax_type)),
                  site);
  }
  if (!sym::DimsOf(site.sink).empty()) {
    return Reason("KV211",
                  fmt::format("needs a sink that does not depend on sizes, found {}",
                              sym::ToString(site.sink, &s_.graph)),
                  site);
  }
  sym::Pool& pool = s_.pool;
  sym::Emitter::Request request;
  request.shape = {pool.Integer(1), pool.Integer(site.q_heads), pool.Integer(1), pool.Integer(1)};
  request.element = site.sink;
  request.elem_type = type;
  request.role = "sink";
  if (const absl::Status drawn = s_.probe.Tensor(request); !drawn.ok()) {
    return Reason("KV216",
                  fmt::format("the sink cannot be added: {}", std::string(drawn.message())), site);
  }
  return request;
}

// Judges types, extents and numbers: all that does not depend on the mask.
AttentionJudge::Objection AttentionJudge::JudgeOperands(const AttentionSite& site) const {
  const PlannedCache& key = s_.caches[site.key.cache];
  const PlannedCache& value = s_.caches[site.value.cache];
  const int32_t type = TypeOfRows(s_.forms, key, site.key.view);
  const int32_t of_queries = s_.forms.ElementType(site.query);
  const int32_t of_values = TypeOfRows(s_.forms, value, site.value.view);
  const int32_t of_results = s_.forms.ElementType(s_.graph.outputs(site.node)[0]);
  // The operator itself needs one type of queries and keys only.
  if (of_queries != type || of_values != type || of_results != type) {
    return Reason("KV210",
                  fmt::format("needs queries, keys, values and results of one type, found {}, {}, "
                              "{} and {}",
                              ElementTypeName(of_queries), ElementTypeName(type),
                              ElementTypeName(of_values), ElementTypeName(of_results)),
                  site);
  }
  if (key.writes_some_sequences() || value.writes_some_sequences()) {
    return Reason("KV210", "needs caches of the sequences of the step, found larger ones", site);
  }
  if (auto reason = JudgeBiases(site, type)) return *std::move(reason);
  if (!RowPerToken(site, key) || !RowPerToken(site, value)) {
    return PlanRefusal{PlanRefusal::Cause::kModel,
                       Reason("KV209",
                              fmt::format("needs one row per token, found {} rows for {} queries",
                                          sym::ToString(key.new_length, &s_.graph),
                                          sym::ToString(QueryShape(s_.forms, site)[2], &s_.graph)),
                              site)};
  }
  return JudgeNumbers(site, type);
}

AttentionJudge::Objection AttentionJudge::JudgeNumbers(const AttentionSite& site,
                                                       int32_t type) const {
  if (site.q_heads > kMostHeads) {
    return Reason("KV210",
                  fmt::format("needs at most {} heads, found {}", kMostHeads, site.q_heads), site);
  }
  if (site.key.view.heads != site.value.view.heads) {
    return Reason("KV210",
                  fmt::format("needs as many heads of values as of keys, found {} and {}",
                              site.value.view.heads, site.key.view.heads),
                  site);
  }
  // Attention multiplies queries and keys by the square root of the scale each.
  if (!(site.scale >= kLeastScale && site.scale <= kLargestScale)) {
    return Reason("KV210",
                  fmt::format("needs a scale of the scores from {} to {}, found {}", kLeastScale,
                              kLargestScale, site.scale),
                  site);
  }
  if (IsCompiled(s_.options.target) && site.softcap != 0) {
    return Reason(
        "KV210",
        fmt::format("needs scores without a softcap for this target, found {}", site.softcap),
        site);
  }
  if (s_.options.target == Target::kPortable && site.softmax_type != 0 &&
      site.softmax_type != type) {
    return Reason("KV210",
                  fmt::format("needs a softmax in {} for this target, found {}",
                              ElementTypeName(type), ElementTypeName(site.softmax_type)),
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
  return std::nullopt;
}

KeysRead AttentionJudge::KeysOf(const MaskOfSite& mask) const {
  const PlannedCache& key = mask.key;
  if (key.grows()) {
    if (!key.linear()) return AllSlots{};
    if (s_.views()) return SourceRows{};
    return s_.prefix_read() ? KeysRead(ValidRows{}) : KeysRead(AllSlots{});
  }
  if (key.linear() && s_.prefix_read() && HidesUnused(mask)) return ValidRows{};
  const sym::Form past = s_.forms.Of(key.pair.past);
  return AllSlotsValid{past.shape[key.axis],
                       key.layout[0] == 'B' ? past.shape[0] : s_.extents.batch};
}

bool AttentionJudge::IsWhole(const CacheUpdate& update, const CacheView& view,
                             int64_t head_dim) const {
  const auto extent = [&](char letter) {
    const size_t axis = update.layout.find(letter);
    const Expr e =
        axis == std::string::npos ? s_.pool.Integer(1) : s_.forms.Of(update.pair.past).shape[axis];
    return e->kind() == Kind::kInteger ? e->value() : 0;
  };
  return !view.batch_times_heads && view.first_head == 0 && view.first_element == 0 &&
         extent('N') * extent('D') == view.heads * head_dim;
}

// Returns true if queries, keys, values and the result are 3-D, for targets with 3-D caches.
bool AttentionJudge::HasHeadsInLastAxis(const AttentionSite& site) const {
  const bool on_an_axis = std::holds_alternative<HeadsOnAnAxis>(HeadAxesOf(site));
  if (s_.options.layout != Layout::kHeadsInLastAxis || !on_an_axis) return false;
  const PlannedCache& key = s_.caches[site.key.cache];
  const PlannedCache& value = s_.caches[site.value.cache];
  const auto three = [](const PlannedCache& cache) {
    return cache.placement.layout == kHeadsInLastAxis || cache.placement.layout == "BSD";
  };
  for (const CacheView* view : {&site.key.view, &site.value.view}) {
    if (!IsElementwise(s_.graph, view->decode())) return false;
  }
  return three(key) && three(value) && IsWhole(key, site.key.view, site.head_dim) &&
         IsWhole(value, site.value.view, site.v_head_dim);
}

// Returns true if the queries of a group are stacked on the axis of tokens: ONNX Runtime 1.31 reads
// keys and values once per query head, and so reads them once per group. They are not stacked with
// --tree-mask, since the host may feed a mask for each head.
bool AttentionJudge::HasGroupsAsTokens(const AttentionSite& site) const {
  return s_.options.target == Target::kOrt && site.q_heads > site.key.view.heads &&
         !s_.options.tree_mask;
}

void AttentionJudge::SetAttributes(const AttentionSite& site, int32_t type,
                                   PlannedAttention* planned) const {
  const auto scale = static_cast<float>(site.scale);
  const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(site.head_dim)));
  if (scale != usual) planned->scale = scale;
  planned->softcap = static_cast<float>(site.softcap);
  if (site.softmax_type != type) planned->softmax_precision = site.softmax_type;
}

bool AttentionJudge::WrittenAlike(const PlannedCache& key, const PlannedCache& value) const {
  if (key.how.index() != value.how.index() || key.buffer != value.buffer) return false;
  if (key.grows()) return key.window() == value.window();
  return Normal(key, key.write_index(s_.pool)) == Normal(value, value.write_index(s_.pool));
}

bool AttentionJudge::RowPerToken(const AttentionSite& site, const PlannedCache& key) const {
  return Normal(key, QueryShape(s_.forms, site)[2]) == Normal(key, key.new_length) ||
         HasRowsOfOneToken(site, key);
}

bool AttentionJudge::HasRowsOfOneToken(const AttentionSite& site, const PlannedCache& key) const {
  return key.new_length->is_integer(1) && !sym::ContainsIndex(site.mask.keep, 2) &&
         QueryShape(s_.forms, site)[2]->kind() == Kind::kInteger;
}

// Biases are not changed, so their extent must be that of the keys that attention is given.
std::optional<Finding> AttentionJudge::JudgeBiases(const AttentionSite& site, int32_t type) const {
  const PlannedCache& key = s_.caches[site.key.cache];
  for (const auto& [bias, heads] : site.mask.biases) {
    if (key.grows() && !s_.views()) {
      return Reason(
          "KV216",
          fmt::format("needs caches that attention reads up to the valid length, with one "
                      "length for the batch, to add the bias {}, which the source "
                      "computes for its own keys",
                      s_.graph.name(bias)),
          site, {bias});
    }
    if (key.ring() != nullptr) {
      return Reason("KV216",
                    fmt::format("needs masks alone for keys in a ring, found the bias {}",
                                s_.graph.name(bias)),
                    site, {bias});
    }
    if (key.fifo() && heads != HeadsOfScores::kOneAxis) {
      return Reason("KV216",
                    fmt::format("needs scores with one axis of heads for keys that move, found {}",
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

// Plans the biases: which of them are cut to the keys, split or moved, and whether their sum has
// the full extents that ONNX Runtime 1.31 needs.
void AttentionJudge::PlanBiases(const AttentionSite& site, PlannedAttention* planned) const {
  if (site.mask.biases.empty()) return;
  const PlannedCache& key = s_.caches[site.key.cache];
  const bool cut = !key.grows() && std::holds_alternative<ValidRows>(planned->keys);
  bool has_rows = HasOneToken(s_, site), has_keys = false, full = false;
  for (const Bias& bias : site.mask.biases) {
    const std::vector<Expr>& shape = s_.forms.Of(bias.value).shape;
    const size_t rank = shape.size();
    PlannedBias added;
    added.value = bias.value;
    added.cut_to_keys = cut && rank > 0 && !shape.back()->is_integer(1);
    const bool in_batch = bias.heads == HeadsOfScores::kInBatch;
    added.splits_heads = in_batch && rank == 3 && !shape[0]->is_integer(1);
    if (rank == 5) added.joined_heads = shape[1]->is_integer(1) ? 1 : site.q_heads;
    has_rows = has_rows || (rank > 1 && !shape[rank - 2]->is_integer(1));
    has_keys = has_keys || (rank > 0 && !shape[rank - 1]->is_integer(1));
    full = full || rank >= 4 || added.splits_heads || key.fifo();
    if (key.fifo()) added.in_ring_order = BiasInRingOrder(site, key, bias.value);
    planned->biases.push_back(std::move(added));
  }
  planned->expands_biases = !(full && has_rows && has_keys);
}

// Returns a bias of the source's rows as one of the buffer's slots: [B, N or 1, S or 1, M].
sym::Emitter::Request AttentionJudge::BiasInRingOrder(const AttentionSite& site,
                                                      const PlannedCache& key, ValueId bias) const {
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
  return request;
}

}  // namespace kvlift::internal
