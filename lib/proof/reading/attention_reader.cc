#include "proof/reading/attention_reader.h"

#include <string>
#include <utility>

#include "fmt/format.h"
#include "proof/lemmas/mask_split.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/scale_moved.h"
#include "sym/forms/broadcast.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;
using sym::Kind;

AttentionReading AttentionReader::Run(ValueId result) {
  r_.visible = pool_.True();
  const NodeId node = graph_.producer(result);
  if (node == kNoNode) {
    Fail("it is no result of a node");
  } else if (graph_.Is(node, "Attention")) {
    ReadOperator(node);
  } else if (const auto product = ProductOf(node); product && product->factor == 1) {
    ReadProducts(node);
  } else {
    Fail(fmt::format("its result comes from a {}", graph_.node(node).op_type()));
  }
  return std::move(r_);
}

bool AttentionReader::Fail(std::string why) {
  if (r_.why_not.empty()) r_.why_not = std::move(why);
  return false;
}

bool AttentionReader::IsRank(const sym::Form& form) const {
  if (!form.known_rank) return false;
  return form.shape.size() == 4 || (form.shape.size() == 3 && heads_ > 0) || form.shape.size() == 5;
}

std::vector<Expr> AttentionReader::Front(size_t rank) {
  const Expr b = pool_.Index(0), h = pool_.Index(1);
  if (rank == 4) return {b, h};
  if (rank == 5) {
    const Expr size = pool_.Integer(group_);
    const Expr key_head = pool_.FloorDiv(h, size, r_.extents);
    return {b, key_head, pool_.Sub(h, pool_.Mul(key_head, size))};
  }
  return {pool_.Add(pool_.Mul(b, pool_.Integer(heads_)), h)};
}

std::vector<Expr> AttentionReader::Here(size_t rank, Expr last) {
  std::vector<Expr> here = Front(rank);
  here.push_back(pool_.Index(2));
  here.push_back(last);
  return here;
}

Expr AttentionReader::Cell(ValueId v, size_t rank, Expr r, Expr c, bool turned) {
  std::vector<Expr> front = Front(rank);
  front.push_back(turned ? c : r);
  front.push_back(turned ? r : c);
  return At(v, front);
}

Expr AttentionReader::At(ValueId v, absl::Span<const Expr> args) {
  return sym::BroadcastAt(forms_, v, args, r_.extents);
}

AttentionReader::Peeled AttentionReader::WithoutStep(Expr e) {
  if (e->kind() != Kind::kLoad) return {};
  if (const Expr same = Passed(e); same != nullptr) return {same, std::nullopt};
  const NodeId n = graph_.producer(e->source());
  const auto read = n == kNoNode ? std::nullopt : ReadFactor(forms_, n);
  const Expr operand = read ? At(read->operand, e->args()) : nullptr;
  if (operand == nullptr) return {};
  r_.grounds.AddLemma(lemmas::kScaleMoved);
  return {operand, Multiplication{read->number, forms_.ElementType(e->source())}};
}

AttentionReader::Factored AttentionReader::Peel(Expr e) {
  Factored result{e, 1, {}};
  std::vector<Multiplication> chain;
  for (int k = 0; result.element != nullptr && k < kMostSteps; ++k) {
    const Peeled inner = WithoutStep(result.element);
    if (inner.element == nullptr) break;
    if (inner.by) {
      result.factor *= inner.by->factor;
      chain.push_back(*inner.by);
    }
    result.element = inner.element;
  }
  result.range = RangeOfChain(chain);
  return result;
}

void AttentionReader::See(Expr where, const std::set<double>& hidden_by) {
  r_.visible = pool_.And(r_.visible, where);
  r_.hidden_by.insert(hidden_by.begin(), hidden_by.end());
  r_.grounds.AddLemma(lemmas::kMaskSplit);
}

bool AttentionReader::AddBias(Expr e) {
  const auto mask = SplitMask(forms_, e, r_.extents, &r_.grounds);
  if (!mask) return Fail("a bias is added to its scores that is not read");
  See(pool_.Not(mask->hiding.where), mask->hiding.numbers);
  r_.bias.insert(r_.bias.end(), mask->bias.begin(), mask->bias.end());
  return true;
}

}  // namespace kvlift::internal
