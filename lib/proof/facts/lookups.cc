#include "proof/facts/lookups.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class LookupReader {
 public:
  LookupReader(const GraphPair& pair, const Correspondence& twins, Equality& equality)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality) {}

  UnmetConditions Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsInAfter(n)) continue;
      for (Lookup& lookup : Read(n)) source_.push_back(std::move(lookup));
    }
    fits_ = pool_.And(twins_.Fits(), twins_.SourceFits());
    UnmetConditions found;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsInAfter(n)) continue;
      for (const Lookup& lookup : Read(n)) {
        if (IsInside(lookup)) continue;
        found.emplace_back(
            pair_.NameOf(graph_.outputs(n)[0]),
            fmt::format("{} < {} (index of a {}) is not shown",
                        sym::ToString(lookup.index, &graph_), sym::ToString(lookup.rows, &graph_),
                        graph_.node(n).op_type()));
      }
    }
    return found;
  }

 private:
  // One look-up in the source's terms.
  struct Lookup {
    Expr index = nullptr, rows = nullptr;
    Facts facts;                // the extents of the indices
    Expr numbered = nullptr;    // the index, with the axes it depends on numbered in order
    std::vector<Expr> extents;  // the extents of these axes
  };

  // Returns an empty list for other operators, and if a rank is not known.
  std::vector<Lookup> Read(NodeId n) {
    std::vector<Lookup> found;
    if (graph_.inputs(n).size() < 2) return found;
    const sym::Form table = forms_.Of(graph_.inputs(n)[0]), which = forms_.Of(graph_.inputs(n)[1]);
    if (!table.known_rank || !which.known_rank) return found;
    const bool parts = graph_.Is(n, "GatherND") || graph_.Is(n, "ScatterND");
    if (parts) {
      ReadParts(n, table, which, &found);
    } else if (graph_.Is(n, "Gather") || graph_.Is(n, "GatherElements") ||
               graph_.Is(n, "ScatterElements")) {
      const auto rank = static_cast<int64_t>(table.shape.size());
      int64_t axis = IntAttribute(graph_.node(n), "axis", 0);
      if (axis < 0) axis += rank;
      if (axis < 0 || axis >= rank) return found;
      AddLookup(n, which.element, which.shape, table.shape[static_cast<size_t>(axis)], &found);
    }
    return found;
  }

  // For GatherND and ScatterND: the last axis of the indices holds one index for each axis of the
  // table behind the batch axes.
  void ReadParts(NodeId n, const sym::Form& table, const sym::Form& which,
                 std::vector<Lookup>* found) {
    if (which.shape.empty() || which.shape.back()->kind() != sym::Kind::kInteger) return;
    const auto batch = static_cast<size_t>(IntAttribute(graph_.node(n), "batch_dims", 0));
    const auto width = static_cast<size_t>(which.shape.back()->value());
    const size_t last = which.shape.size() - 1;
    for (size_t k = 0; k < width && batch + k < table.shape.size(); ++k) {
      std::vector<Expr> at, extents(which.shape.begin(), which.shape.end() - 1);
      for (size_t axis = 0; axis < last; ++axis) at.push_back(pool_.Index(static_cast<int>(axis)));
      at.push_back(pool_.Integer(static_cast<int64_t>(k)));
      AddLookup(n, forms_.At(graph_.inputs(n)[1], at, Facts{extents}), extents,
                table.shape[batch + k], found);
    }
  }

  void AddLookup(NodeId n, Expr index, const std::vector<Expr>& extents, Expr rows,
                 std::vector<Lookup>* found) {
    const bool mine = pair_.IsInAfter(n);
    const Expr sequence = pool_.Index(0);
    Lookup lookup;
    for (Expr extent : extents) {
      lookup.facts.extents.push_back(InTermsOfSource(n, extent));
    }
    lookup.index =
        mine ? twins_.Translate(index, sequence, lookup.facts) : twins_.Normal(index, lookup.facts);
    lookup.rows = InTermsOfSource(n, rows);
    if (lookup.index == nullptr || lookup.rows == nullptr) return;
    // An axis of one element has the index 0.
    sym::Pool::Substitution first;
    for (const Expr extent : lookup.facts.extents) {
      const bool one = extent != nullptr && extent->is_integer(1);
      first.indices.push_back(one ? pool_.Integer(0) : nullptr);
    }
    lookup.index = pool_.Substitute(lookup.index, first, lookup.facts);
    Number(&lookup);
    found->push_back(std::move(lookup));
  }

  // Returns true if an index from the end does not reach in front of the first row. Indices that
  // data gives are assumed to count from the front.
  bool IsBehindTheFirst(const Lookup& mine) {
    if (!sym::LoadsOf(mine.index).empty()) return true;
    return HoldsOfEach(mine.index, pool_.True(), [&](Expr index, Expr known) {
      return Holds(pool_.Le(pool_.Neg(mine.rows), index, mine.facts), known, mine.facts);
    });
  }

  bool IsInFront(const Lookup& mine) {
    return HoldsOfEach(mine.index, pool_.True(), [&](Expr index, Expr known) {
      if (Holds(pool_.Lt(index, mine.rows, mine.facts), known, mine.facts)) return true;
      const Expr places = PlacesOf(index);
      return places != nullptr && Holds(pool_.Le(places, mine.rows, Facts{}), known, Facts{});
    });
  }

  // Returns the extent of the axis on which ArgMax, ArgMin or TopK find the place that an index is;
  // null for other indices.
  Expr PlacesOf(Expr index) {
    if (index->kind() != sym::Kind::kLoad) return nullptr;
    const NodeId n = graph_.producer(index->source());
    if (n == kNoNode) return nullptr;
    const bool top = graph_.Is(n, "TopK") && graph_.output_index(index->source()) == 1;
    if (!top && !graph_.Is(n, "ArgMax") && !graph_.Is(n, "ArgMin")) return nullptr;
    const sym::Form searched = forms_.Of(graph_.inputs(n)[0]);
    const auto rank = static_cast<int64_t>(searched.shape.size());
    int64_t axis = IntAttribute(graph_.node(n), "axis", top ? -1 : 0);
    if (axis < 0) axis += rank;
    if (!searched.known_rank || axis < 0 || axis >= rank) return nullptr;
    return InTermsOfSource(n, searched.shape[static_cast<size_t>(axis)]);
  }

  // An extent of a value that the node reads, in the source's terms; null if it has none there.
  Expr InTermsOfSource(NodeId n, Expr extent) {
    return pair_.IsInAfter(n) ? twins_.Extent(extent, pool_.Index(0))
                              : twins_.Normal(extent, Facts{});
  }

  // Returns true if fn holds for each branch of a selected index, given the branch's condition.
  template <typename Fn>
  bool HoldsOfEach(Expr index, Expr known, const Fn& fn) {
    if (index->kind() != sym::Kind::kSelect) return fn(index, known);
    const Expr condition = index->args()[0];
    return HoldsOfEach(index->args()[1], pool_.And(known, condition), fn) &&
           HoldsOfEach(index->args()[2], pool_.And(known, pool_.Not(condition)), fn);
  }

  bool Holds(Expr conclusion, Expr known, const Facts& facts) {
    if (conclusion->is_integer(1) || HoldsForNonEmptyStep(forms_, conclusion)) return true;
    return FollowsFromTwo(conclusion, known, facts) ||
           equality_.Follows(pool_.And(fits_, known), conclusion, facts);
  }

  // Applies x + y <= 0 for x <= 0 in `known` and y <= 0 in fits_: an index below the number of
  // tokens is below the number of slots.
  bool FollowsFromTwo(Expr conclusion, Expr known, const Facts& facts) {
    if (conclusion->kind() != sym::Kind::kLe) return false;
    const auto follows = [&](Expr premise) {
      return pool_.ProveNonNegative(pool_.Sub(premise, conclusion->args()[0]), facts);
    };
    for (Expr x : sym::ConjunctsOf(known)) {
      if (x->kind() != sym::Kind::kLe) continue;
      if (follows(x->args()[0])) return true;
      for (Expr y : sym::ConjunctsOf(fits_)) {
        if (y->kind() == sym::Kind::kLe && follows(pool_.Add(x->args()[0], y->args()[0]))) {
          return true;
        }
      }
    }
    return false;
  }

  bool IsInside(const Lookup& mine) {
    if (IsInFront(mine) && IsBehindTheFirst(mine)) return true;
    return std::any_of(source_.begin(), source_.end(), [&](const Lookup& theirs) {
      if (theirs.numbered != mine.numbered || !HasPlacesOf(theirs, mine)) return false;
      const Expr enough = pool_.Le(theirs.rows, mine.rows, Facts{});
      return enough->is_integer(1) || equality_.Follows(fits_, enough, Facts{});
    });
  }

  // Returns true if the source's look-up covers all indices of `mine`.
  bool HasPlacesOf(const Lookup& theirs, const Lookup& mine) {
    for (size_t k = 0; k < mine.extents.size(); ++k) {
      const Expr own = mine.extents[k], other = theirs.extents[k];
      if (own == other) continue;
      if (own == nullptr || other == nullptr) return false;
      if (!equality_.Follows(fits_, pool_.Le(own, other, Facts{}), Facts{})) return false;
    }
    return true;
  }

  // The result of a look-up may have other axes in the source. To compare two indices, their axes
  // are numbered in order.
  void Number(Lookup* lookup) {
    constexpr int kMostAxes = 16;
    sym::Pool::Substitution s;
    s.indices.assign(kMostAxes, nullptr);
    int next = 0;
    for (int k = 0; k < kMostAxes; ++k) {
      if (!sym::ContainsIndex(lookup->index, k)) continue;
      s.indices[static_cast<size_t>(k)] = pool_.Index(next++);
      const auto axis = static_cast<size_t>(k);
      const auto& all = lookup->facts.extents;
      lookup->extents.push_back(axis < all.size() ? all[axis] : nullptr);
    }
    lookup->numbered = pool_.Substitute(lookup->index, s, Facts{});
  }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
  std::vector<Lookup> source_;
  Expr fits_ = pool_.True();  // what holds where the source runs and its rows fit
};

}  // namespace

UnmetConditions LookupsOutside(const GraphPair& pair, const Correspondence& twins,
                               Equality& equality) {
  return LookupReader(pair, twins, equality).Run();
}

}  // namespace kvlift
