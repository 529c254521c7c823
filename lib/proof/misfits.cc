#include "proof/misfits.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/lemmas/longest_sequence.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

namespace {

constexpr int kMostIndices = 8;

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
    for (const sym::Assumption& assumption : forms_.assumptions()) {
      if (pair_.IsOfAfter(assumption.node)) continue;
      for (Expr part : sym::ConjunctsOf(assumption.predicate)) {
        known_.insert(twins_.Normal(part, Facts{}));
      }
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsOfAfter(n) && graph_.Is(n, "TensorScatter")) {
        written_ = pool_.And(written_, Written(n));
      }
    }
    for (const sym::Assumption& assumption : forms_.assumptions()) {
      if (!pair_.IsOfAfter(assumption.node) || !IsEnforced(assumption.reason)) continue;
      for (Expr part : sym::ConjunctsOf(assumption.predicate)) {
        if (!IsOfPlaces(part) && !Holds(part)) Add(assumption.node, assumption.text);
      }
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsOfAfter(n) && graph_.Is(n, "TensorScatter")) ReadWrite(n);
    }
    return std::move(found_);
  }

 private:
  // What an operator refuses, or does otherwise; that data is finite is an entry of the ledger.
  static bool IsEnforced(sym::AssumptionReason reason) {
    return reason != sym::AssumptionReason::kFinite;
  }

  // Places that differ by element are of those that are looked up; the ledger has them.
  static bool IsOfPlaces(Expr condition) {
    for (int k = 0; k < kMostIndices; ++k) {
      if (sym::ContainsIndex(condition, k)) return true;
    }
    return false;
  }

  void Add(NodeId n, const std::string& what) {
    found_.emplace_back(pair_.NameOf(graph_.outputs(n)[0]),
                        fmt::format("{} is not seen to be so", what));
  }

  bool Holds(Expr condition) {
    Expr mine = twins_.Translate(condition, pool_.Index(0), Facts{});
    if (mine == nullptr) return false;
    mine = AtLongest(pool_, mine);
    if (mine->is_integer(1) || known_.contains(mine) || IsNotEmpty(mine)) return true;
    const Expr fits = pool_.And(twins_.Fits(), written_);
    if (equality_.Follows(fits, mine, Facts{})) return true;
    return equality_.Follows(pool_.And(fits, twins_.SourceFits()), mine, Facts{});
  }

  // A step has a sequence and a token.
  bool IsNotEmpty(Expr condition) const {
    for (const sym::DimSymbol& name : sym::DimsOf(condition)) {
      if (condition == pool_.Lt(pool_.Integer(0), pool_.Dim(name), Facts{})) {
        return forms_.OriginOf(name).has_value();
      }
    }
    return false;
  }

  // That the rows of a write lie inside its buffer: it is refused otherwise.
  Expr Written(NodeId n) {
    const auto inputs = graph_.inputs(n);
    const sym::Form buffer = forms_.Of(inputs[0]), rows = forms_.Of(inputs[1]);
    int64_t axis = IntAttribute(graph_.node(n), "axis", -2);
    if (axis < 0) axis += static_cast<int64_t>(buffer.shape.size());
    const auto own = static_cast<size_t>(axis);
    if (inputs.size() < 3 || inputs[2] == kNoValue || own >= buffer.shape.size() ||
        own >= rows.shape.size() || StringAttribute(graph_.node(n), "mode", "linear") != "linear") {
      return pool_.True();
    }
    const Expr sequence = pool_.Index(0);
    const Expr first = twins_.Translate(forms_.At(inputs[2], {sequence}, Facts{}), sequence, {});
    const Expr slots = twins_.Extent(buffer.shape[own], sequence);
    const Expr length = twins_.Extent(rows.shape[own], sequence);
    if (first == nullptr || slots == nullptr || length == nullptr) return pool_.True();
    return pool_.And(pool_.Le(pool_.Integer(0), first, Facts{}),
                     pool_.Le(pool_.Add(first, length), slots, Facts{}));
  }

  bool IsSame(Expr mine, Expr other) {
    if (mine == other) return true;
    return Holds(pool_.Eq(mine, other, Facts{}));
  }

  // Rows that are written have the buffer's other extents, and there is one index for each
  // sequence.
  void ReadWrite(NodeId n) {
    const auto inputs = graph_.inputs(n);
    const sym::Form buffer = forms_.Of(inputs[0]), rows = forms_.Of(inputs[1]);
    if (!buffer.known_rank || !rows.known_rank || buffer.shape.size() != rows.shape.size()) {
      return Add(n, "that what is written has the buffer's rank");
    }
    const auto rank = static_cast<int64_t>(buffer.shape.size());
    int64_t axis = IntAttribute(graph_.node(n), "axis", -2);
    if (axis < 0) axis += rank;
    for (int64_t k = 0; k < rank; ++k) {
      const auto own = static_cast<size_t>(k);
      if (k != axis && !IsSame(buffer.shape[own], rows.shape[own])) {
        Add(n, fmt::format("{} == {} (axis {} of what is written)", Text(rows.shape[own]),
                           Text(buffer.shape[own]), k));
      }
    }
    if (inputs.size() < 3 || inputs[2] == kNoValue) return;
    const sym::Form index = forms_.Of(inputs[2]);
    if (!index.known_rank || index.shape.size() != 1 || !IsSame(index.shape[0], buffer.shape[0])) {
      Add(n, "that there is one write index for each sequence");
    }
  }

  std::string Text(Expr e) const { return sym::ToString(e, &graph_); }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
  absl::flat_hash_set<Expr> known_;  // what the source's operators enforce, too
  Expr written_ = pool_.True();
  Misfits found_;
};

}  // namespace

Misfits MisfitsOf(const GraphPair& pair, const Correspondence& twins, Equality& equality) {
  return Reader(pair, twins, equality).Run();
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
