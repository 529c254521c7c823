#include "proof/lemmas/scale_moved.h"

#include <cmath>

#include "ir/types.h"
#include "proof/number.h"

namespace kvlift {
namespace {

bool CanBeMoved(double number) { return std::isfinite(number) && number != 0; }

}  // namespace

std::optional<Factor> ReadFactor(sym::Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  const bool divides = graph.Is(node, "Div");
  if (!divides && !graph.Is(node, "Mul")) return std::nullopt;
  if (!IsFloatType(forms.ElementType(graph.outputs(node)[0]))) return std::nullopt;
  for (int k : {1, 0}) {
    const auto number = NumberOf(forms, graph.inputs(node)[k]);
    if (!number || (divides && k == 0)) continue;
    const double factor = divides ? 1 / *number : *number;
    if (!CanBeMoved(*number) || !CanBeMoved(factor)) return std::nullopt;
    return Factor{graph.inputs(node)[1 - k], factor};
  }
  return std::nullopt;
}

bool IsScale(double s) { return std::isfinite(s) && s > 0; }

bool AreOneScale(double mine, double theirs) {
  constexpr double kTwoRoundings = 0x1p-23;
  return IsScale(mine) && IsScale(theirs) && std::abs(mine - theirs) <= kTwoRoundings * theirs;
}

bool AreOtherScales(double mine, double theirs) {
  constexpr double kManyRoundings = 1e-6;
  if (!std::isfinite(mine) || !std::isfinite(theirs)) return mine != theirs;
  return !(std::abs(mine - theirs) <= kManyRoundings * std::abs(theirs));
}

}  // namespace kvlift
