#include "proof/correspondence/length_limits.h"

#include <optional>

#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Reads `sum` <= 0 as a bound on P and S; nullopt if it is not one.
std::optional<LengthLimit> LimitOf(Expr sum, const Correspondence& twins) {
  LengthLimit limit;
  if (sum->kind() != Kind::kSum) return std::nullopt;
  for (const sym::Term& term : sum->terms()) {
    if (term.atoms.empty()) {
      limit.most = -term.coefficient;
    } else if (term.atoms.size() == 1 && term.atoms[0] == twins.past()) {
      limit.past = term.coefficient;
    } else if (term.atoms.size() == 1 && term.atoms[0] == twins.new_tokens()) {
      limit.tokens = term.coefficient;
    } else {
      return std::nullopt;
    }
  }
  return limit;
}

}  // namespace

std::vector<LengthLimit> LengthLimitsOf(const GraphPair& pair, const Correspondence& twins) {
  std::vector<LengthLimit> limits;
  if (twins.past() == nullptr || twins.new_tokens() == nullptr) return limits;
  for (const sym::FormAssumption& assumption : pair.forms().assumptions()) {
    if (pair.IsInAfter(assumption.node)) continue;
    if (assumption.reason != sym::AssumptionReason::kInside) continue;
    for (Expr part : sym::ConjunctsOf(assumption.predicate)) {
      const Expr normal = twins.Normal(part, sym::Facts{});
      if (normal->kind() != Kind::kLe || normal->has_index()) continue;
      if (auto limit = LimitOf(normal->args()[0], twins)) {
        limit->condition = assumption.text;
        limits.push_back(*std::move(limit));
      }
    }
  }
  return limits;
}

}  // namespace kvlift
