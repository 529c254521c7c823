// The part of AttentionReader that reads the nodes around a softmax.
#include <algorithm>

#include "absl/strings/match.h"
#include "onnxio/model/gated_sinks.h"
#include "proof/lemmas/mask_split.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/nan_guard.h"
#include "proof/lemmas/renormalised_weights.h"
#include "proof/lemmas/row_maximum.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lemmas/softmax_precision.h"
#include "proof/reading/attention_reader.h"

namespace kvlift::internal {

using sym::Expr;
using sym::Facts;
using sym::Kind;

ValueId AttentionReader::FindScores(Expr e, int32_t to, std::vector<Expr>* where) {
  for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
    if (const auto masked = WithoutRenormalising(e)) {
      e = *masked;
      continue;
    }
    if (e->kind() == Kind::kSelect) {
      e = WithoutNanGuard(forms_, e, &r_.grounds);
      if (e == nullptr) return kNoValue;
      r_.nan_guard = true;
      continue;
    }
    if (e->kind() != Kind::kLoad) return kNoValue;
    const NodeId n = graph_.producer(e->source());
    if (n == kNoNode) return kNoValue;
    if (const ValueId scores = SoftmaxOperand(forms_, n, &r_.grounds); scores != kNoValue) {
      where->assign(e->args().begin(), e->args().end());
      return scores;
    }
    if (graph_.Is(n, "Softmax")) return kNoValue;  // over another axis
    Expr inner = Passed(e);
    if (inner == nullptr && !r_.renormalised && IsCastOfWeights(forms_, n, to)) {
      r_.grounds.AddLemma(lemmas::kSoftmaxPrecision);
      inner = At(graph_.inputs(n)[0], e->args());
    }
    e = inner;
  }
  return kNoValue;
}

std::optional<Expr> AttentionReader::WithoutRenormalising(Expr e) {
  if (r_.renormalised) return std::nullopt;
  const auto masked = ReadRenormalisedWeights(forms_, e, r_.extents, &r_.grounds);
  if (!masked) return std::nullopt;
  r_.renormalised = true;
  r_.nan_guard |= masked->guarded;
  See(masked->keep, {});
  return masked->weight;
}

ValueId AttentionReader::WithoutMaximum(ValueId x) {
  for (int k = 0; k < kMostSteps; ++k) {
    const ValueId inner = WithoutRowMaximum(forms_, x, &r_.grounds);
    if (inner == kNoValue) break;
    x = inner;
  }
  return x;
}

bool AttentionReader::IsOverKeys(ValueId x, absl::Span<const Expr> where) {
  const sym::Form scores = forms_.Of(x);
  if (!scores.known_rank || scores.shape.empty()) return false;
  const Expr keys = r_.extents.extents[3];
  // On an axis of extent 1 the index is 0.
  const Expr t = keys->is_integer(1) ? pool_.Integer(0) : pool_.Index(3);
  const Expr own = keys->is_integer(1) && where.back() == pool_.Index(3) ? t : where.back();
  const Expr more = pool_.Sub(scores.shape.back(), keys);
  if (more->is_integer(0)) return own == t;
  const bool in_front = own == pool_.Add(t, pool_.Integer(1));
  if (!more->is_integer(1) || (own != t && !in_front)) return false;
  std::vector<Expr> at(where.begin(), where.end());
  at.back() = in_front ? pool_.Integer(0) : keys;
  const Expr sink = forms_.At(x, at, r_.extents);
  if (sink == nullptr || sym::ContainsIndex(sink, 3)) return false;
  r_.sink = sink;
  r_.gated_sink = absl::StrContains(forms_.graph().name(x), kGatedSinks);
  return true;
}

bool AttentionReader::ReadScores(Expr e) {
  for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
    if (e->kind() == Kind::kSelect) {
      e = WithoutSelection(e);
      if (e == nullptr) return false;
      continue;
    }
    const NodeId n = e->kind() == Kind::kLoad ? graph_.producer(e->source()) : kNoNode;
    if (n == kNoNode) return Fail("the scores are no product of queries and keys");
    if (k == 0 && IsCastOfScores(forms_, n, r_.softmax_type)) {
      r_.grounds.AddLemma(lemmas::kSoftmaxPrecision);
      e = At(graph_.inputs(n)[0], e->args());
      continue;
    }
    if (ProductOf(n)) return ReadFirstProduct(n, e);
    if (graph_.Is(n, "Add") || graph_.Is(n, "Sub")) {
      e = WithoutMask(n, e);
      if (e == nullptr) return false;
      continue;
    }
    if (graph_.Is(n, "Max")) {
      e = WithoutLowest(n, e);
      if (e == nullptr) return false;
      continue;
    }
    if (graph_.Is(n, "Tanh") && r_.softcap == 0) {
      if (!IsScale(r_.scale)) return Fail("its softcap is no positive number");
      r_.softcap = r_.scale;
      r_.products.capped = RangeOfChain(factors_);
      factors_.clear();
      e = At(graph_.inputs(n)[0], e->args());
      continue;
    }
    const Peeled inner = WithoutStep(e);
    if (inner.by) {
      r_.scale *= inner.by->factor;
      factors_.push_back(*inner.by);
    }
    e = inner.element;
  }
  return Fail("the scores are not read");
}

bool AttentionReader::MaskFits() {
  if (IsScale(r_.scale) && r_.softcap == 0) return true;
  return Fail("a mask is in front of a softcap, or of a factor that may turn it");
}

Expr AttentionReader::WithoutSelection(Expr e) {
  if (!MaskFits()) return nullptr;
  const Expr c = e->args()[0];
  const auto a = HiddenBy(pool_, e->args()[1], r_.scale),
             b = HiddenBy(pool_, e->args()[2], r_.scale);
  const bool first = b && b->everywhere(), second = a && a->everywhere();
  if (!first && !second) {
    Fail("a score is selected, and not against a number that hides it");
    return nullptr;
  }
  See(first ? c : pool_.Not(c), (first ? *b : *a).numbers);
  return e->args()[first ? 1 : 2];
}

Expr AttentionReader::WithoutMask(NodeId n, Expr e) {
  if (!MaskFits()) return nullptr;
  // Scores are not subtracted from a mask, and a bias is added.
  const bool minus = graph_.Is(n, "Sub");
  const double factor = minus ? -r_.scale : r_.scale;
  for (int k = 1; k >= (minus ? 1 : 0); --k) {
    const auto hiding = HiddenBy(pool_, At(graph_.inputs(n)[k], e->args()), factor);
    if (!hiding) continue;
    See(pool_.Not(hiding->where), hiding->numbers);
    return At(graph_.inputs(n)[1 - k], e->args());
  }
  for (int k = 1; k >= 0 && !minus; --k) {
    const Expr scores = At(graph_.inputs(n)[1 - k], e->args());
    if (scores == nullptr || !LeadsToProduct(scores, 0)) continue;
    if (r_.scale != 1) break;
    return AddBias(At(graph_.inputs(n)[k], e->args())) ? scores : nullptr;
  }
  Fail("something is added to the scores that is no mask");
  return nullptr;
}

Expr AttentionReader::WithoutLowest(NodeId n, Expr e) {
  if (!MaskFits()) return nullptr;
  const auto inputs = graph_.inputs(n);
  for (size_t k = 0; k < 2 && inputs.size() == 2; ++k) {
    const auto lowest = HiddenBy(pool_, At(inputs[k], e->args()), r_.scale);
    if (!lowest || !lowest->everywhere()) continue;
    See(pool_.True(), lowest->numbers);
    return At(inputs[1 - k], e->args());
  }
  Fail("a maximum is taken with another number than a lowest one");
  return nullptr;
}

bool AttentionReader::LeadsToProduct(Expr e, int depth) {
  if (e == nullptr || depth > kMostSteps) return false;
  if (e->kind() == Kind::kSelect) {
    return LeadsToProduct(e->args()[1], depth + 1) || LeadsToProduct(e->args()[2], depth + 1);
  }
  if (e->kind() != Kind::kLoad) return false;
  const NodeId n = graph_.producer(e->source());
  if (n == kNoNode) return false;
  if (ProductOf(n)) return true;
  if (graph_.Is(n, "Sub")) return LeadsToProduct(At(graph_.inputs(n)[0], e->args()), depth + 1);
  if (graph_.Is(n, "Add") || (graph_.Is(n, "Max") && graph_.inputs(n).size() == 2)) {
    return LeadsToProduct(At(graph_.inputs(n)[0], e->args()), depth + 1) ||
           LeadsToProduct(At(graph_.inputs(n)[1], e->args()), depth + 1);
  }
  return LeadsToProduct(WithoutStep(e).element, depth + 1);
}

bool AttentionReader::ReadFirstProduct(NodeId n, Expr e) {
  const Expr s = pool_.Index(2), t = pool_.Index(3);
  const size_t rank = e->args().size();
  const sym::Form q = forms_.Of(graph_.inputs(n)[0]);
  if (!IsRank(q) || q.shape.size() != rank) return Fail("the queries have no rank of 4");
  const std::vector<Expr> args(e->args().begin(), e->args().end());
  if (!SamePlace(args, Here(rank, t))) return Fail("the scores are not in the order b, h, s, t");
  r_.extents.extents.resize(5, nullptr);
  const Expr d = pool_.Index(4);
  const MatrixProduct product = *ProductOf(n);
  r_.extents.extents[4] = q.shape[rank - (product.left_transposed ? 2 : 1)];
  const Factored query = Peel(Cell(graph_.inputs(n)[0], rank, s, d, product.left_transposed));
  const Factored key = Peel(Cell(graph_.inputs(n)[1], rank, d, t, product.right_transposed));
  if (query.element == nullptr || key.element == nullptr) return Fail("operands are not read");
  r_.query = query.element;
  r_.key = key.element;
  r_.scale *= query.factor * key.factor * product.factor;
  r_.products.plain = r_.products.scaled = query.factor * key.factor;
  factors_.push_back({product.factor, forms_.ElementType(e->source())});
  r_.products.query = query.range;
  r_.products.key = key.range;
  r_.products.scores = RangeOfChain(factors_);
  r_.products.type = forms_.ElementType(graph_.outputs(n)[0]);
  return IsScale(r_.scale) || Fail("its scale is no positive number");
}

bool AttentionReader::SamePlace(absl::Span<const Expr> args, absl::Span<const Expr> here) const {
  sym::Pool::Substitution one;
  for (Expr extent : r_.extents.extents) {
    const bool is_one = extent != nullptr && extent->is_integer(1);
    one.indices.push_back(is_one ? pool_.Integer(0) : nullptr);
  }
  return std::equal(args.begin(), args.end(), here.begin(), here.end(), [&](Expr a, Expr b) {
    return a == b || pool_.Substitute(a, one, r_.extents) == pool_.Substitute(b, one, r_.extents);
  });
}

bool AttentionReader::ReadProducts(NodeId node) {
  if (ProductOf(node)->left_transposed) return Fail("its weights are transposed");
  const ValueId left = graph_.inputs(node)[0], right = graph_.inputs(node)[1];
  const sym::Form weights = forms_.Of(left), result = forms_.Of(graph_.outputs(node)[0]);
  if (!IsRank(weights) || !IsRank(result) || result.shape.size() != weights.shape.size()) {
    return Fail("its products have no rank of 4");
  }
  const size_t rank = weights.shape.size();
  r_.extents.extents = weights.shape;
  if (rank == 5) {
    const Expr key_heads = weights.shape[1], size = weights.shape[2];
    if (key_heads->kind() != Kind::kInteger || size->kind() != Kind::kInteger) {
      return Fail("the sizes of its groups are no numbers");
    }
    group_ = size->value();
    r_.extents.extents[1] = pool_.Mul(key_heads, size);
    r_.extents.extents.erase(r_.extents.extents.begin() + 2);
  }
  if (rank == 3) {
    const Expr heads = pool_.Integer(heads_);
    r_.extents.extents[0] = pool_.FloorDiv(weights.shape[0], heads, Facts{});
    r_.extents.extents.insert(r_.extents.extents.begin() + 1, heads);
  }
  r_.size_of_value = result.shape.back();
  const Expr t = pool_.Index(3);
  std::vector<Expr> where;
  const ValueId operand = FindScores(At(left, Here(rank, t)), forms_.ElementType(right), &where);
  if (operand == kNoValue) return Fail("no softmax over the keys");
  std::vector<Expr> place = where;
  place.back() = t;
  if (!SamePlace(place, Here(where.size(), t))) return Fail("no softmax over the keys");
  const ValueId scores = WithoutMaximum(operand);
  if (!IsOverKeys(scores, where)) return Fail("its softmax is over other keys than are read");
  if (r_.renormalised && r_.sink != nullptr) return Fail("a mask behind its softmax ends its sink");
  if (r_.renormalised && !sym::KeepsSmallWeights(forms_.ElementType(scores))) {
    return Fail("a mask is behind a softmax in half precision");
  }
  r_.softmax_type = forms_.ElementType(scores);
  if (!ReadScores(At(scores, where))) return false;
  Facts facts = r_.extents;
  r_.extents.extents[4] = r_.size_of_value;
  r_.value = Cell(right, rank, t, pool_.Index(4), ProductOf(node)->right_transposed);
  r_.extents = facts;
  return r_.value != nullptr || Fail("the values are not read");
}

}  // namespace kvlift::internal
