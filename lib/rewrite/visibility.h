// Splits an attention's mask into what is_causal says and what has to be drawn.
#pragma once

#include <cstdint>
#include <optional>

#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

struct Visibility {
  bool causal = false;       // t <= P + s is one of the conjuncts
  sym::Expr rest = nullptr;  // the conjunction of the others; True if none
};

// start: the slot of the first new token as the key cache names it. Lengths of other caches and the
// total length count as the same: all caches of a step hold the same number of tokens.
// one_token: steps have one query.
Visibility ReadVisibility(sym::Forms& forms, sym::Expr keep, sym::Expr start,
                          bool one_token = false);

// Of a part that says how far a query sees back: in tokens before its own, W - 1 of a window of W.
std::optional<int64_t> TokensBack(sym::Pool& pool, sym::Expr part, sym::Expr start, bool one_token);

}  // namespace kvlift
