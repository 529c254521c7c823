#include "proof/lemmas/nan_guard.h"

#include "fmt/format.h"
#include "proof/lemmas/exact_cast.h"
#include "proof/lemmas/names.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMostGuardSteps = 16;

struct NanTest {
  Expr tested = nullptr;
  bool is_nan = true;  // the condition means NaN; false: not NaN
};

NanTest ReadTest(sym::Forms& forms, Expr condition) {
  NanTest test;
  for (int k = 0; k < kMostGuardSteps; ++k) {
    if (condition->kind() == Kind::kNot || condition->kind() == Kind::kEq) {
      condition = condition->args()[0];
      test.is_nan = !test.is_nan;
    } else if (condition->kind() == Kind::kApply && condition->function() == "isnan") {
      test.tested = condition->args()[0];
      return test;
    } else if (condition->kind() == Kind::kLoad) {
      const Graph& graph = forms.graph();
      const NodeId n = graph.producer(condition->source());
      if (n == kNoNode || !graph.Is(n, "IsNaN")) return {};
      test.tested = forms.At(graph.inputs(n)[0], condition->args(), sym::Facts{});
      return test;
    } else {
      return {};
    }
  }
  return {};
}

// Returns the element before any exact casts.
Expr Origin(sym::Forms& forms, Expr e, Grounds* grounds) {
  for (int k = 0; k < kMostGuardSteps; ++k) {
    const Expr inner = BeforeExactCast(forms, e, sym::Facts{}, grounds);
    if (inner == nullptr) break;
    e = inner;
  }
  return e;
}

}  // namespace

Expr WithoutNanGuard(sym::Forms& forms, Expr select, Grounds* grounds) {
  const NanTest test = ReadTest(forms, select->args()[0]);
  if (test.tested == nullptr) return nullptr;
  const Expr cleared = select->args()[test.is_nan ? 1 : 2];
  const Expr handed_on = select->args()[test.is_nan ? 2 : 1];
  const bool same = test.tested == handed_on ||
                    Origin(forms, test.tested, grounds) == Origin(forms, handed_on, grounds);
  if (!cleared->is_integer(0) || !same) return nullptr;
  grounds->AddLemma(lemmas::kNanGuard);
  return handed_on;
}

Assumption ScoresAreNumbers(const std::string& attention) {
  return {AssumptionKind::kFinite, attention, fmt::format("no score of {} is NaN", attention),
          AssumptionSource::kHost};
}

}  // namespace kvlift
