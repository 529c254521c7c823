#include "proof/prover.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/attention_reading.h"
#include "proof/branches.h"
#include "proof/cache_facts.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/fact_list.h"
#include "proof/guards.h"
#include "proof/lemmas/finite_minimum.h"
#include "proof/lemmas/heads_regrouped.h"
#include "proof/lemmas/hidden_keys.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/nan_guard.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/matches.h"
#include "proof/misfits.h"
#include "proof/moved_rows.h"
#include "proof/nodes.h"
#include "proof/pair.h"
#include "proof/plain.h"
#include "proof/visible_keys.h"
#include "sym/keeps_value.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

// How many of the source's attentions are held against one of the conversion.
constexpr size_t kMostTried = 8;
// The axis of keys in what is read of an attention.
constexpr size_t kKeys = 3;

class Prover {
 public:
  Prover(const GraphPair& pair, const Manifest& relation, const std::vector<LengthClaim>& claims,
         const SourceCase& steps, Obligations* obligations)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        relation_(relation),
        claims_(claims),
        steps_(steps),
        twins_(pair, relation, claims, steps),
        equality_(forms_, obligations),
        facts_(forms_, relation, twins_, equality_),
        cache_facts_(pair, steps, twins_, &equality_, &facts_),
        nodes_(pair, twins_, equality_),
        matches_(pair, steps.past != SourceCase::Past::kAny, &twins_, &nodes_) {}

  // Whether the source's fused operators are fed the lengths that they are read with.
  bool ClaimsHold() const {
    return std::all_of(claims_.begin(), claims_.end(), [&](const LengthClaim& claim) {
      const Expr beyond = twins_.Beyond(claim);
      return beyond != nullptr && beyond->is_integer(0);
    });
  }

  Proof Run(const std::vector<Seam>& seams) {
    absl::flat_hash_map<NodeId, const ManifestCache*> writes;
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = pair_.After(cache.output);
      if (present != kNoValue) writes[graph_.producer(present)] = &cache;
    }
    const Expr guards = GuardsOf(pair_, twins_);
    if (std::string why = twins_.Contradiction({guards, twins_.Fits()}); !why.empty()) {
      Proof proof;
      proof.not_tried = std::move(why);
      return proof;
    }
    equality_.Suppose(guards);
    // In topological order: what a node reads has its twin before it is looked at.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsOfAfter(n)) continue;
      if (const auto it = writes.find(n); it != writes.end()) {
        StartFactsOf(pair_.Before(it->second->source.output));
        cache_facts_.Prove(*it->second);
      } else if (graph_.Is(n, "Attention") && ProveAttention(n)) {
        matches_.MatchFurther(n);
      } else {
        matches_.Match(n);
      }
    }
    for (const ManifestOutput& output : relation_.outputs) {
      if (output.as != "cache") ProveOutput(output);
    }
    for (const auto& [value, why] : MisfitsOf(pair_, twins_, equality_)) {
      twins_.TakeGrounds();
      facts_.Add(value, "has operands that fit each other", why);
    }
    for (const Seam& seam : seams) {
      StartFactsOf(pair_.Before(seam.before_out));
      const std::string why = BrokenSeam(seam, pair_, twins_, &nodes_);
      facts_.Add(seam.after_out,
                 "leaves its layer as it is in the source, as large as what entered", why);
    }
    Proof proof = facts_.Take(steps_.text);
    for (const sym::Assumption& assumption : forms_.assumptions()) {
      const auto kind = KindOf(assumption.reason);
      // What the conversion's own nodes need has been shown (proof/misfits.h), but for places that
      // are looked up and for finite data.
      const bool shown = MustFit(assumption.predicate, assumption.reason);
      if (pair_.IsOfAfter(assumption.node) && shown) continue;
      if (kind) proof.assumptions.Add({*kind, "", assumption.text, AssumptionSource::kHost});
    }
    return proof;
  }

 private:
  // What forms rest on that no fact speaks of. Equal extents are told by the correspondence.
  static std::optional<AssumptionKind> KindOf(sym::AssumptionReason reason) {
    switch (reason) {
      case sym::AssumptionReason::kInside:
        return AssumptionKind::kIndexRange;
      case sym::AssumptionReason::kCountsUp:
        return AssumptionKind::kPositions;
      case sym::AssumptionReason::kFinite:
        return AssumptionKind::kFinite;
      case sym::AssumptionReason::kSmall:
        return AssumptionKind::kIntegerRange;
      case sym::AssumptionReason::kNotEmpty:
        return AssumptionKind::kOther;
      case sym::AssumptionReason::kEqualExtents:
      case sym::AssumptionReason::kBroadcast:
        break;
    }
    return std::nullopt;
  }

  // Facts that are added from now on are about a value of the source. They rest on inputs that it
  // is made from and that the relation says hold ones, or zeros.
  void StartFactsOf(ValueId of_source) {
    twins_.TakeGrounds();
    Grounds grounds;
    for (const auto& [value, input] : pair_.required()) {
      if (value == kNoValue || !DependsOn(of_source, value)) continue;
      const bool zeros = std::any_of(
          relation_.dropped.begin(), relation_.dropped.end(), [&](const DroppedInput& dropped) {
            return dropped.name == input && dropped.requires_text == "zeros";
          });
      grounds.given.Add({zeros ? AssumptionKind::kAllZeros : AssumptionKind::kAllOnes, input,
                         fmt::format("{} is all {}", input, zeros ? "zeros" : "ones"),
                         AssumptionSource::kManifest});
    }
    facts_.RestOn(std::move(grounds));
  }

  bool DependsOn(ValueId value, ValueId input) {
    auto& behind = behind_[input];
    if (behind.empty()) {
      behind.insert(input);
      std::vector<ValueId> open = {input};
      while (!open.empty()) {
        const ValueId next = open.back();
        open.pop_back();
        for (const Use& use : graph_.uses(next)) {
          if (use.kind != Use::Kind::kNodeInput) continue;
          for (ValueId output : graph_.outputs(use.node)) {
            if (output != kNoValue && behind.insert(output).second) open.push_back(output);
          }
        }
      }
    }
    return behind.contains(value);
  }

  bool ReadsPast(Expr e) const {
    for (ValueId source : sym::SourcesOf(e)) {
      for (const ManifestCache& cache : relation_.caches) {
        if (source == pair_.After(cache.input)) return true;
      }
      const ValueId kept = sym::KeptInFewBits(graph_, source);
      const bool known = kept != kNoValue && forms_.Of(kept).known_rank;
      if (known && ReadsPast(forms_.Of(kept).element)) return true;
    }
    return false;
  }

  // False if the node has nothing to do with caches.
  bool ProveAttention(NodeId node) {
    const ValueId result = graph_.outputs(node)[0];
    const AttentionReading after = ReadAttention(forms_, result);
    if (after.why_not.empty() && !ReadsPast(after.key) && !ReadsPast(after.value)) return false;
    const std::string name = pair_.NameOf(result);
    const ValueId theirs = pair_.Before(name);
    if (theirs != kNoValue) {
      const AttentionReading before = ReadAttention(forms_, theirs);
      if (before.why_not.empty() || !after.why_not.empty()) {
        ProveSame(name, result, theirs, before, after);
        return true;
      }
    }
    // The source calls it by another name, and something else by this one, if anything: one that is
    // not taken yet, those first that read the same cache.
    const auto extents = after.extents.extents;
    const bool counted = extents.size() > 1 && extents[1]->kind() == sym::Kind::kInteger;
    const int64_t heads = counted ? extents[1]->value() : 0;
    const size_t facts = facts_.size();
    std::vector<const SourceAttention*> free;
    for (const SourceAttention& other : SourceAttentions(heads)) {
      if (!matches_.IsTaken(other.result)) free.push_back(&other);
    }
    std::stable_partition(free.begin(), free.end(), [&](const SourceAttention* other) {
      return ReadsSameCache(after, other->reading);
    });
    if (free.size() > kMostTried) free.resize(kMostTried);
    for (const SourceAttention* other : free) {
      facts_.Shorten(facts);
      if (ProveSame(name, result, other->result, other->reading, after)) return true;
    }
    if (free.empty()) {
      facts_.Add(name, "is the source's attention", "the source has no value of this name");
    } else if (free.size() > 1) {
      facts_.Shorten(facts);
      ProveSame(name, result, free[0]->result, free[0]->reading, after);
    }
    return true;
  }

  // Whether the keys of the source's attention come from the cache that those of the conversion's
  // come from.
  bool ReadsSameCache(const AttentionReading& after, const AttentionReading& before) const {
    if (after.key == nullptr || before.key == nullptr) return false;
    const std::vector<ValueId> mine = sym::SourcesOf(after.key),
                               theirs = sym::SourcesOf(before.key);
    return std::any_of(
        relation_.caches.begin(), relation_.caches.end(), [&](const ManifestCache& cache) {
          return std::count(mine.begin(), mine.end(), pair_.After(cache.input)) > 0 &&
                 std::count(theirs.begin(), theirs.end(), pair_.Before(cache.source.input)) > 0;
        });
  }

  bool ProveSame(const std::string& name, ValueId mine, ValueId theirs,
                 const AttentionReading& before, const AttentionReading& after) {
    StartFactsOf(theirs);
    const size_t first = facts_.size();
    bool proved = false;
    if (std::string why = !after.why_not.empty() ? after.why_not : before.why_not; !why.empty()) {
      facts_.Add(name, "is the source's attention", why);
    } else if (LacksKeys(pair_, twins_, after)) {
      facts_.Add(name, "is the source's attention", "its valid length is beyond its keys");
    } else {
      proved = CompareGroups(name, before, after);
    }
    Grounds grounds = facts_.GroundsFrom(first);
    grounds.doubted = !proved;
    const bool doubted = grounds.doubted;
    const int64_t groups = GroupsOf(before, after).value_or(1);
    if (before.joined != after.joined) {
      // Heads that are rows are not told apart in what is joined.
      const Expr size = before.joined ? before.size_of_value : after.size_of_value;
      const bool plain = groups == 1 && forms_.Of(before.joined ? mine : theirs).shape.size() == 4;
      if (plain) twins_.SetJoinedTwin(mine, theirs, size, std::move(grounds));
    } else if (forms_.Of(theirs).shape.size() == 3 && forms_.Of(mine).shape.size() == 4) {
      twins_.SetFoldedTwin(mine, theirs, after.extents.extents[1]->value(), std::move(grounds));
    } else if (groups > 1) {
      twins_.SetStackedTwin(mine, theirs, groups, Tokens(before), std::move(grounds));
    } else {
      twins_.SetTwin(mine, theirs, Sameness::kWhole, std::move(grounds));
    }
    if (!doubted) matches_.Take(theirs);
    return proved;
  }

  struct SourceAttention {
    ValueId result = kNoValue;
    AttentionReading reading;
  };

  // The source's attentions over so many heads.
  const std::vector<SourceAttention>& SourceAttentions(int64_t heads) {
    const auto [it, fresh] = source_attentions_.try_emplace(heads);
    if (!fresh) return it->second;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsOfAfter(n) || graph_.outputs(n).empty()) continue;
      const ValueId result = graph_.outputs(n)[0];
      if (result == kNoValue) continue;
      AttentionReading reading = ReadAttention(forms_, result, heads);
      if (reading.why_not.empty()) it->second.push_back({result, std::move(reading)});
    }
    return it->second;
  }

  Expr Tokens(const AttentionReading& reading) const {
    return reading.extents.extents.size() > 2 ? twins_.Normal(reading.extents.extents[2], Facts{})
                                              : nullptr;
  }

  // As rows of the conversion's heads.
  std::optional<int64_t> GroupsOf(const AttentionReading& before, const AttentionReading& after) {
    if (before.extents.extents.size() < 3 || after.extents.extents.size() < 3) return std::nullopt;
    const Expr rows = twins_.Extent(after.extents.extents[2], pool_.Index(0));
    return GroupsAsRows(pool_, before, after, rows, Tokens(before));
  }

  bool CompareGroups(const std::string& name, const AttentionReading& before,
                     const AttentionReading& after) {
    const std::optional<int64_t> groups = GroupsOf(before, after);
    if (!groups || *groups == 1) return CompareAttentions(name, before, after);
    const Expr tokens = Tokens(before);
    return facts_.ForEach(*groups, [&](int64_t g) {
      return CompareAttentions(name, OfPlainHeads(pool_, before, *groups, g),
                               OfStackedRows(pool_, after, tokens, g));
    });
  }

  // Keys in the order that each model has them in.
  bool CompareAttentions(const std::string& name, const AttentionReading& before,
                         const AttentionReading& after) {
    const auto* keys = twins_.MovedIn(after.key);
    const auto* values = twins_.MovedIn(after.value);
    if (keys == nullptr && values == nullptr) return CompareKeys(name, before, after, nullptr);
    const bool same = keys != nullptr && values != nullptr && *keys == *values;
    if (!same || twins_.Normal(before.extents.extents[3], Facts{}) != keys->back().end() ||
        twins_.Extent(after.extents.extents[3], pool_.Index(0)) != keys->back().slots()) {
      facts_.Add(name, "is the source's attention", "it has other keys than the rows that move");
      return false;
    }
    bool all = facts_.ForEach(static_cast<int64_t>(keys->size()), [&](int64_t k) {
      return CompareKeys(name, before, after, &(*keys)[static_cast<size_t>(k)]);
    });
    all &= ShowsNoOther(name, before, after, *keys);
    return all;
  }

  // Rows that are not held any more, and slots without a row, are seen by no query.
  bool ShowsNoOther(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const std::vector<MovedRows>& rows) {
    const auto never = [&](const char* text, Expr seen, const Facts& facts) {
      return facts_.AddNever(name, text, seen, facts,
                             fmt::format("{} may be seen", facts_.Text(seen)));
    };
    Facts facts = before.extents;
    for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
    bool all = true;
    if (const MovedRows left = MovedRows::InFrontOf(rows); !left.empty()) {
      const Expr seen = left.Theirs(twins_.Normal(before.visible, facts), facts, kKeys);
      all &= never("shows no query a key that has left, in the source either", seen,
                   left.Extents(facts, kKeys));
    }
    if (const MovedRows free = MovedRows::Behind(rows); !free.empty()) {
      const Facts slots = free.Slots(facts, kKeys);
      const Expr mine = twins_.Translate(after.visible, pool_.Index(0), slots);
      all &= never("shows no query a slot without a row", free.Mine(mine, facts, kKeys),
                   free.Extents(facts, kKeys));
    }
    return all;
  }

  // As many sequences, heads and tokens, and heads of the same sizes; and nothing is broadcast.
  // Empty if it is so.
  std::string OtherExtents(const AttentionReading& before, const AttentionReading& after) {
    constexpr const char* kNames[] = {"sequences", "query heads", "queries", "keys", "elements"};
    const auto is_same = [&](Expr mine, Expr theirs) {
      return equality_.Equal(twins_.Extent(mine, pool_.Index(0)), twins_.Normal(theirs, Facts{}),
                             pool_.True(), Facts{});
    };
    for (size_t k = 0; k < std::size(kNames); ++k) {
      const Expr mine = after.extents.extents[k], theirs = before.extents.extents[k];
      if (k == kKeys || is_same(mine, theirs)) continue;
      return fmt::format("it has {} {} instead of {}", facts_.Text(mine), kNames[k],
                         facts_.Text(theirs));
    }
    if (!is_same(after.size_of_value, before.size_of_value)) {
      return "its values are of another size";
    }
    for (const auto& [x, y] : after.equal_extents) {
      if (x == y) continue;
      const Expr a = twins_.Extent(x, pool_.Index(0)), b = twins_.Extent(y, pool_.Index(0));
      if (equality_.Equal(a, b, pool_.True(), Facts{})) continue;
      // The relation says of such an axis that it holds the same for all (a tree mask's heads).
      if (a != nullptr && a->is_integer(1) && x->kind() == sym::Kind::kDim) continue;
      return fmt::format("an operand of extent {} may be broadcast to {}", facts_.Text(x),
                         facts_.Text(y));
    }
    return "";
  }

  // What the keys that are hidden are hidden by, unless it is -inf on both sides. False if a query
  // is left without a key, whatever the host feeds; not told of keys that are moved.
  bool RestOnHiding(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const Facts& facts, bool moved) {
    if (before.nan_guard) twins_.RestOn(ScoresAreNumbers(name));
    const bool finite = !before.hidden_by.empty() || !after.hidden_by.empty();
    if (finite) {
      for (const std::set<double>* numbers : {&before.hidden_by, &after.hidden_by}) {
        if (!numbers->empty()) twins_.RestOn(ScoresAreNear(name, *numbers));
      }
      twins_.RestOnLemma(lemmas::kFiniteMinimum);
    }
    const bool cleared = before.is_operator || before.nan_guard;
    if (cleared && !finite) return true;
    const Expr visible = twins_.Normal(before.visible, facts);
    if (SeesAKey(pool_, visible, facts)) return true;
    const std::string unseen =
        moved ? ""
              : QueryWithoutKeys(pool_, visible, twins_.past(), facts.extents[kKeys - 1],
                                 facts.extents[kKeys]);
    if (!unseen.empty()) {
      facts_.Add(name, "leaves each query a key", "there is none: " + unseen);
      return false;
    }
    twins_.RestOn({AssumptionKind::kVisibleKey, name,
                   fmt::format("each query of {} sees a key", name), AssumptionSource::kHost});
    return true;
  }

  // rows: the keys that are looked at, where the source has them in another order.
  bool CompareKeys(const std::string& name, const AttentionReading& before,
                   const AttentionReading& after, const MovedRows* rows) {
    const Expr sequence = pool_.Index(0);
    const auto own = [&](Expr e, const Facts& where) {
      if (rows == nullptr) return twins_.Translate(e, sequence, where);
      return rows->Mine(twins_.Translate(e, sequence, rows->Slots(where, kKeys)), where, kKeys);
    };
    const auto other = [&](Expr e, const Facts& where) {
      const Expr theirs = twins_.Normal(e, where);
      return rows == nullptr ? theirs : rows->Theirs(theirs, where, kKeys);
    };
    const auto looked = [&](const Facts& where) {
      return rows == nullptr ? where : rows->Extents(where, kKeys);
    };
    Facts facts = before.extents;
    for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
    Facts values = facts;
    values.extents[4] = before.size_of_value;
    const Expr mine = own(after.visible, facts), theirs = other(before.visible, facts);
    // Keys that no query sees do not matter.
    const Expr seen = mine == nullptr ? pool_.True() : pool_.And(mine, theirs);
    const auto compare = [&](const std::string& text, Expr x, Expr y, Expr known,
                             const Facts& where) {
      return facts_.AddEqual(name, text, own(x, where), other(y, where), known, looked(where));
    };
    for (const AttentionReading* reading : {&before, &after}) twins_.RestOn(reading->grounds);
    const char* queries = "reads the source's queries";
    const std::string other_extents = OtherExtents(before, after);
    bool all =
        other_extents.empty() && compare(queries, after.query, before.query, pool_.True(), facts);
    if (!other_extents.empty()) facts_.Add(name, queries, other_extents);
    all &= compare("reads the source's keys, each head those of its group", after.key, before.key,
                   seen, facts);
    all &= compare("reads the source's values", after.value, before.value, seen, values);
    all &= RestOnHiding(name, before, after, facts, rows != nullptr);
    const Expr shown = rows == nullptr ? VisibleWhereThereAreKeys(twins_, equality_, pool_, mine,
                                                                  after, looked(facts))
                                       : mine;
    all &= facts_.AddEqual(name, "shows each query the source's keys", shown, theirs, pool_.True(),
                           looked(facts));
    if (rows == nullptr) all &= HidesRest(name, before, after, facts);
    std::vector<Expr> added, theirs_added;
    for (Expr e : after.bias) added.push_back(own(e, facts));
    for (Expr e : before.bias) theirs_added.push_back(other(e, facts));
    for (Expr e : theirs_added) {
      if (e == nullptr || !RoundsScoresAway(e)) continue;
      facts_.Add(name, "adds numbers beside which scores keep their bits", sym::ToString(e));
      all = false;
    }
    all &= SameBias(name, added, std::move(theirs_added), seen, looked(facts));
    const bool scaled = AreOneScale(after.scale, before.scale);
    const bool capped =
        before.softcap == after.softcap || AreOneScale(after.softcap, before.softcap);
    const bool typed = before.softmax_type == after.softmax_type;
    const auto numbers = [](const AttentionReading& r) {
      return fmt::format("scale {}, softcap {} and a softmax in {}", r.scale, r.softcap,
                         ElementTypeName(r.softmax_type));
    };
    const char* what = "has the source's scale, softcap and precision of the softmax";
    const std::string why_not =
        scaled && capped && typed
            ? ""
            : fmt::format("{} instead of {}", numbers(after), numbers(before));
    if (AreOtherScales(after.scale, before.scale) ||
        AreOtherScales(after.softcap, before.softcap)) {
      facts_.AddRefuted(name, what, why_not);
    } else {
      facts_.Add(name, what, why_not);
    }
    return all && scaled && capped && typed;
  }

  // What is added to the scores of keys that are seen; in any order.
  bool SameBias(const std::string& name, const std::vector<Expr>& added, std::vector<Expr> open,
                Expr seen, const Facts& facts) {
    if (added.empty() && open.empty()) return true;
    std::string why_not;
    for (Expr mine : added) {
      const auto same = std::find_if(open.begin(), open.end(), [&](Expr theirs) {
        return equality_.Equal(mine, theirs, seen, facts);
      });
      if (same == open.end()) {
        why_not = fmt::format("{} is none of the source's", facts_.Text(mine));
        break;
      }
      open.erase(same);
    }
    if (why_not.empty() && !open.empty()) {
      why_not = fmt::format("{} is not added", facts_.Text(open.front()));
    }
    facts_.Add(name, "adds the source's bias to its scores", why_not);
    return why_not.empty();
  }

  // The capacity of the cache that an expression reads; null if it reads none.
  Expr CapacityOf(Expr e) {
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId past = pair_.After(cache.input);
      for (ValueId source : sym::SourcesOf(e)) {
        if (source == past) return forms_.Of(past).shape[static_cast<size_t>(cache.axis)];
      }
    }
    return nullptr;
  }

  // Keys that the source does not even have.
  bool HidesRest(const std::string& name, const AttentionReading& before,
                 const AttentionReading& after, const Facts& facts) {
    const Expr end = twins_.Normal(before.extents.extents[3], Facts{});
    if (end == CapacityOf(after.key)) return true;
    // i3 counts from there on.
    Facts behind = facts;
    behind.extents[3] = nullptr;
    const Expr seen = VisibleBehind(twins_, pool_, after, end, behind);
    const bool hidden = seen != nullptr && seen->is_integer(0);
    const bool ends = twins_.Translate(after.extents.extents[3], pool_.Index(0), Facts{}) == end;
    const char* text = "shows no query a key behind the source's last";
    twins_.RestOnLemma(lemmas::kHiddenKeys);
    if (!hidden && !ends) {
      return facts_.AddNever(name, text, seen, behind,
                             fmt::format("{} may be seen", facts_.Text(seen)));
    }
    facts_.Add(name, text, "");
    return true;
  }

  void ProveOutput(const ManifestOutput& output) {
    const ValueId mine = pair_.After(output.name);
    const ValueId theirs = pair_.Before(output.source.empty() ? output.name : output.source);
    StartFactsOf(theirs);
    const char* text = "outside the attentions, the source's operators over the source's values";
    const Sameness same = nodes_.Compare(mine, theirs);
    const Grounds grounds = twins_.TakeGrounds();
    if (same == Sameness::kWhole && !grounds.doubted) {
      twins_.RestOn(grounds);
      facts_.Add(output.name, text, "");
    } else if (same == Sameness::kInCommon && !grounds.doubted) {
      facts_.Add(output.name, text, "it is not seen to have the source's extents");
    } else if (const auto first = matches_.FirstUnlike(mine); first.refuted) {
      facts_.AddRefuted(output.name, text, first.text);
    } else {
      facts_.Add(output.name, text, first.text);
    }
  }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Manifest& relation_;
  const std::vector<LengthClaim>& claims_;
  const SourceCase& steps_;
  Correspondence twins_;
  Equality equality_;
  FactList facts_;
  CacheFacts cache_facts_;
  Nodes nodes_;
  Matches matches_;
  absl::flat_hash_map<int64_t, std::vector<SourceAttention>> source_attentions_;  // by heads
  absl::flat_hash_map<ValueId, absl::flat_hash_set<ValueId>> behind_;  // by what stands in front
};

}  // namespace

Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps, const std::vector<Seam>& seams,
                Obligations* obligations) {
  Proof proof;
  for (const bool lengths : {true, false}) {
    const PlainModel plain = AsPlain(before, lengths), mine = AsPlain(after, lengths);
    const auto pair = GraphPair::Create(plain.model, mine.model, relation);
    if (!pair.ok()) {
      proof.not_tried = std::string(pair.status().message());
      return proof;
    }
    Prover prover(*pair, relation, plain.claims, steps, obligations);
    if (prover.ClaimsHold()) return prover.Run(seams);
  }
  return proof;
}

}  // namespace kvlift
