// Searches for queries that see no key because of sizes, positions and padding alone.
#pragma once

#include <string>

#include "sym/expr/expr.h"

namespace kvlift {

// Returns a step with a query that sees no key, as text: "past 3, new 2, query 1". `visible`: the
// predicate that query i2 sees key i3, with `past` = P, `tokens` = S and `keys` keys. P may be
// null, for buffers whose length the host counts. Only a few sizes are tried, among them those near
// the numbers in `visible`. Returns an empty string if no such query is found, or if an input of
// the host, such as a mask, decides.
std::string QueryWithoutKeys(sym::Pool& pool, sym::Expr visible, sym::Expr past, sym::Expr tokens,
                             sym::Expr keys);

// Returns true if the search finds a query of a token that loses all its keys when a mask of the
// host hides padding tokens. Padding stands in front of a sequence, or between its prompt and its
// answer. Elements that `visible` loads for each key are taken to be those of the mask; false if it
// loads none.
bool PaddingHidesAllKeys(sym::Pool& pool, sym::Expr visible, sym::Expr past, sym::Expr tokens,
                         sym::Expr keys);

// Returns true if `added`, a summand of scores, is a number above 1000 in any of its cases. The
// scores then keep few of their bits.
bool RoundsScoresAway(sym::Expr added);

}  // namespace kvlift
