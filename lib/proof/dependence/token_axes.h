// Finds what the axes of a source's values count in a step of S new tokens behind P past ones:
// tokens, keys, or tokens together with sequences or with parts of tokens. Internal to lib/proof.
#pragma once

#include "sym/expr/expr.h"

namespace kvlift {

// The things that the indices of an axis count.
enum class Along {
  kNoTokens,
  kTokens,              // [S]
  kKeys,                // [P + S]
  kSequencesAndTokens,  // [c * S], with the tokens of a sequence next to each other
  kTokensAndParts,  // [S * c], with the c parts of a token, such as its heads, next to each other
  kUnknown,         // the extent depends on S in another way, or is known only when the model runs
};

class TokenAxes {
 public:
  // past, tokens, total: P, S and P + S; S is a dim symbol.
  TokenAxes(sym::Pool& pool, sym::Expr past, sym::Expr tokens, sym::Expr total)
      : pool_(pool), past_(past), new_(tokens), total_(total) {}

  // Returns what an axis of this extent stands for; the extent is in the source's terms. An extent
  // c * S says neither which of the two kinds its axis is: `in_parts` chooses kTokensAndParts where
  // c is a number.
  Along AlongOf(sym::Expr extent, bool in_parts = false) const;
  // Returns the number of the token in its step that lies at `at` on an axis; below 0 for tokens of
  // the past. Null: kNoTokens and kUnknown have none.
  sym::Expr TokenAt(Along along, sym::Expr at, sym::Expr extent, const sym::Facts& facts) const;
  // Returns true if an expression contains S.
  bool CountsTokens(sym::Expr e) const;
  // Returns true if an expression contains an extent that no input declares, and that is no past.
  bool HoldsUnknownSize(sym::Expr e) const;

 private:
  sym::Pool& pool_;
  const sym::Expr past_, new_, total_;
};

}  // namespace kvlift
