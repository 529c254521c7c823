#include "proof/lookups.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class Reader {
 public:
  Reader(const GraphPair& pair, const Correspondence& twins, Equality& equality)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality) {}

  Misfits Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsOfAfter(n)) continue;
      if (const auto lookup = Read(n)) source_.push_back(*lookup);
    }
    fits_ = pool_.And(twins_.Fits(), twins_.SourceFits());
    Misfits found;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsOfAfter(n)) continue;
      const auto lookup = Read(n);
      if (!lookup || IsInside(*lookup)) continue;
      found.emplace_back(
          pair_.NameOf(graph_.outputs(n)[0]),
          fmt::format("{} < {} (index of a Gather) is not seen to be so",
                      sym::ToString(lookup->index, &graph_), sym::ToString(lookup->rows, &graph_)));
    }
    return found;
  }

 private:
  // By the terms of the source.
  struct Lookup {
    Expr index = nullptr, rows = nullptr;
    Expr numbered = nullptr;  // the index, with the axes that it reads numbered in their order
    Facts facts;              // about the places of the indices
  };

  // nullopt for other operators, and for what has no form.
  std::optional<Lookup> Read(NodeId n) {
    if (!graph_.Is(n, "Gather")) return std::nullopt;
    const sym::Form table = forms_.Of(graph_.inputs(n)[0]), which = forms_.Of(graph_.inputs(n)[1]);
    if (!table.known_rank || !which.known_rank) return std::nullopt;
    int64_t axis = IntAttribute(graph_.node(n), "axis", 0);
    if (axis < 0) axis += static_cast<int64_t>(table.shape.size());
    if (axis < 0 || axis >= static_cast<int64_t>(table.shape.size())) return std::nullopt;
    const bool mine = pair_.IsOfAfter(n);
    const Expr sequence = pool_.Index(0);
    Lookup lookup;
    for (Expr extent : which.shape) {
      lookup.facts.extents.push_back(mine ? twins_.Extent(extent, sequence)
                                          : twins_.Normal(extent, Facts{}));
    }
    const Expr rows = table.shape[static_cast<size_t>(axis)];
    lookup.index = mine ? twins_.Translate(which.element, sequence, lookup.facts)
                        : twins_.Normal(which.element, lookup.facts);
    lookup.rows = mine ? twins_.Extent(rows, sequence) : twins_.Normal(rows, Facts{});
    if (lookup.index == nullptr || lookup.rows == nullptr) return std::nullopt;
    lookup.numbered = Numbered(lookup.index);
    return lookup;
  }

  // Indices from the end reach the first row; those that data gives are taken to be from the front.
  bool IsBehindTheFirst(const Lookup& mine) {
    if (!sym::LoadsOf(mine.index).empty()) return true;
    const Expr behind = pool_.Le(pool_.Neg(mine.rows), mine.index, mine.facts);
    return behind->is_integer(1) || equality_.Follows(fits_, behind, mine.facts);
  }

  bool IsInFront(const Lookup& mine) {
    const Expr inside = pool_.Lt(mine.index, mine.rows, mine.facts);
    return inside->is_integer(1) || IsOfNoEmptyStep(forms_, inside) ||
           equality_.Follows(fits_, inside, mine.facts);
  }

  bool IsInside(const Lookup& mine) {
    if (IsInFront(mine) && IsBehindTheFirst(mine)) return true;
    return std::any_of(source_.begin(), source_.end(), [&](const Lookup& theirs) {
      if (theirs.numbered != mine.numbered) return false;
      const Expr enough = pool_.Le(theirs.rows, mine.rows, Facts{});
      return enough->is_integer(1) || equality_.Follows(fits_, enough, Facts{});
    });
  }

  // The result of a look-up may have other axes in the source, so that its index is compared with
  // the axes numbered anew, in their order.
  Expr Numbered(Expr index) {
    constexpr int kMostAxes = 16;
    sym::Pool::Substitution s;
    s.indices.assign(kMostAxes, nullptr);
    int next = 0;
    for (int k = 0; k < kMostAxes; ++k) {
      if (sym::ContainsIndex(index, k)) s.indices[static_cast<size_t>(k)] = pool_.Index(next++);
    }
    return pool_.Substitute(index, s, Facts{});
  }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
  std::vector<Lookup> source_;
  Expr fits_ = pool_.True();  // what sizes are where the source runs and its rows fit
};

}  // namespace

Misfits LookupsOutside(const GraphPair& pair, const Correspondence& twins, Equality& equality) {
  return Reader(pair, twins, equality).Run();
}

}  // namespace kvlift
