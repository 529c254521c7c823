#include "proof/facts/attention_facts.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "ir/types.h"
#include "proof/facts/unmet_conditions.h"
#include "proof/facts/visible_keys.h"
#include "proof/lemmas/finite_minimum.h"
#include "proof/lemmas/heads_regrouped.h"
#include "proof/lemmas/joint/hidden_keys.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/nan_guard.h"
#include "proof/lemmas/renormalised_weights.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lemmas/sink_key.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

namespace {

// The index of the key in an AttentionReading.
constexpr size_t kKeyAxis = 3;

}  // namespace

bool AttentionFacts::Prove(const std::string& name, const AttentionReading& before,
                           const AttentionReading& after) {
  const char* text = "is the source's attention";
  if (std::string why = !after.why_not.empty() ? after.why_not : before.why_not; !why.empty()) {
    facts_->Add(name, text, why);
    return false;
  }
  if (LacksKeys(pair_, twins_, after)) {
    facts_->Add(name, text, "its valid length is beyond its keys");
    return false;
  }
  return CompareGroups(name, before, after);
}

Expr AttentionFacts::Tokens(const AttentionReading& reading) const {
  return reading.extents.extents.size() > 2 ? twins_.Normal(reading.extents.extents[2], Facts{})
                                            : nullptr;
}

std::optional<int64_t> AttentionFacts::GroupsOf(const AttentionReading& before,
                                                const AttentionReading& after) {
  if (before.extents.extents.size() < 3 || after.extents.extents.size() < 3) return std::nullopt;
  const Expr rows = twins_.Extent(after.extents.extents[2], pool_.Index(0));
  return GroupsAsRows(pool_, before, after, rows, Tokens(before));
}

bool AttentionFacts::CompareGroups(const std::string& name, const AttentionReading& before,
                                   const AttentionReading& after) {
  const std::optional<int64_t> groups = GroupsOf(before, after);
  if (!groups || *groups == 1) return CompareAttentions(name, before, after);
  const Expr tokens = Tokens(before);
  return facts_->ForEach(*groups, [&](int64_t g) {
    return CompareAttentions(name, OfPlainHeads(pool_, before, *groups, g),
                             OfStackedRows(pool_, after, tokens, g));
  });
}

bool AttentionFacts::CompareAttentions(const std::string& name, const AttentionReading& before,
                                       const AttentionReading& after) {
  const auto* keys = twins_.MovedIn(after.key);
  const auto* values = twins_.MovedIn(after.value);
  if (keys == nullptr && values == nullptr) return CompareKeys(name, before, after, nullptr);
  const bool same = keys != nullptr && values != nullptr && *keys == *values;
  if (!same || twins_.Normal(before.extents.extents[3], Facts{}) != keys->back().end() ||
      twins_.Extent(after.extents.extents[3], pool_.Index(0)) != keys->back().slots()) {
    facts_->Add(name, "is the source's attention", "it has other keys than the rows that move");
    return false;
  }
  bool all = facts_->ForEach(static_cast<int64_t>(keys->size()), [&](int64_t k) {
    return CompareKeys(name, before, after, &(*keys)[static_cast<size_t>(k)]);
  });
  all &= ShowsNoOther(name, before, after, *keys);
  return all;
}

bool AttentionFacts::ShowsNoOther(const std::string& name, const AttentionReading& before,
                                  const AttentionReading& after,
                                  const std::vector<MovedRows>& rows) {
  const auto never = [&](const char* text, Expr seen, const Facts& facts) {
    return facts_->AddNever(name, text, seen, facts,
                            fmt::format("{} may be seen", facts_->Text(seen)));
  };
  Facts facts = before.extents;
  for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
  bool all = true;
  if (const MovedRows left = MovedRows::InFrontOf(rows); !left.empty()) {
    const Expr seen = left.Theirs(twins_.Normal(before.visible, facts), facts, kKeyAxis);
    all &= never("shows no query a key that has left, in the source either", seen,
                 left.Extents(facts, kKeyAxis));
  }
  if (const MovedRows free = MovedRows::Behind(rows); !free.empty()) {
    const Facts slots = free.Slots(facts, kKeyAxis);
    const Expr mine = twins_.Translate(after.visible, pool_.Index(0), slots);
    all &= never("shows no query a slot without a row", free.Mine(mine, facts, kKeyAxis),
                 free.Extents(facts, kKeyAxis));
  }
  return all;
}

std::string AttentionFacts::OtherExtents(const AttentionReading& before,
                                         const AttentionReading& after) {
  constexpr const char* kNames[] = {"sequences", "query heads", "queries", "keys", "elements"};
  const auto is_same = [&](Expr mine, Expr theirs) {
    return equality_->Equal(twins_.Extent(mine, pool_.Index(0)), twins_.Normal(theirs, Facts{}),
                            pool_.True(), Facts{});
  };
  for (size_t k = 0; k < std::size(kNames); ++k) {
    const Expr mine = after.extents.extents[k], theirs = before.extents.extents[k];
    if (k == kKeyAxis || is_same(mine, theirs)) continue;
    return fmt::format("it has {} {} instead of {}", facts_->Text(mine), kNames[k],
                       facts_->Text(theirs));
  }
  if (!is_same(after.size_of_value, before.size_of_value)) {
    return "its values are of another size";
  }
  for (const auto& [x, y] : after.equal_extents) {
    if (!MayDiffer(pair_, twins_, *equality_, after, x, y)) continue;
    return fmt::format("an operand of extent {} may be broadcast to {}", facts_->Text(x),
                       facts_->Text(y));
  }
  return "";
}

bool AttentionFacts::RestOnHiding(const std::string& name, const AttentionReading& before,
                                  const AttentionReading& after, const Facts& facts, bool moved) {
  if (before.nan_guard) twins_.RestOn(ScoresAreNumbers(name));
  for (const AttentionReading* reading : {&before, &after}) {
    if (reading->renormalised) twins_.RestOn(VisibleKeysKeepWeight(name, reading->softmax_type));
  }
  const bool finite = !before.hidden_by.empty() || !after.hidden_by.empty();
  const bool keyed = before.sink != nullptr && !before.gated_sink;
  if (finite) {
    for (const std::set<double>* numbers : {&before.hidden_by, &after.hidden_by}) {
      if (!numbers->empty()) {
        twins_.RestOn(HiddenKeysScoreLow(name, *numbers, keyed));
      }
    }
    twins_.RestOnLemma(lemmas::kFiniteMinimum);
  }
  if (keyed) {
    // Each query has the sink. Only a sink of -inf hides itself.
    if (!IsSinkInReach(forms_, before.sink)) twins_.RestOn(SinkIsInReach(name));
    return true;
  }
  const bool cleared = before.is_operator || before.nan_guard;
  if (cleared && !finite) return true;
  const Expr visible = twins_.Normal(before.visible, facts);
  // A bias may hide all keys of a query.
  const bool plain = before.bias.empty() && after.bias.empty();
  if (plain && SeesAKey(pool_, visible, facts)) return true;
  const std::string unseen =
      moved ? ""
            : QueryWithoutKeys(pool_, visible, twins_.past(), facts.extents[kKeyAxis - 1],
                               facts.extents[kKeyAxis]);
  if (!unseen.empty()) {
    facts_->Add(name, "leaves each query a key", "there is none: " + unseen);
    return false;
  }
  twins_.RestOn({AssumptionKind::kVisibleKey, name,
                 fmt::format("each query of {} sees a key", name), AssumptionSource::kHost});
  if (!moved && ReadsOnlyInputs(visible) &&
      PaddingHidesAllKeys(pool_, visible, twins_.past(), facts.extents[kKeyAxis - 1],
                          facts.extents[kKeyAxis])) {
    twins_.RestOn({AssumptionKind::kPadding, name,
                   fmt::format("no padding hides all keys of a token in {}", name),
                   AssumptionSource::kHost});
  }
  return true;
}

bool AttentionFacts::ReadsOnlyInputs(Expr e) const {
  const std::vector<ValueId> sources = sym::SourcesOf(e);
  return std::all_of(sources.begin(), sources.end(),
                     [&](ValueId source) { return forms_.graph().is_graph_input(source); });
}

bool AttentionFacts::CompareKeys(const std::string& name, const AttentionReading& before,
                                 const AttentionReading& after, const MovedRows* rows) {
  const Expr sequence = pool_.Index(0);
  const auto own = [&](Expr e, const Facts& where) {
    if (rows == nullptr) return twins_.Translate(e, sequence, where);
    return rows->Mine(twins_.Translate(e, sequence, rows->Slots(where, kKeyAxis)), where, kKeyAxis);
  };
  const auto other = [&](Expr e, const Facts& where) {
    const Expr theirs = twins_.Normal(e, where);
    return rows == nullptr ? theirs : rows->Theirs(theirs, where, kKeyAxis);
  };
  const auto looked = [&](const Facts& where) {
    return rows == nullptr ? where : rows->Extents(where, kKeyAxis);
  };
  Facts facts = before.extents;
  for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
  Facts values = facts;
  values.extents[4] = before.size_of_value;
  const Expr mine = own(after.visible, facts), theirs = other(before.visible, facts);
  // The elements of keys that no query sees do not matter.
  const Expr seen = mine == nullptr ? pool_.True() : pool_.And(mine, theirs);
  const auto compare = [&](const std::string& text, Expr x, Expr y, Expr known,
                           const Facts& where) {
    return facts_->AddEqual(name, text, own(x, where), other(y, where), known, looked(where));
  };
  for (const AttentionReading* reading : {&before, &after}) twins_.RestOn(reading->grounds);
  const char* queries = "reads the source's queries";
  const std::string other_extents = OtherExtents(before, after);
  bool all =
      other_extents.empty() && compare(queries, after.query, before.query, pool_.True(), facts);
  if (!other_extents.empty()) facts_->Add(name, queries, other_extents);
  all &= compare("reads the source's keys, each head those of its group", after.key, before.key,
                 seen, facts);
  // Otherwise the source's attention may be another one.
  const bool is_same_product = all;
  all &= compare("reads the source's values", after.value, before.value, seen, values);
  if (after.sink != nullptr && before.sink != nullptr) {
    all &= compare("adds the source's sink to its softmax", after.sink, before.sink, pool_.True(),
                   facts);
  } else if (after.sink != before.sink) {
    facts_->Add(name, "adds the source's sink to its softmax",
                after.sink == nullptr ? "it has no sink" : "the source has no sink");
    all = false;
  }
  all &= RestOnHiding(name, before, after, facts, rows != nullptr);
  const Expr shown = rows == nullptr ? VisibleWhereThereAreKeys(twins_, *equality_, pool_, mine,
                                                                after, looked(facts))
                                     : mine;
  all &= facts_->AddEqual(name, "shows each query the source's keys", shown, theirs, pool_.True(),
                          looked(facts));
  if (rows == nullptr) all &= HidesRest(name, before, after, facts);
  std::vector<Expr> added, theirs_added;
  for (Expr e : after.bias) added.push_back(own(e, facts));
  for (Expr e : before.bias) theirs_added.push_back(other(e, facts));
  for (Expr e : theirs_added) {
    if (e == nullptr || !RoundsScoresAway(e)) continue;
    facts_->Add(name, "adds numbers beside which scores keep their bits", sym::ToString(e));
    all = false;
  }
  all &= SameBias(name, added, std::move(theirs_added), seen, looked(facts));
  const int32_t type = before.products.type;
  const bool scaled = AreOneScale(after.scale, before.scale, type) ||
                      (after.is_operator && after.products.type != 0 &&
                       AreOneScale(ScaleOfText(after.scale, after.products.type), before.scale));
  const bool capped = before.softcap == after.softcap || AreOneScale(after.softcap, before.softcap);
  const bool typed = before.softmax_type == after.softmax_type;
  const auto numbers = [](const AttentionReading& r) {
    return fmt::format("scale {}, softcap {} and a softmax in {}", r.scale, r.softcap,
                       ElementTypeName(r.softmax_type));
  };
  const char* what = "has the source's scale, softcap and precision of the softmax";
  const bool in_range = AreNear(after.products, before.products);
  const std::string why_not =
      !scaled || !capped || !typed
          ? fmt::format("{} instead of {}", numbers(after), numbers(before))
      : in_range
          ? ""
          : "its products of queries and keys may leave their range where the source's do not";
  const bool known_types = before.softmax_type != 0 && after.softmax_type != 0;
  const bool unlike = (!scaled && AreOtherScales(after.scale, before.scale, type)) ||
                      AreOtherScales(after.softcap, before.softcap) || (!typed && known_types);
  if (unlike && is_same_product) {
    facts_->AddRefuted(name, what, why_not);
  } else {
    facts_->Add(name, what, why_not);
  }
  return all && scaled && capped && typed && in_range;
}

bool AttentionFacts::SameBias(const std::string& name, const std::vector<Expr>& added,
                              std::vector<Expr> open, Expr seen, const Facts& facts) {
  if (added.empty() && open.empty()) return true;
  std::string why_not;
  for (Expr mine : added) {
    const auto same = std::find_if(open.begin(), open.end(), [&](Expr theirs) {
      return equality_->Equal(mine, theirs, seen, facts);
    });
    if (same == open.end()) {
      why_not = fmt::format("{} is none of the source's", facts_->Text(mine));
      break;
    }
    open.erase(same);
  }
  if (why_not.empty() && !open.empty()) {
    why_not = fmt::format("{} is not added", facts_->Text(open.front()));
  }
  facts_->Add(name, "adds the source's bias to its scores", why_not);
  return why_not.empty();
}

Expr AttentionFacts::CapacityOf(Expr e) {
  for (const ManifestCache& cache : relation_.caches) {
    const ValueId past = pair_.After(cache.input);
    for (ValueId source : sym::SourcesOf(e)) {
      if (source == past) return forms_.Of(past).shape[static_cast<size_t>(cache.axis)];
    }
  }
  return nullptr;
}

bool AttentionFacts::HidesRest(const std::string& name, const AttentionReading& before,
                               const AttentionReading& after, const Facts& facts) {
  const Expr end = twins_.Normal(before.extents.extents[3], Facts{});
  const Expr slots = CapacityOf(after.key);
  if (slots != nullptr && end == twins_.Extent(slots, pool_.Index(0))) return true;
  // From here on i3 = 0 is the key behind the source's last one.
  Facts behind = facts;
  behind.extents[3] = nullptr;
  const Expr seen = VisibleBehind(twins_, pool_, after, end, behind);
  const bool hidden = seen != nullptr && seen->is_integer(0);
  const bool ends = twins_.Translate(after.extents.extents[3], pool_.Index(0), Facts{}) == end;
  const char* text = "shows no query a key behind the source's last";
  twins_.RestOnLemma(lemmas::kHiddenKeys);
  if (!hidden && !ends) {
    return facts_->AddNever(name, text, seen, behind,
                            fmt::format("{} may be seen", facts_->Text(seen)));
  }
  facts_->Add(name, text, "");
  return true;
}

}  // namespace kvlift
