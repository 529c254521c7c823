#include "proof/lemmas/exact_cast.h"

#include "proof/lemmas/names.h"
#include "sym/forms/broadcast.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

sym::Expr BeforeExactCast(sym::Forms& forms, sym::Expr e, const sym::Facts& facts,
                          Grounds* grounds) {
  if (e->kind() != sym::Kind::kLoad) return nullptr;
  const NodeId n = forms.graph().producer(e->source());
  const ValueId operand = sym::ExactOperand(forms, n);
  if (operand == kNoValue) return nullptr;
  if (!forms.graph().Is(n, "Identity")) grounds->AddLemma(lemmas::kExactCast);
  return sym::BroadcastAt(forms, operand, e->args(), facts);
}

}  // namespace kvlift
