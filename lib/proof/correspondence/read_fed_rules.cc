#include "proof/correspondence/read_fed_rules.h"

#include <utility>

#include "absl/types/span.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using FedKind = FedNumber::Kind;
using sym::Expr;

// Reads expressions of the pair's forms.
class Reader {
 public:
  explicit Reader(const GraphPair& pair) : pair_(pair) {}

  std::optional<FedNumber> Read(Expr e) {
    switch (e->kind()) {
      case sym::Kind::kInteger:
        return FedNumber{FedKind::kInteger, e->value()};
      case sym::Kind::kIndex:
        return FedNumber{FedKind::kIndex, e->index()};
      case sym::Kind::kDim:
        return ReadSize(e->dim());
      case sym::Kind::kLoad:
        return ReadElement(e);
      case sym::Kind::kSum:
        return ReadSum(e);
      default:
        break;
    }
    constexpr std::pair<sym::Kind, FedKind> kOfArgs[] = {
        {sym::Kind::kFloorDiv, FedKind::kFloorDiv}, {sym::Kind::kLe, FedKind::kIsAtMost},
        {sym::Kind::kEq, FedKind::kIsZero},         {sym::Kind::kNot, FedKind::kNot},
        {sym::Kind::kAnd, FedKind::kAnd},           {sym::Kind::kSelect, FedKind::kSelect}};
    for (const auto& [theirs, mine] : kOfArgs) {
      if (e->kind() == theirs) return Of(mine, e->args());
    }
    return std::nullopt;
  }

 private:
  std::optional<FedNumber> Of(FedKind kind, absl::Span<const Expr> args) {
    FedNumber number{kind};
    for (Expr arg : args) {
      auto read = Read(arg);
      if (!read) return std::nullopt;
      number.args.push_back(*std::move(read));
    }
    return number;
  }

  std::optional<FedNumber> ReadSum(Expr e) {
    FedNumber sum{FedKind::kSum};
    for (const sym::Term& term : e->terms()) {
      auto product = Of(FedKind::kProduct, term.atoms);
      if (!product) return std::nullopt;
      product->args.push_back({FedKind::kInteger, term.coefficient});
      sum.args.push_back(*std::move(product));
    }
    return sum;
  }

  bool IsFedToSource(ValueId v) const {
    return pair_.graph().is_graph_input(v) && !pair_.IsValueInAfter(v);
  }

  std::optional<FedNumber> ReadSize(const sym::DimSymbol& dim) const {
    const auto origin = pair_.forms().OriginOf(dim);
    if (!origin || !IsFedToSource(origin->input)) return std::nullopt;
    return FedNumber{FedKind::kSize, origin->axis, pair_.NameOf(origin->input)};
  }

  std::optional<FedNumber> ReadElement(Expr e) {
    const ValueId v = e->source();
    const int32_t type = pair_.graph().type(v).elem_type;
    const bool whole = IsIntegerType(type) || type == onnx::TensorProto::BOOL;
    if (!IsFedToSource(v) || !whole) return std::nullopt;
    auto element = Of(FedKind::kElement, e->args());
    if (element) element->input = pair_.NameOf(v);
    return element;
  }

  const GraphPair& pair_;
};

}  // namespace

std::optional<FedCondition> FedConditionOf(const GraphPair& pair,
                                           const sym::FormAssumption& assumption) {
  if (sym::LoadsOf(assumption.predicate).empty()) return std::nullopt;
  auto holds = Reader(pair).Read(assumption.predicate);
  if (!holds) return std::nullopt;
  return FedCondition{*std::move(holds), assumption.text, std::nullopt};
}

std::optional<FedCondition> FedEqualityOf(const GraphPair& pair, Expr difference,
                                          const std::string& text) {
  auto zero = Reader(pair).Read(difference);
  if (!zero) return std::nullopt;
  return FedCondition{{FedKind::kIsZero, 0, {}, {*std::move(zero)}}, text, std::nullopt};
}

}  // namespace kvlift
