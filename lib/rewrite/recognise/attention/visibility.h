// Splits the predicate of an attention's mask into what is_causal expresses and the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Reads `part` as condition ? first : second, all predicates. Returns nullopt if it is anything
// else.
std::optional<std::pair<sym::Expr, sym::Expr>> SplitBy(sym::Pool& pool, sym::Expr part,
                                                       sym::Expr condition);

struct Visibility {
  bool causal = false;       // t <= start + s is one of the conjuncts
  sym::Expr rest = nullptr;  // the conjunction of the other conjuncts; True if there are none
};

// keep: AttentionMask::keep. start: the slot of the first new token; only a conjunct that names it
// by the same expression counts as causal, also if it splits the cases of a start such as
// max(start, 0). one_token: S is 1, so the bound is t <= start.
Visibility ReadVisibility(sym::Forms& forms, sym::Expr keep, sym::Expr start,
                          bool one_token = false);

// If `part` is a sliding-window bound, t >= start + s - g: returns g, the number of tokens in front
// of its own that a query sees, W - 1 for a window of W tokens. Returns nullopt for all else.
std::optional<int64_t> TokensBack(sym::Pool& pool, sym::Expr part, sym::Expr start, bool one_token);

}  // namespace kvlift
