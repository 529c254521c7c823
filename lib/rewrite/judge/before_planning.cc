#include "rewrite/judge/before_planning.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "rewrite/judge/mask_safety.h"
#include "rewrite/judge/shared_extents.h"
#include "rewrite/plan/cross_token_ops.h"
#include "rewrite/recognise/axis_letters.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::internal {
namespace {

using sym::Expr;

// Refuses a buffer of a fixed size beside growing caches whose capacity is another one. Several
// buffers of fixed sizes hold as many tokens as the smallest of them.
std::optional<Finding> CapacitiesDiffer(const Analysis& a, const ResolvedOptions& options) {
  if (!HasGrowing(a)) return std::nullopt;
  std::optional<int64_t> common = options.max_seq_len;
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

// Refuses a growing cache that has no axis of sequences. The axis that was taken for it then has a
// number of elements that no other input or output has, such as the layers of [L, N, P, D] where
// the tokens are of one sequence.
std::optional<Finding> HasNoSequences(const Analysis& a) {
  absl::flat_hash_set<ValueId> caches;
  for (const AnalysedCache& cache : a.caches) {
    caches.insert(cache.candidate.pair.past);
    caches.insert(cache.candidate.pair.present);
  }
  absl::flat_hash_set<Expr> extents;
  for (const auto values : {a.graph->graph_inputs(), a.graph->graph_outputs()}) {
    for (const ValueId v : values) {
      const sym::Form form = caches.contains(v) ? sym::Form() : a.forms->Of(v);
      extents.insert(form.shape.begin(), form.shape.end());
    }
  }
  for (const CacheUpdate& update : a.updates) {
    const size_t axis = update.layout.find('B');
    // A buffer of a fixed size may have room for more sequences than a step has.
    if (axis == std::string::npos || !update.grows()) continue;
    const Expr extent = a.forms->Of(update.pair.past).shape[axis];
    const bool number = extent->kind() == sym::Kind::kInteger && extent->value() > 1;
    if (!number || extents.contains(extent)) continue;
    return MakeFinding(
        "KV217",
        fmt::format("needs an axis of sequences, found {} on axis {} of {}, which no "
                    "other input or output has",
                    extent->value(), axis, a.graph->name(update.pair.past)),
        *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

// Refuses caches that hold numbers of a narrower type than they declare, if their steps round other
// sums than those of the source: buffers in which each sequence has a write index of its own, since
// the source computes such sequences in another batch, and several caches in one tensor.
std::optional<Finding> NarrowNumbersRound(const Analysis& a, const ResolvedOptions& options) {
  if (options.rounding == Rounding::kFree) return std::nullopt;
  for (const CacheUpdate& update : a.updates) {
    const ValueId past = update.pair.past;
    if (!sym::HoldsNarrowerNumbers(*a.forms, past)) continue;
    const bool apart =
        !update.grows() && sym::ContainsIndex(update.write_index(a.forms->pool()), 0);
    if (!apart && !HasPackedAxes(update.layout)) continue;
    return MakeFinding(
        "KV248",
        fmt::format("needs {} where {} numbers are in caches of {} (--rounding free converts them)",
                    apart ? "one write index for all sequences" : "a tensor for each cache",
                    ElementTypeName(a.forms->NumbersOf(past).type),
                    ElementTypeName(a.forms->ElementType(past))),
        *a.graph, {update.node}, {past});
  }
  return std::nullopt;
}

// Refuses buffers in which each sequence has a write index of its own, but another axis is in
// front.
std::optional<Finding> SequencesBehindFront(const Analysis& a) {
  for (const CacheUpdate& update : a.updates) {
    if (!update.has_indices_behind_front(a.forms->pool())) continue;
    return MakeFinding("KV204",
                       fmt::format("needs the axis of sequences in front of caches that have a "
                                   "write index for each sequence, found {}",
                                   update.layout),
                       *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

// Refuses buffers that one step writes at slots which differ by a number of rows, such as by its
// new tokens: the manifest says of all caches that the rows of a step begin at one slot.
std::optional<Finding> StartsDiffer(const Analysis& a) {
  const CacheUpdate* first = nullptr;
  for (const CacheUpdate& update : a.updates) {
    const auto* write = std::get_if<WriteAt>(&update.how);
    if (write == nullptr) continue;
    if (first == nullptr) {
      first = &update;
      continue;
    }
    const Expr other = std::get<WriteAt>(first->how).start;
    const Expr rows = a.forms->pool().Sub(write->start, other);
    if (rows->is_integer(0) || !sym::LoadsOf(rows).empty() || rows->has_index()) continue;
    return MakeFinding(
        "KV204",
        fmt::format("needs one slot for the first new rows of all caches, found {} in {} and {} in "
                    "{}",
                    sym::ToString(other, a.graph.get()), a.graph->name(first->pair.past),
                    sym::ToString(write->start, a.graph.get()), a.graph->name(update.pair.past)),
        *a.graph, {update.node}, {first->pair.past, update.pair.past});
  }
  return std::nullopt;
}

// Refuses rings that the user asks to be too small for their windows.
std::optional<Finding> RingTooSmall(const Analysis& a, absl::Span<const PlannedCache> caches,
                                    const ResolvedOptions& options) {
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

// Refuses to give attention the whole buffer of a cache that it reads through views only.
std::optional<Finding> ViewsReadInFull(const Analysis& a, const ResolvedOptions& options) {
  if (options.read != ReadForm::kFull) return std::nullopt;
  for (const CacheUpdate& update : a.updates) {
    const auto why = update.needs_views();
    if (!why) continue;
    return MakeFinding("KV217",
                       fmt::format("--read full, but {} {}", a.graph->name(update.pair.past), *why),
                       *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

// Refuses a sliding buffer that stays as it is: the node that reads it was lowered to one over a
// past of all rows, which the host does not have.
std::optional<Finding> SlidingBufferStays(const Analysis& a) {
  for (const SlidingRows& rows : a.normalised.sliding) {
    const ValueId past = a.graph->Find(rows.input);
    const bool converted =
        std::any_of(a.caches.begin(), a.caches.end(), [&](const AnalysedCache& cache) {
          return cache.candidate.pair.past == past && cache.update_index >= 0;
        });
    if (converted || past == kNoValue) continue;
    return MakeFinding(
        "KV240",
        fmt::format("GroupQueryAttention: needs all sliding buffers converted, found "
                    "{}, which stays as it is",
                    rows.input),
        *a.graph, {}, {past});
  }
  return std::nullopt;
}

// Returns an input of integers that has one element for each new token of a step and none for each
// sequence, as positions [S] or [1, S] have. Returns kNoValue if no input does, or if the caches
// hold one sequence.
ValueId PositionsOfAllSequences(const Analysis& a) {
  for (const CacheUpdate& update : a.updates) {
    const size_t batch = update.layout.find('B');
    if (batch == std::string::npos || update.new_length->kind() != sym::Kind::kDim) continue;
    const Expr sequences = a.forms->Of(update.pair.past).shape[batch];
    if (sequences->is_integer(1)) continue;
    for (const ValueId input : a.graph->graph_inputs()) {
      if (!IsIntegerType(a.graph->type(input).elem_type) || a.graph->uses(input).empty()) continue;
      const sym::Form& form = a.forms->Of(input);
      if (!form.known_rank || form.shape.empty()) continue;
      const bool of_all = std::all_of(form.shape.begin(), form.shape.end() - 1,
                                      [](Expr extent) { return extent->is_integer(1); });
      if (of_all && form.shape.back() == update.new_length) return input;
    }
  }
  return kNoValue;
}

}  // namespace

std::optional<Finding> RefuseBeforePlanning(const Analysis& a,
                                            absl::Span<const PlannedCache> caches,
                                            const ResolvedOptions& options) {
  if (auto finding = HasNoSequences(a)) return finding;
  if (auto finding = SequencesBehindFront(a)) return finding;
  if (auto finding = StartsDiffer(a)) return finding;
  if (auto finding = SlidingBufferStays(a)) return finding;
  if (auto finding = CapacitiesDiffer(a, options)) return finding;
  if (auto finding = NarrowNumbersRound(a, options)) return finding;
  if (auto finding = RingTooSmall(a, caches, options)) return finding;
  return ViewsReadInFull(a, options);
}

namespace {

// Returns true if some sum in e takes the number of new tokens off a number that is data.
bool CountsBack(Expr e, const sym::DimSymbol& tokens) {
  if (e->kind() != sym::Kind::kSum) {
    auto args = e->args();
    if (e->kind() == sym::Kind::kSelect) args.remove_prefix(1);  // its condition is no number
    return std::any_of(args.begin(), args.end(), [&](Expr arg) { return CountsBack(arg, tokens); });
  }
  bool takes_off = false, data = false;
  for (const sym::Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      const bool own = atom->kind() == sym::Kind::kDim && atom->dim() == tokens;
      takes_off = takes_off || (own && term.coefficient < 0);
      data = data || (!own && term.coefficient > 0 && !sym::LoadsOf(atom).empty());
      if (CountsBack(atom, tokens)) return true;
    }
  }
  return takes_off && data;
}

// Returns true if the write index of a buffer is a number that is data minus the number of new
// tokens.
bool HasIndexCountedBack(const Analysis& a) {
  return std::any_of(a.updates.begin(), a.updates.end(), [&](const CacheUpdate& update) {
    return !update.grows() && update.new_length->kind() == sym::Kind::kDim &&
           CountsBack(update.write_index(a.forms->pool()), update.new_length->dim());
  });
}

// Returns why the tokens of a step, or the sequences of a batch, are not computed independently, as
// the end of a sentence; nullopt if they are.
std::optional<std::string> WhyTokensMix(const Analysis& a) {
  const NodeId n = FindCrossTokenOp(a);
  if (n == kNoNode) return std::nullopt;
  return fmt::format("{} at {} takes in all tokens of a step", a.graph->node(n).op_type(),
                     a.graph->NodeName(n));
}

std::optional<std::string> WhySequencesJoin(const Analysis& a) {
  const NodeId n = FindBatchReduction(a);
  if (n == kNoNode) return std::nullopt;
  return fmt::format("{} at {} takes all sequences of a batch together", a.graph->node(n).op_type(),
                     a.graph->NodeName(n));
}

std::optional<std::string> WhySequencesMix(const Analysis& a) {
  const NodeId n = FindReorderedSequences(a);
  if (n == kNoNode) return std::nullopt;
  return fmt::format("{} at {} computes with rows of other sequences", a.graph->node(n).op_type(),
                     a.graph->NodeName(n));
}

// Returns true if a number in e, outside of indices of elements, depends on P + S: a bound or a
// divisor in a mask that real tokens see change with the padding tokens behind them. A look-up may
// ask whether a place, such as P + i, is less than S.
bool CountsTotal(Expr e, Expr past, Expr tokens) {
  if (e->kind() == sym::Kind::kLoad) return false;
  if (e->kind() == sym::Kind::kSum) {
    const auto times = [&](Expr part) -> int64_t {
      for (const sym::Term& term : e->terms()) {
        if (term.atoms.size() == 1 && term.atoms[0] == part) return term.coefficient;
      }
      return 0;
    };
    if (times(past) != 0 && times(past) == times(tokens)) return true;
  }
  const auto counts = [&](Expr part) { return CountsTotal(part, past, tokens); };
  return absl::c_any_of(e->args(), counts) || absl::c_any_of(e->terms(), [&](const auto& term) {
           return absl::c_any_of(term.atoms, counts);
         });
}

// Returns an attention over growing caches whose mask shows real tokens other keys where padding
// tokens stand behind them, such as a window that ends at the last new token for every query.
// Returns kNoNode if no mask does that, and for steps of one token or of one sequence.
NodeId AttentionMaskedByCount(const Analysis& a) {
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site || attention.site->key.cache < 0) continue;
    const CacheUpdate& update = a.updates[static_cast<size_t>(attention.site->key.cache)];
    const size_t batch = update.layout.find('B');
    if (!update.grows() || batch == std::string::npos) continue;
    if (a.forms->Of(update.pair.past).shape[batch]->is_integer(1)) continue;
    const Expr rows = a.forms->Of(update.pair.past).shape[update.axis];
    if (CountsTotal(attention.site->mask.keep, rows, update.new_length)) return attention.node;
  }
  return kNoNode;
}

}  // namespace

std::optional<Finding> PadsChangeRows(const Analysis& a, const ConversionPlan& plan) {
  if (plan.options.padding == Padding::kNone || !a.states.empty()) return std::nullopt;
  if (const NodeId n = AttentionMaskedByCount(a); n != kNoNode) {
    return MakeFinding(
        "KV251",
        "needs a mask that padding tokens behind a sequence do not change, found one that changes "
        "with the number of new tokens (--padding none promises that no step holds padding tokens)",
        *a.graph, {n});
  }
  // Without padding tokens (ForbidsPadding), a test for overflow is the same in both models.
  const NodeId n = FindMixingWithPads(a, OverflowTests::kLeftOut);
  if (n == kNoNode) return std::nullopt;
  const bool all_grow = std::all_of(a.updates.begin(), a.updates.end(),
                                    [](const CacheUpdate& update) { return update.grows(); });
  if (all_grow && plan.views() && InputOfAllTokens(a, plan.extents)) return std::nullopt;
  return MakeFinding(
      "KV251",
      fmt::format(
          "needs tokens of a step that are seen not to change each other, found {}: padding tokens "
          "may change the results of real tokens (--padding none promises that no step holds "
          "padding tokens)",
          a.graph->node(n).op_type()),
      *a.graph, {n});
}

std::optional<NoPadding> ForbidsPadding(const Analysis& a) {
  if (!a.states.empty()) return StateTakesTokens{};
  if (const NodeId n = FindCrossTokenOp(a); n != kNoNode) return TokensTogether{n};
  if (const NodeId n = FindCountedTokens(a); n != kNoNode) return TokensTogether{n};
  if (const NodeId n = FindMixingWithPads(a); n != kNoNode) return OtherRowsRead{n};
  if (HasIndexCountedBack(a)) return IndexFromTotalLength{};
  return std::nullopt;
}

bool MayHideAllKeys(const Analysis& a, bool has_key_length_masks) {
  return std::any_of(a.attention.begin(), a.attention.end(), [&](const auto& attention) {
    return attention.site && (has_key_length_masks || ReadsHostMask(a, attention.site->mask.keep));
  });
}

std::optional<std::string> NeedsUniform(const Analysis& a) {
  if (const ValueId input = PositionsOfAllSequences(a); input != kNoValue) {
    return fmt::format("{} holds one number for each token of all sequences", a.graph->name(input));
  }
  for (const CacheUpdate& update : a.updates) {
    const auto why = update.needs_one_index();
    if (why) return fmt::format("{} {}", a.graph->name(update.pair.past), *why);
  }
  if (!a.states.empty()) return "a state takes in every token of a step";
  if (auto why = WhyTokensMix(a)) return why;
  if (auto why = WhySequencesJoin(a)) return why;
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
    const AttentionMask& mask = attention.site->mask;
    if (const ValueId v = ComputedHostMask(a, mask.keep); v != kNoValue) {
      return fmt::format("{} masks the keys of all sequences of a batch, and has one width",
                         a.graph->name(v));
    }
    if (mask.biases.empty()) continue;
    return fmt::format("a bias is added to the scores: {}",
                       a.graph->name(mask.biases.front().value));
  }
  return WhySequencesMix(a);
}

std::optional<std::string> UniformBuffers(const Analysis& a) {
  const CacheUpdate& first = a.updates.front();
  const Expr start = first.write_index(a.forms->pool());
  const bool fifo = std::holds_alternative<Fifo>(first.how);
  if (!fifo && !sym::ContainsIndex(start, 0)) {
    return fmt::format("{} is one slot for all sequences", sym::ToString(start, a.graph.get()));
  }
  if (auto why = WhyTokensMix(a)) return why;
  if (auto why = WhySequencesJoin(a)) return why;
  return WhySequencesMix(a);
}

}  // namespace kvlift::internal
