#include "proof/prover.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/attention_reading.h"
#include "proof/branches.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/fact_list.h"
#include "proof/matches.h"
#include "proof/misfits.h"
#include "proof/nodes.h"
#include "proof/pair.h"
#include "proof/plain.h"
#include "proof/stacking.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

constexpr char kRing[] = "rings are run, around their ends, and not proved";
// How many of the source's attentions are held against one of the conversion.
constexpr size_t kMostTried = 8;

class Prover {
 public:
  Prover(const GraphPair& pair, const Manifest& relation, const std::vector<LengthClaim>& claims,
         const SourceCase& steps)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        relation_(relation),
        claims_(claims),
        steps_(steps),
        twins_(pair, relation, claims, steps),
        equality_(forms_),
        facts_(forms_, relation, equality_),
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
    // In topological order: what a node reads has its twin before it is looked at.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsOfAfter(n)) continue;
      if (const auto it = writes.find(n); it != writes.end()) {
        ProveCache(*it->second);
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
  // The source's element at the place that the conversion's layout calls i0, i1, ...
  Expr SourceElement(const ManifestCache& cache, ValueId value, absl::Span<const Expr> at,
                     const Facts& facts) {
    const std::vector<Expr> own = twins_.SourcePlace(pair_.After(cache.input), at);
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank || form.shape.size() != own.size()) return nullptr;
    return twins_.Normal(forms_.At(value, own, facts), facts);
  }

  void ProveCache(const ManifestCache& cache) {
    if (cache.ring) {
      return facts_.Add(cache.id, "slot t mod C holds token t of those that are seen", kRing);
    }
    const std::string same = cache.source.growing
                                 ? "rows [0, P + S) hold what the source's present holds"
                                 : "every row holds what the source's present holds";
    const std::string rest = "rows from P + S on are the past's own";
    const bool window = cache.source.kind == "window";
    if (window && steps_.window != SourceCase::Window::kNone && twins_.past() != nullptr) {
      return ProveWindow(cache);
    }
    const bool shifts = cache.source.kind == "shift";
    if (shifts && !twins_.shifted().empty()) return ProveShift(cache);
    if (cache.grows || window || shifts || (cache.source.growing && twins_.past() == nullptr)) {
      facts_.Add(cache.id, same, "rows of the source move or leave");
      if (cache.source.growing) facts_.Add(cache.id, rest, "rows of the source move or leave");
      return;
    }
    const ValueId present = pair_.After(cache.output);
    const sym::Form form = forms_.Of(present);
    if (!form.known_rank || form.shape.size() != cache.layout.size()) {
      return facts_.Add(cache.id, same, "the present's form is not known");
    }
    const auto axis = static_cast<size_t>(cache.axis);
    const auto batch = cache.layout.find('B');
    std::vector<Expr> at;
    for (size_t k = 0; k < form.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
    const Expr sequence = at[batch];
    Facts facts{form.shape};
    if (cache.source.growing) facts.extents[axis] = twins_.total();
    const Expr mine = twins_.Translate(forms_.At(present, at, facts), sequence, facts);
    const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, facts);
    facts_.AddEqual(cache.id, same, mine, theirs, pool_.True(), facts);
    if (!cache.source.growing) return;
    // i_axis counts from P + S on.
    facts.extents[axis] = nullptr;
    at[axis] = pool_.Add(at[axis], twins_.total());
    const Expr behind = twins_.Translate(Behind(present, at, sequence, facts), sequence, facts);
    facts_.AddEqual(cache.id, rest, behind, Kept(cache, theirs, at, facts), pool_.True(), facts);
  }

  // The source keeps the last rows of what the conversion holds.
  void ProveWindow(const ManifestCache& cache) {
    const ValueId present = pair_.After(cache.output);
    const ValueId theirs = pair_.Before(cache.source.output);
    const sym::Form form = forms_.Of(present);
    const auto axis = static_cast<size_t>(cache.axis), batch = cache.layout.find('B');
    std::vector<Expr> at;
    for (size_t k = 0; k < form.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
    const std::vector<Expr> rows = at;
    Facts facts{form.shape};
    const auto source_axis = static_cast<size_t>(cache.source.axis);
    facts.extents[axis] = twins_.Normal(forms_.Of(theirs).shape[source_axis], Facts{});
    at[axis] = pool_.Add(rows[axis], pool_.Sub(twins_.total(), facts.extents[axis]));
    facts_.AddEqual(cache.id, "the last rows of [0, P + S) hold what the source's present holds",
                    Behind(present, at, rows[batch], facts),
                    SourceElement(cache, theirs, rows, facts), pool_.True(), facts);
    facts.extents[axis] = twins_.past();
    facts_.AddEqual(cache.id, "rows [0, P) are the past's own",
                    Behind(present, rows, rows[batch], facts), SourcePlace(cache, rows),
                    pool_.True(), facts);
    facts.extents[axis] = nullptr;
    at[axis] = pool_.Add(rows[axis], twins_.total());
    facts_.AddEqual(cache.id, "rows from P + S on are the past's own",
                    Behind(present, at, rows[batch], facts), SourcePlace(cache, at), pool_.True(),
                    facts);
  }

  // The source's rows move, the conversion's stay.
  void ProveShift(const ManifestCache& cache) {
    const ValueId present = pair_.After(cache.output);
    const sym::Form form = forms_.Of(present);
    const auto axis = static_cast<size_t>(cache.axis);
    std::vector<Expr> at;
    for (size_t k = 0; k < form.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
    const Expr sequence = pool_.Index(static_cast<int>(cache.layout.find('B')));
    const Facts facts{form.shape};
    const Expr mine = twins_.Translate(forms_.At(present, at, Facts{}), sequence, facts);
    const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, Facts{});
    for (const ShiftedRows& rows : twins_.shifted()) {
      facts_.AddEqual(
          cache.id,
          fmt::format("slot (t + P + S) mod M holds row t of the source's present, of {}",
                      rows.text()),
          rows.Mine(mine, facts, axis), rows.Theirs(theirs, facts, axis), pool_.True(),
          rows.Extents(facts, axis));
    }
  }

  // What a row that is not written keeps: the past at its place, of the sequence of which the
  // source keeps the past's rows.
  Expr Kept(const ManifestCache& cache, Expr theirs, const std::vector<Expr>& at,
            const Facts& facts) {
    const auto axis = static_cast<size_t>(cache.axis), batch = cache.layout.find('B');
    const Expr row = pool_.Index(static_cast<int>(axis));
    if (theirs == nullptr) return SourcePlace(cache, at);
    const Expr old = pool_.Assume(theirs, pool_.Lt(row, twins_.past(), Facts{}), true, facts);
    const auto source_axis = static_cast<size_t>(cache.source.axis);
    const bool moves = old->kind() == sym::Kind::kLoad &&
                       old->source() == pair_.Before(cache.source.input) &&
                       old->args()[source_axis] == row;
    if (!moves) return SourcePlace(cache, at);
    // By the source's axes, of which the batch is the first with another index.
    const Expr whole = SourcePlace(cache, at);
    std::vector<Expr> place(whole->args().begin(), whole->args().end());
    for (size_t k = 0; k < place.size(); ++k) {
      if (place[k] == at[batch]) place[k] = old->args()[k];
    }
    return pool_.Load(old->source(), place);
  }

  // P in the places is the conversion's own write index; its element is looked up with a free
  // index, and only then is the index put behind the new rows.
  Expr Behind(ValueId present, const std::vector<Expr>& at, Expr sequence, const Facts& facts) {
    std::vector<Expr> free;
    for (size_t k = 0; k < at.size(); ++k) free.push_back(pool_.Index(static_cast<int>(k)));
    const Expr e = twins_.Translate(forms_.At(present, free, Facts{}), sequence, Facts{});
    if (e == nullptr) return nullptr;
    sym::Pool::Substitution s;
    s.indices = at;
    return pool_.Substitute(e, s, facts);
  }

  // The source's past at the place that the conversion's layout calls at.
  Expr SourcePlace(const ManifestCache& cache, const std::vector<Expr>& at) {
    const ValueId past = pair_.After(cache.input);
    return twins_.Translate(pool_.Load(past, at), at[cache.layout.find('B')], Facts{});
  }

  bool ReadsPast(Expr e) const {
    return ReadsPastOf(e, [](const ManifestCache&) { return true; });
  }
  bool ReadsRing(Expr e) const {
    return ReadsPastOf(e, [](const ManifestCache& cache) { return cache.ring.has_value(); });
  }
  template <typename Which>
  bool ReadsPastOf(Expr e, Which which) const {
    for (ValueId source : sym::SourcesOf(e)) {
      for (const ManifestCache& cache : relation_.caches) {
        if (source == pair_.After(cache.input) && which(cache)) return true;
      }
      const ValueId kept = KeptAs(graph_, source);
      const bool known = kept != kNoValue && forms_.Of(kept).known_rank;
      if (known && ReadsPastOf(forms_.Of(kept).element, which)) return true;
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
    } else if (ReadsRing(after.key) || ReadsRing(after.value)) {
      facts_.Add(name, "is the source's attention", kRing);
    } else if (LacksKeys(pair_, twins_, after)) {
      facts_.Add(name, "is the source's attention", "its valid length is beyond its keys");
    } else {
      proved = CompareGroups(name, before, after);
    }
    const bool doubted = twins_.TakeDoubt() || !proved;
    const int64_t groups = GroupsOf(before, after).value_or(1);
    if (forms_.Of(theirs).shape.size() == 3 && forms_.Of(mine).shape.size() == 4) {
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
    if (!twins_.ReadsShifted(after.key) && !twins_.ReadsShifted(after.value)) {
      return CompareKeys(name, before, after, nullptr);
    }
    const std::vector<ShiftedRows>& regions = twins_.shifted();
    const Expr slots = regions[0].slots();
    if (twins_.Normal(before.extents.extents[3], Facts{}) != slots ||
        twins_.Extent(after.extents.extents[3], pool_.Index(0)) != slots) {
      facts_.Add(name, "is the source's attention", "it has more keys than the rows that move");
      return false;
    }
    return facts_.ForEach(static_cast<int64_t>(regions.size()), [&](int64_t k) {
      return CompareKeys(name, before, after, &regions[static_cast<size_t>(k)]);
    });
  }

  // rows: the keys that are looked at, where the source has them in another order.
  bool CompareKeys(const std::string& name, const AttentionReading& before,
                   const AttentionReading& after, const ShiftedRows* rows) {
    constexpr size_t kKeys = 3;
    const auto own = [&](Expr e, const Facts& where) {
      return rows == nullptr ? e : rows->Mine(e, where, kKeys);
    };
    const auto other = [&](Expr e, const Facts& where) {
      return rows == nullptr ? e : rows->Theirs(e, where, kKeys);
    };
    const auto looked = [&](const Facts& where) {
      return rows == nullptr ? where : rows->Extents(where, kKeys);
    };
    const Expr sequence = pool_.Index(0);
    Facts facts = before.extents;
    for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
    Facts values = facts;
    values.extents[4] = before.size_of_value;
    const Expr mine = own(twins_.Translate(after.visible, sequence, facts), facts);
    const Expr theirs = other(twins_.Normal(before.visible, facts), facts);
    // Keys that no query sees do not matter.
    const Expr seen = mine == nullptr ? pool_.True() : pool_.And(mine, theirs);
    const auto compare = [&](const std::string& text, Expr x, Expr y, Expr known,
                             const Facts& where) {
      return facts_.AddEqual(name, text, own(twins_.Translate(x, sequence, where), where),
                             other(twins_.Normal(y, where), where), known, looked(where));
    };
    bool all =
        compare("reads the source's queries", after.query, before.query, pool_.True(), facts);
    all &= compare("reads the source's keys, each head those of its group", after.key, before.key,
                   seen, facts);
    all &= compare("reads the source's values", after.value, before.value, seen, values);
    all &= facts_.AddEqual(name, "shows each query the source's keys",
                           OfKeysThereAre(mine, theirs, after, looked(facts)), theirs, pool_.True(),
                           looked(facts));
    all &= HidesRest(name, before, after, facts);
    all &= SameBias(name, before, after, seen, facts, rows);
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
  bool SameBias(const std::string& name, const AttentionReading& before,
                const AttentionReading& after, Expr seen, const Facts& facts,
                const ShiftedRows* rows) {
    constexpr size_t kKeys = 3;
    if (before.bias.empty() && after.bias.empty()) return true;
    std::vector<Expr> open;
    for (Expr e : before.bias) {
      const Expr theirs = twins_.Normal(e, facts);
      open.push_back(rows == nullptr ? theirs : rows->Theirs(theirs, facts, kKeys));
    }
    std::string why_not;
    for (Expr e : after.bias) {
      Expr mine = twins_.Translate(e, pool_.Index(0), facts);
      if (rows != nullptr) mine = rows->Mine(mine, facts, kKeys);
      const auto same = std::find_if(open.begin(), open.end(), [&](Expr theirs) {
        return equality_.Equal(mine, theirs, seen,
                               rows == nullptr ? facts : rows->Extents(facts, kKeys));
      });
      if (same == open.end()) {
        why_not = fmt::format("{} ({}) is none of the source's", facts_.Text(e), facts_.Text(mine));
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
  Nodes nodes_;
  Matches matches_;
  absl::flat_hash_map<int64_t, std::vector<ValueId>> source_attentions_;  // by heads
};

}  // namespace

Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps, const std::vector<Seam>& seams) {
  Proof proof;
  for (const bool lengths : {true, false}) {
    const PlainModel plain = AsPlain(before, lengths);
    const auto pair = GraphPair::Create(plain.model, AsPlain(after, lengths).model, relation);
    if (!pair.ok()) {
      proof.not_tried = std::string(pair.status().message());
      return proof;
    }
    Prover prover(*pair, relation, plain.claims, steps);
    if (prover.ClaimsHold()) return prover.Run(seams);
  }
  return proof;
}

}  // namespace kvlift
