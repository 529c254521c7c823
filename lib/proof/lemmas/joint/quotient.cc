#include "proof/lemmas/joint/quotient.h"

#include <utility>
#include <vector>

#include "fmt/format.h"
#include "ir/types.h"
#include "proof/graphs/constant_numbers.h"
#include "proof/lemmas/names.h"

namespace kvlift {
namespace {

struct Division {
  ValueId dividend = kNoValue, divisor = kNoValue;
  ValueId inverse = kNoValue;  // 1 / divisor as a value of the model; kNoValue for a Div
};

// Returns y if a value is 1 / y, by a Reciprocal or a Div; kNoValue if it is not.
ValueId Inverted(const GraphPair& pair, ValueId value) {
  const Graph& graph = pair.graph();
  const NodeId n = value == kNoValue ? kNoNode : graph.producer(value);
  if (n == kNoNode) return kNoValue;
  if (graph.Is(n, "Reciprocal")) return graph.inputs(n)[0];
  if (!graph.Is(n, "Div")) return kNoValue;
  // A 1 of higher rank than y would give the inverse more axes.
  const sym::Form one = pair.forms().Of(graph.inputs(n)[0]),
                  y = pair.forms().Of(graph.inputs(n)[1]);
  const bool fits = one.known_rank && y.known_rank && one.shape.size() <= y.shape.size();
  return fits && NumberOf(pair.forms(), graph.inputs(n)[0]) == 1 ? graph.inputs(n)[1] : kNoValue;
}

// Returns the quotients that a Div or Mul may be; a product of two inverses is two of them.
std::vector<Division> QuotientsOf(const GraphPair& pair, NodeId n) {
  const Graph& graph = pair.graph();
  const ValueId a = graph.inputs(n)[0], b = graph.inputs(n)[1];
  if (graph.Is(n, "Div")) return {{a, b, kNoValue}};
  std::vector<Division> quotients;
  if (!graph.Is(n, "Mul")) return quotients;
  for (const auto& [x, inverse] : {std::pair(a, b), std::pair(b, a)}) {
    const ValueId y = Inverted(pair, inverse);
    if (y != kNoValue) quotients.push_back({x, y, inverse});
  }
  return quotients;
}

}  // namespace

bool IsSameQuotient(const GraphPair& pair, const Correspondence& twins, NodeId mine, NodeId theirs,
                    absl::FunctionRef<bool(ValueId mine, ValueId theirs)> same) {
  const Graph& graph = pair.graph();
  const bool fits = (graph.Is(mine, "Div") && graph.Is(theirs, "Mul")) ||
                    (graph.Is(mine, "Mul") && graph.Is(theirs, "Div"));
  const auto type = [&](NodeId n) { return pair.forms().ElementType(graph.outputs(n)[0]); };
  if (!fits || !IsFloatType(type(mine)) || type(mine) != type(theirs)) return false;
  for (const Division& own : QuotientsOf(pair, mine)) {
    for (const Division& other : QuotientsOf(pair, theirs)) {
      twins.TakeGrounds();
      if (!same(own.dividend, other.dividend) || !same(own.divisor, other.divisor)) continue;
      const ValueId inverse = own.inverse == kNoValue ? other.inverse : own.inverse;
      twins.RestOn({AssumptionKind::kFinite, pair.NameOf(inverse),
                    fmt::format("{} holds finite numbers", pair.NameOf(inverse)),
                    AssumptionSource::kHost});
      twins.RestOnLemma(lemmas::kQuotient);
      return true;
    }
  }
  return false;
}

}  // namespace kvlift
