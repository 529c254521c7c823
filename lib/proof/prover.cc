#include "proof/prover.h"

#include <algorithm>
#include <cmath>

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
#include "proof/matches.h"
#include "proof/misfits.h"
#include "proof/moved_rows.h"
#include "proof/nodes.h"
#include "proof/pair.h"
#include "proof/plain.h"
#include "proof/stacking.h"

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
        facts_(forms_, relation, equality_),
        cache_facts_(pair, steps, twins_, &facts_),
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
    equality_.Suppose(GuardsOf(pair_, twins_));
    // In topological order: what a node reads has its twin before it is looked at.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsOfAfter(n)) continue;
      if (const auto it = writes.find(n); it != writes.end()) {
        cache_facts_.Prove(*it->second);
      } else if (!graph_.Is(n, "Attention") || !ProveAttention(n)) {
        matches_.Match(n);
      }
    }
    for (const ManifestOutput& output : relation_.outputs) {
      if (output.as != "cache") ProveOutput(output);
    }
    for (const auto& [value, text] : MisfitsOf(pair_, twins_)) {
      facts_.Add(value, "has operands that fit each other", fmt::format("{} is not so", text));
    }
    for (const Seam& seam : seams) {
      facts_.Add(seam.after_out,
                 "leaves its layer as it is in the source, as large as what entered",
                 BrokenSeam(seam, pair_, twins_, &nodes_));
    }
    return facts_.Take(steps_.text);
  }

 private:
  bool ReadsPast(Expr e) const {
    for (ValueId source : sym::SourcesOf(e)) {
      for (const ManifestCache& cache : relation_.caches) {
        if (source == pair_.After(cache.input)) return true;
      }
      const ValueId kept = KeptAs(graph_, source);
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
      ProveSame(name, result, theirs, ReadAttention(forms_, theirs), after);
      return true;
    }
    // The source calls it by another name: one that is not taken yet, and the first if none fits.
    const auto extents = after.extents.extents;
    const bool counted = extents.size() > 1 && extents[1]->kind() == sym::Kind::kInteger;
    const int64_t heads = counted ? extents[1]->value() : 0;
    const size_t facts = facts_.size();
    std::vector<ValueId> free;
    for (ValueId other : SourceAttentions(heads)) {
      if (free.size() < kMostTried && !matches_.IsTaken(other)) free.push_back(other);
    }
    for (ValueId other : free) {
      facts_.Shorten(facts);
      if (ProveSame(name, result, other, ReadAttention(forms_, other, heads), after)) return true;
    }
    if (free.empty()) {
      facts_.Add(name, "is the source's attention", "the source has no value of this name");
    } else if (free.size() > 1) {
      facts_.Shorten(facts);
      ProveSame(name, result, free[0], ReadAttention(forms_, free[0], heads), after);
    }
    return true;
  }

  bool ProveSame(const std::string& name, ValueId mine, ValueId theirs,
                 const AttentionReading& before, const AttentionReading& after) {
    twins_.TakeDoubt();
    bool proved = false;
    if (std::string why = !after.why_not.empty() ? after.why_not : before.why_not; !why.empty()) {
      facts_.Add(name, "is the source's attention", why);
    } else if (LacksKeys(pair_, twins_, after)) {
      facts_.Add(name, "is the source's attention", "its valid length is beyond its keys");
    } else {
      proved = CompareGroups(name, before, after);
    }
    const bool doubted = twins_.TakeDoubt() || !proved;
    const int64_t groups = GroupsOf(before, after).value_or(1);
    if (before.joined != after.joined) {
      // Heads that are rows are not told apart in what is joined.
      const Expr size = before.joined ? before.size_of_value : after.size_of_value;
      const bool plain = groups == 1 && forms_.Of(before.joined ? mine : theirs).shape.size() == 4;
      if (plain) twins_.SetJoinedTwin(mine, theirs, size, doubted);
    } else if (forms_.Of(theirs).shape.size() == 3 && forms_.Of(mine).shape.size() == 4) {
      twins_.SetFoldedTwin(mine, theirs, after.extents.extents[1]->value(), doubted);
    } else if (groups > 1) {
      twins_.SetStackedTwin(mine, theirs, groups, Tokens(before), doubted);
    } else {
      twins_.SetTwin(mine, theirs, doubted);
    }
    if (!doubted) matches_.Take(theirs);
    return proved;
  }

  // Results of the source's attentions over so many heads.
  const std::vector<ValueId>& SourceAttentions(int64_t heads) {
    const auto [it, fresh] = source_attentions_.try_emplace(heads);
    if (!fresh) return it->second;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsOfAfter(n) || graph_.outputs(n).empty()) continue;
      const ValueId result = graph_.outputs(n)[0];
      const bool reads = result != kNoValue && ReadAttention(forms_, result, heads).why_not.empty();
      if (reads) it->second.push_back(result);
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
    bool all =
        compare("reads the source's queries", after.query, before.query, pool_.True(), facts);
    all &= compare("reads the source's keys, each head those of its group", after.key, before.key,
                   seen, facts);
    all &= compare("reads the source's values", after.value, before.value, seen, values);
    const Expr shown = rows == nullptr ? OfKeysThereAre(mine, theirs, after, looked(facts)) : mine;
    all &= facts_.AddEqual(name, "shows each query the source's keys", shown, theirs, pool_.True(),
                           looked(facts));
    if (rows == nullptr) all &= HidesRest(name, before, after, facts);
    std::vector<Expr> added, theirs_added;
    for (Expr e : after.bias) added.push_back(own(e, facts));
    for (Expr e : before.bias) theirs_added.push_back(other(e, facts));
    all &= SameBias(name, added, std::move(theirs_added), seen, looked(facts));
    const bool scaled = std::abs(before.scale - after.scale) <= 1e-6 * std::abs(before.scale);
    const bool capped = std::abs(before.softcap - after.softcap) <= 1e-6 * before.softcap;
    const bool typed = before.softmax_type == after.softmax_type;
    const auto numbers = [](const AttentionReading& r) {
      return fmt::format("scale {}, softcap {} and a softmax in {}", r.scale, r.softcap,
                         ElementTypeName(r.softmax_type));
    };
    facts_.Add(name, "has the source's scale, softcap and precision of the softmax",
               scaled && capped && typed
                   ? ""
                   : fmt::format("{} instead of {}", numbers(after), numbers(before)));
    return all && scaled && capped && typed;
  }

  // Which keys are seen, if the conversion has fewer than the source: none behind its last.
  Expr OfKeysThereAre(Expr mine, Expr theirs, const AttentionReading& after, const Facts& facts) {
    const Expr end = twins_.Extent(after.extents.extents[3], pool_.Index(0));
    if (mine == nullptr || end == nullptr || end == facts.extents[3] || mine == theirs) return mine;
    const Expr there = pool_.And(mine, pool_.Lt(pool_.Index(3), end, facts));
    return equality_.Equal(there, theirs, pool_.True(), facts) ? there : mine;
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
    sym::Pool::Substitution shift;
    shift.indices = {nullptr, nullptr, nullptr, pool_.Add(pool_.Index(3), end)};
    Expr seen = twins_.Translate(after.visible, pool_.Index(0), Facts{});
    if (seen != nullptr) seen = pool_.Substitute(seen, shift, behind);
    const bool hidden = seen != nullptr && seen->is_integer(0);
    const bool ends = twins_.Translate(after.extents.extents[3], pool_.Index(0), Facts{}) == end;
    const char* text = "shows no query a key behind the source's last";
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
    twins_.TakeDoubt();
    const bool same = mine != kNoValue && theirs != kNoValue && nodes_.SameValue(mine, theirs) &&
                      !twins_.TakeDoubt();
    facts_.Add(output.name,
               "outside the attentions, the source's operators over the source's values",
               same ? "" : matches_.FirstUnlike(mine));
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
  absl::flat_hash_map<int64_t, std::vector<ValueId>> source_attentions_;  // by heads
};

}  // namespace

Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps, const std::vector<Seam>& seams,
                Obligations* obligations) {
  Proof proof;
  for (const bool lengths : {true, false}) {
    const PlainModel plain = AsPlain(before, lengths);
    const auto pair = GraphPair::Create(plain.model, AsPlain(after, lengths).model, relation);
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
