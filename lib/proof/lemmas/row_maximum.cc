#include "proof/lemmas/row_maximum.h"

#include "proof/lemmas/names.h"
#include "sym/forms/row_softmax.h"

namespace kvlift {

ValueId WithoutRowMaximum(sym::Forms& forms, ValueId value, Grounds* grounds) {
  const ValueId x = sym::WithoutMaximum(forms, value);
  if (x != kNoValue) grounds->AddLemma(lemmas::kRowMaximum);
  return x;
}

}  // namespace kvlift
