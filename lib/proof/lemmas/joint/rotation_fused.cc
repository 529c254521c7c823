#include "proof/lemmas/joint/rotation_fused.h"

#include <vector>

#include "sym/forms/reals.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class RotationReader {
 public:
  RotationReader(const GraphPair& pair, const Correspondence& twins)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins) {}

  bool Run(NodeId mine, ValueId theirs) {
    const auto inputs = graph_.inputs(mine);
    if (!graph_.Is(mine, "RotaryEmbedding") || inputs.size() != 3 || !IsPlain(mine)) return false;
    const sym::Form x = forms_.Of(inputs[0]), y = forms_.Of(theirs);
    if (!x.known_rank || x.shape.size() != 4 || !y.known_rank || y.shape.size() != 4) return false;
    if (forms_.ElementType(inputs[0]) != forms_.ElementType(theirs)) return false;
    if (x.shape[3]->kind() != sym::Kind::kInteger || x.shape[3]->value() % 2 != 0) return false;
    const int64_t half = x.shape[3]->value() / 2;
    Facts facts{x.shape};
    facts.extents[3] = pool_.Integer(half);
    for (size_t k = 0; k < 4; ++k) {
      if (twins_.Extent(x.shape[k], pool_.Index(0)) != twins_.Normal(y.shape[k], Facts{})) {
        return false;
      }
      facts.extents[k] = twins_.Extent(facts.extents[k], pool_.Index(0));
    }
    for (ValueId table : {inputs[1], inputs[2]}) {
      if (!IsTable(table, {x.shape[0], x.shape[2], facts.extents[3]})) return false;
    }
    SetStops(x);
    return SameHalves(inputs, theirs, half, facts);
  }

 private:
  // Returns true if the node has the default arrangement: halves of the whole head.
  bool IsPlain(NodeId n) const {
    return IntAttribute(graph_.node(n), "interleaved", 0) == 0 &&
           IntAttribute(graph_.node(n), "rotary_embedding_dim", 0) == 0;
  }

  // Returns true if the table has a row for each sequence and token; the operator does not
  // broadcast tables.
  bool IsTable(ValueId table, absl::Span<const Expr> extents) const {
    const sym::Form form = forms_.Of(table);
    if (!form.known_rank || form.shape.size() != extents.size()) return false;
    for (size_t k = 0; k < extents.size(); ++k) {
      if (twins_.Extent(form.shape[k], pool_.Index(0)) !=
          twins_.Extent(extents[k], pool_.Index(0))) {
        return false;
      }
    }
    return true;
  }

  // Treats the values that x is made of as unknown, in both models: both rotate the same numbers.
  void SetStops(const sym::Form& x) {
    for (ValueId source : sym::SourcesOf(x.element)) {
      stops_.push_back(source);
      if (const ValueId own = pair_.Before(pair_.NameOf(source)); own != kNoValue) {
        stops_.push_back(own);
      }
    }
  }

  bool SameHalves(absl::Span<const ValueId> inputs, ValueId theirs, int64_t half,
                  const Facts& facts) {
    const Expr b = pool_.Index(0), n = pool_.Index(1), s = pool_.Index(2), d = pool_.Index(3);
    const Expr behind = pool_.Add(d, pool_.Integer(half));
    const Expr first = Real(inputs[0], {b, n, s, d}, facts);
    const Expr second = Real(inputs[0], {b, n, s, behind}, facts);
    const Expr cosine = Real(inputs[1], {b, s, d}, facts);
    const Expr sine = Real(inputs[2], {b, s, d}, facts);
    if (first == nullptr || second == nullptr || cosine == nullptr || sine == nullptr) return false;
    const Expr low = pool_.Sub(pool_.Mul(first, cosine), pool_.Mul(second, sine));
    const Expr high = pool_.Add(pool_.Mul(second, cosine), pool_.Mul(first, sine));
    return IsSame(low, Real(theirs, {b, n, s, d}, facts), facts) &&
           IsSame(high, Real(theirs, {b, n, s, behind}, facts), facts);
  }

  Expr Real(ValueId v, absl::Span<const Expr> at, const Facts& facts) {
    return sym::RealElement(forms_, v, at, facts, stops_);
  }

  bool IsSame(Expr mine, Expr theirs, const Facts& facts) {
    const Expr e = twins_.Translate(mine, pool_.Index(0), facts);
    if (e == nullptr) return false;
    const Expr other = twins_.Normal(theirs, facts);
    if (e == other) return true;
    if (e != twins_.Fitted(other, facts)) return false;
    twins_.RestOnFits();
    return true;
  }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  std::vector<ValueId> stops_;
};

}  // namespace

bool IsRotationOf(const GraphPair& pair, const Correspondence& twins, NodeId mine, ValueId theirs) {
  return RotationReader(pair, twins).Run(mine, theirs);
}

}  // namespace kvlift
