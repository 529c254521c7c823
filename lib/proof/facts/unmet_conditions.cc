#include "proof/facts/unmet_conditions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/facts/needs.h"
#include "proof/lemmas/longest_sequence.h"
#include "proof/lemmas/names.h"
#include "proof/reading/read_attention.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

namespace {

class ConditionReader {
 public:
  ConditionReader(const GraphPair& pair, const Correspondence& twins, Equality& equality)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality) {}

  UnmetConditions Run() {
    for (const sym::FormAssumption& assumption : forms_.assumptions()) {
      if (pair_.IsInAfter(assumption.node)) continue;
      for (Expr part : sym::ConjunctsOf(assumption.predicate)) {
        known_.insert(twins_.Normal(part, Facts{}));
        known_of_all_.insert(OfAllPlaces(twins_.Normal(part, Facts{})));
        if (assumption.reason == sym::AssumptionReason::kCountsUp) {
          NoteCountingVector(twins_.Normal(part, Facts{}));
        }
      }
    }
    // Nodes that a runtime need not run enforce nothing.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsInAfter(n) || !pair_.IsNeeded(n)) continue;
      if (const Expr fits = MaskFits(n); fits != nullptr) {
        known_.insert(twins_.Normal(fits, Facts{}));
      }
      if (const std::optional<ValidKeys> valid = ValidKeysOf(n)) {
        for (const Expr fits : valid->conditions) known_.insert(twins_.Normal(fits, valid->facts));
      }
      for (const Need& need : NeedsOf(forms_, n)) {
        if (!need.condition->has_index()) known_.insert(twins_.Normal(need.condition, Facts{}));
      }
    }
    std::vector<std::pair<NodeId, std::optional<Write>>> writes;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsInAfter(n) || !graph_.Is(n, "TensorScatter")) continue;
      writes.emplace_back(n, WriteOf(n));
      if (writes.back().second && WritesCache(n, writes.back().second->axis)) {
        const Expr written = Written(*writes.back().second);
        if (written != nullptr) written_ = pool_.And(written_, written);
      }
    }
    source_fits_ = twins_.SourceFits();
    for (const sym::FormAssumption& assumption : forms_.assumptions()) {
      if (!pair_.IsInAfter(assumption.node)) continue;
      for (Expr part : sym::ConjunctsOf(assumption.predicate)) {
        if (assumption.reason == sym::AssumptionReason::kFinite ||
            assumption.reason == sym::AssumptionReason::kDeclared) {
          continue;
        }
        const bool of_index = assumption.reason == sym::AssumptionReason::kInside;
        const bool shown = part->has_index() ? HoldsAtAllPlaces(part, of_index) : Holds(part);
        if (!shown) Add(assumption.node, assumption.text);
      }
    }
    for (const auto& [n, write] : writes) ReadWrite(n, write);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsInAfter(n) && !IsOfSource(n)) ReadNeeds(n);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsInAfter(n)) continue;
      const Expr fits = MaskFits(n);
      if (fits != nullptr && !Holds(fits)) {
        Add(n, fmt::format("{} (the mask has no more columns than there are keys)", Text(fits)));
      }
      ReadValid(n);
    }
    return std::move(found_);
  }

 private:
  void Add(NodeId n, const std::string& what) {
    found_.emplace_back(pair_.NameOf(graph_.outputs(n)[0]),
                        fmt::format("it is not shown that {}", what));
  }

  bool Holds(Expr condition) { return Holds(condition, pool_.Index(0), Facts{}); }

  // Returns true if the condition holds for all indices within the extents in `own`.
  bool Holds(Expr condition, Expr sequence, const Facts& own) {
    Facts facts = own;
    for (Expr& extent : facts.extents) extent = twins_.Extent(extent, sequence);
    Expr mine = twins_.Translate(condition, sequence, facts);
    if (mine == nullptr) return false;
    if (OfEachSequence(mine, sequence, facts)->is_integer(1)) return true;
    mine = AtLongest(pool_, Counted(mine, facts));
    if (mine->is_integer(1) || known_.contains(mine) || HoldsForNonEmptyStep(forms_, mine))
      return true;
    return Follows(pool_.And(twins_.Fits(), written_), mine, facts);
  }

  // Adds a vector of which the source's operators require v[i] == v[0] + i.
  void NoteCountingVector(Expr counts_up) {
    const auto loads = sym::LoadsOf(counts_up);
    for (Expr load : loads) {
      for (size_t axis = 0; axis < load->args().size(); ++axis) {
        const Expr index = load->args()[axis];
        if (index->kind() != sym::Kind::kIndex) continue;
        std::vector<Expr> args(load->args().begin(), load->args().end());
        args[axis] = pool_.Integer(0);
        const Expr first = pool_.Load(load->source(), args);
        if (pool_.Eq(load, pool_.Add(first, index), Facts{}) == counts_up) {
          counting_.emplace_back(first, axis);
        }
      }
    }
  }

  // Returns a condition in which each element of a vector that counts up is its first element plus
  // its place. Places outside of the vector are those of operators that do not run.
  Expr Counted(Expr condition, const Facts& facts) {
    sym::Pool::Substitution s;
    for (Expr load : sym::LoadsOf(condition)) {
      for (const auto& [first, axis] : counting_) {
        if (load->source() != first->source()) continue;
        std::vector<Expr> args(load->args().begin(), load->args().end());
        const Expr place = std::exchange(args[axis], pool_.Integer(0));
        if (pool_.Load(load->source(), args) == first) s.atoms[load] = pool_.Add(first, place);
      }
    }
    return s.atoms.empty() ? condition : pool_.Substitute(condition, s, facts);
  }

  // Returns a condition about `sequence` in which each maximum over the sequences that the source
  // computes is the number of that sequence plus some k >= 0.
  Expr OfEachSequence(Expr condition, Expr sequence, const Facts& facts) {
    if (facts.extents.empty() || facts.extents[0] == nullptr) return condition;
    sym::Pool::Substitution s;
    for (Expr load : sym::LoadsOf(condition)) {
      const NodeId n = graph_.producer(load->source());
      const ValueId numbers = n == kNoNode ? kNoValue : LargestOf(forms_, n);
      if (numbers == kNoValue || forms_.Of(numbers).shape[0] != facts.extents[0]) continue;
      const Expr own = forms_.At(numbers, {sequence}, facts);
      if (own != nullptr) s.atoms[load] = pool_.Add(own, MoreOfLongest(forms_, n));
    }
    if (s.atoms.empty()) return condition;
    twins_.RestOnLemma(lemmas::kLongestSequence);
    return pool_.Substitute(condition, s, facts);
  }

  // Returns true if the condition about each element of inputs holds, or is one of the source's.
  // `of_index`: it says that an index lies inside; where sizes alone decide, the ledger says so.
  bool HoldsAtAllPlaces(Expr condition, bool of_index) {
    const Expr mine = twins_.Translate(condition, pool_.Index(0), Facts{});
    if (mine == nullptr) return false;
    if (sym::LoadsOf(mine).empty()) return mine->has_index() ? of_index : Holds(condition);
    if (forms_.ProveByRanges(mine, Facts{}) == sym::Truth::kYes) return true;
    return known_of_all_.contains(OfAllPlaces(mine));
  }

  // Returns a condition about the elements of inputs without saying which: a condition of an
  // operator is one of all elements.
  Expr OfAllPlaces(Expr condition) {
    sym::Pool::Substitution s;
    for (Expr load : sym::LoadsOf(condition)) {
      const std::vector<Expr> none(load->args().size(), pool_.Integer(0));
      s.atoms[load] = pool_.Load(load->source(), none);
    }
    return pool_.Substitute(condition, s, Facts{});
  }

  // Returns true if a condition in the source's sizes follows from `fits`, or from that together
  // with the bounds that the source's operators need.
  bool Follows(Expr fits, Expr condition, const Facts& facts) {
    return equality_.Follows(fits, condition, facts) ||
           equality_.Follows(pool_.And(fits, source_fits_), condition, facts);
  }

  // Returns true if the source has the same node with the same operands: it refuses whatever this
  // one does.
  bool IsOfSource(NodeId n) {
    const auto results = graph_.outputs(n);
    return !results.empty() && std::all_of(results.begin(), results.end(), [&](ValueId result) {
      if (result == kNoValue) return true;
      const ValueId theirs = twins_.TwinOf(result);
      if (theirs == kNoValue) return false;
      twins_.TakeGrounds();
      return twins_.TwinSameness(result, theirs) == Sameness::kWhole &&
             !twins_.TakeGrounds().doubted;
    });
  }

  void ReadNeeds(NodeId n) {
    for (ValueId result : graph_.outputs(n)) {
      if (result == kNoValue || TellsExtents(forms_, result, forms_.Of(result))) continue;
      Add(n, fmt::format("{} runs", graph_.node(n).op_type()));
    }
    if (graph_.Is(n, "Attention")) {
      ReadAttentionNeeds(n);
    } else if (!StatesAllNeeds(forms_, n)) {
      Add(n, fmt::format("{} runs", graph_.node(n).op_type()));
    }
    for (const Need& need : NeedsOf(forms_, n)) {
      const Expr sequence = twins_.SequenceOf(need.facts.extents, need.facts);
      if (!Holds(need.condition, sequence, need.facts)) Add(n, need.text);
    }
  }

  // Checks that the operands of an Attention have the extents that the operator asks for.
  void ReadAttentionNeeds(NodeId n) {
    const int64_t mode = IntAttribute(graph_.node(n), "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) {
      return Add(n, fmt::format("Attention has a qk_matmul_output_mode {}", mode));
    }
    const AttentionReading reading = ReadAttention(forms_, graph_.outputs(n)[0]);
    if (!reading.why_not.empty()) {
      return Add(n, fmt::format("Attention runs ({})", reading.why_not));
    }
    for (const auto& [x, y] : reading.equal_extents) {
      if (!MayDiffer(pair_, twins_, equality_, reading, x, y) || IsSame(x, y)) continue;
      Add(n, fmt::format("{} == {} (Attention)", Text(x), Text(y)));
    }
  }

  // Returns true if the node writes into a cache, perhaps behind other writes or with its axes in
  // another order. The relation says that its rows lie inside.
  bool WritesCache(NodeId n, size_t axis) {
    ValueId buffer = graph_.inputs(n)[0];
    for (NodeId maker = graph_.producer(buffer);
         maker != kNoNode && graph_.Is(maker, "TensorScatter"); maker = graph_.producer(buffer)) {
      buffer = graph_.inputs(maker)[0];
    }
    return twins_.IsPast(buffer) || HasSlotsOfPast(buffer, axis);
  }

  // Returns true if a value holds the elements of a past, and if `axis`, which is written along, is
  // a whole axis of it.
  bool HasSlotsOfPast(ValueId buffer, size_t axis) {
    const sym::Form form = forms_.Of(buffer);
    if (!form.known_rank || form.element->kind() != sym::Kind::kLoad) return false;
    const ValueId past = form.element->source();
    if (!twins_.IsPast(past) || axis >= form.shape.size()) return false;
    const auto args = form.element->args();
    const auto slot =
        std::find(args.begin(), args.end(), pool_.Index(static_cast<int>(axis))) - args.begin();
    return slot < std::ssize(args) &&
           IsSame(form.shape[axis], forms_.Of(past).shape[static_cast<size_t>(slot)]);
  }

  // The operands of a TensorScatter; nullopt if their ranks do not fit.
  struct Write {
    std::vector<Expr> buffer, rows;
    size_t axis = 0;
    ValueId index = kNoValue;  // kNoValue: the write begins at slot 0
    bool linear = true;
  };

  std::optional<Write> WriteOf(NodeId n) {
    const auto inputs = graph_.inputs(n);
    const sym::Form buffer = forms_.Of(inputs[0]), rows = forms_.Of(inputs[1]);
    if (!buffer.known_rank || !rows.known_rank || buffer.shape.size() != rows.shape.size()) {
      return std::nullopt;
    }
    const auto rank = static_cast<int64_t>(buffer.shape.size());
    int64_t axis = IntAttribute(graph_.node(n), "axis", -2);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
    return Write{buffer.shape, rows.shape, static_cast<size_t>(axis),
                 inputs.size() < 3 ? kNoValue : inputs[2],
                 StringAttribute(graph_.node(n), "mode", "linear") == "linear"};
  }

  // Returns the condition that the rows of a write lie inside its buffer; TensorScatter refuses
  // other writes. Null if the condition is not known in the source's terms.
  Expr Written(const Write& write) {
    if (!write.linear) return pool_.True();
    const Expr sequence = pool_.Index(0);
    const Expr first =
        write.index == kNoValue
            ? pool_.Integer(0)
            : twins_.Translate(forms_.At(write.index, {sequence}, Facts{}), sequence, Facts{});
    const Expr slots = twins_.Extent(write.buffer[write.axis], sequence);
    const Expr length = twins_.Extent(write.rows[write.axis], sequence);
    if (first == nullptr || slots == nullptr || length == nullptr) return nullptr;
    return pool_.And(pool_.Le(pool_.Integer(0), first, Facts{}),
                     pool_.Le(pool_.Add(first, length), slots, Facts{}));
  }

  // The number of keys of an Attention; null if it is not known.
  Expr KeysOf(NodeId n) {
    constexpr size_t kKey = 1, kPastKey = 4;
    const auto inputs = graph_.inputs(n);
    const sym::Form key = forms_.Of(inputs[kKey]);
    if (!key.known_rank || key.shape.size() < 3) return nullptr;
    const Expr keys = key.shape[key.shape.size() == 4 ? 2 : 1];
    if (inputs.size() <= kPastKey || inputs[kPastKey] == kNoValue) return keys;
    const sym::Form past = forms_.Of(inputs[kPastKey]);
    if (!past.known_rank || past.shape.size() != 4) return nullptr;
    return pool_.Add(keys, past.shape[2]);
  }

  // The conditions that an Attention's numbers of valid keys lie between 0 and the number of keys;
  // others are refused.
  struct ValidKeys {
    bool known = false;  // false: the conditions are not known
    std::vector<Expr> conditions;
    Facts facts;  // of i0, the sequence
  };

  // Returns nullopt if the node is no Attention, or is not given these numbers.
  std::optional<ValidKeys> ValidKeysOf(NodeId n) {
    constexpr size_t kValid = 6;
    const auto inputs = graph_.inputs(n);
    if (!graph_.Is(n, "Attention") || inputs.size() <= kValid || inputs[kValid] == kNoValue) {
      return std::nullopt;
    }
    ValidKeys result;
    const sym::Form valid = forms_.Of(inputs[kValid]);
    const Expr keys = KeysOf(n);
    if (!valid.known_rank || valid.shape.size() != 1 || keys == nullptr) return result;
    result.known = true;
    result.facts.extents = {valid.shape[0]};
    const Expr number = forms_.At(inputs[kValid], {pool_.Index(0)}, result.facts);
    result.conditions = {pool_.Le(pool_.Integer(0), number, result.facts),
                         pool_.Le(number, keys, result.facts)};
    return result;
  }

  void ReadValid(NodeId n) {
    const std::optional<ValidKeys> valid = ValidKeysOf(n);
    if (!valid) return;
    if (!valid->known) return Add(n, "there are as many keys as are said to be valid");
    for (const Expr fits : valid->conditions) {
      if (Holds(fits, pool_.Index(0), valid->facts)) continue;
      Add(n, fmt::format("{} (the number of valid keys)", Text(fits)));
    }
  }

  // The condition that an Attention's mask is no wider than there are keys; wider masks are
  // refused. Null for other operators, without a mask, and if a rank is not known.
  Expr MaskFits(NodeId n) {
    constexpr size_t kMask = 3;
    const auto inputs = graph_.inputs(n);
    if (!graph_.Is(n, "Attention") || inputs.size() <= kMask || inputs[kMask] == kNoValue) {
      return nullptr;
    }
    const sym::Form mask = forms_.Of(inputs[kMask]);
    const Expr keys = KeysOf(n);
    if (!mask.known_rank || mask.shape.empty() || keys == nullptr) return nullptr;
    return pool_.Le(mask.shape.back(), keys, Facts{});
  }

  bool IsSame(Expr mine, Expr other) {
    if (mine == other) return true;
    return Holds(pool_.Eq(mine, other, Facts{}));
  }

  // Checks that the rows of a write have the buffer's other extents, and that there is one write
  // index for each sequence.
  void ReadWrite(NodeId n, const std::optional<Write>& write) {
    if (!write) return Add(n, "what is written has the buffer's rank");
    for (size_t k = 0; k < write->rows.size(); ++k) {
      if (k != write->axis && !IsSame(write->buffer[k], write->rows[k])) {
        Add(n, fmt::format("{} == {} (axis {} of what is written)", Text(write->rows[k]),
                           Text(write->buffer[k]), k));
      }
    }
    if (!WritesCache(n, write->axis)) {
      const Expr fits = Written(*write);
      if (fits == nullptr || !Follows(twins_.Fits(), fits, Facts{})) {
        Add(n, "the rows that are written lie inside the buffer");
      }
    }
    if (write->index == kNoValue) return;
    const sym::Form index = forms_.Of(write->index);
    if (!index.known_rank || index.shape.size() != 1 || !IsSame(index.shape[0], write->buffer[0])) {
      Add(n, "there is one write index for each sequence");
    }
  }

  std::string Text(Expr e) const { return sym::ToString(e, &graph_); }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
  absl::flat_hash_set<Expr> known_;  // conditions that the source's operators enforce as well
  absl::flat_hash_set<Expr> known_of_all_;  // those about elements of inputs (OfAllPlaces)
  // Vectors that count up along one axis, by their first element.
  std::vector<std::pair<Expr, size_t>> counting_;
  Expr written_ = pool_.True();      // the rows of all writes lie inside their buffers
  Expr source_fits_ = pool_.True();  // bounds that the source's operators need
  UnmetConditions found_;
};

}  // namespace

bool EntersLedger(const sym::FormAssumption& assumption) {
  return assumption.reason == sym::AssumptionReason::kFinite ||
         assumption.reason == sym::AssumptionReason::kDeclared ||
         (assumption.reason == sym::AssumptionReason::kInside && assumption.predicate->has_index());
}

bool HoldsForNonEmptyStep(sym::Forms& forms, Expr condition) {
  sym::Pool& pool = forms.pool();
  for (const sym::DimSymbol& name : sym::DimsOf(condition)) {
    if (condition == pool.Lt(pool.Integer(0), pool.Dim(name), Facts{})) {
      return forms.OriginOf(name).has_value();
    }
  }
  return false;
}

bool HoldsInEveryStep(sym::Forms& forms, Expr condition, Expr past) {
  if (!sym::SourcesOf(condition).empty()) return false;
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution some;
  for (const sym::DimSymbol& name : sym::DimsOf(condition)) {
    if (!forms.OriginOf(name) || (past != nullptr && sym::ContainsDim(past, name))) continue;
    some.dims[name] = pool.Internal("at least one " + name.name(), 1);
  }
  return pool.Prove(pool.Substitute(condition, some, Facts{}), Facts{}) == sym::Truth::kYes;
}

UnmetConditions UnmetConditionsOf(const GraphPair& pair, const Correspondence& twins,
                                  Equality& equality) {
  return ConditionReader(pair, twins, equality).Run();
}

bool MayDiffer(const GraphPair& pair, const Correspondence& twins, Equality& equality,
               const AttentionReading& after, Expr x, Expr y) {
  if (x == y) return false;
  sym::Pool& pool = pair.forms().pool();
  const Expr a = twins.Extent(x, pool.Index(0)), b = twins.Extent(y, pool.Index(0));
  if (equality.Equal(a, b, pool.True(), Facts{})) return false;
  if (x->kind() != sym::Kind::kDim) return true;
  const bool is_one = a != nullptr && a->is_integer(1);
  return !is_one && !(y == after.extents.extents[0] && twins.IsOnePerSequence(x->dim()));
}

bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after) {
  if (after.valid == nullptr) return false;
  sym::Pool& pool = pair.forms().pool();
  const Expr valid = twins.Translate(after.valid, pool.Index(0), Facts{});
  const Expr keys = twins.Extent(after.extents.extents[3], pool.Index(0));
  if (valid == nullptr || keys == nullptr) return false;
  const Expr more = pool.Sub(valid, keys);
  return more->kind() == sym::Kind::kInteger && more->value() > 0;
}

}  // namespace kvlift
