// Splits an attention's mask into what is_causal says and what has to be drawn.
#pragma once

#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

struct Visibility {
  bool causal = false;       // t <= P + s is one of the conjuncts
  sym::Expr rest = nullptr;  // the conjunction of the others; True if none
};

// past_length: P as the key cache names it. Lengths of other caches and the total length count as
// the same: all caches of a step hold the same number of tokens.
Visibility ReadVisibility(sym::Forms& forms, const AttentionSite& site, sym::Expr past_length);

}  // namespace kvlift
