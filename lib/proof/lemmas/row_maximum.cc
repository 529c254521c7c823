#include "proof/lemmas/row_maximum.h"

#include "proof/lemmas/names.h"
#include "sym/forms/row_maximum.h"

namespace kvlift {

ValueId WithoutRowMaximum(sym::Forms& forms, NodeId node, Grounds* grounds) {
  const ValueId x = sym::LessRowMaximum(forms, node);
  if (x != kNoValue) grounds->AddLemma(lemmas::kRowMaximum);
  return x;
}

}  // namespace kvlift
