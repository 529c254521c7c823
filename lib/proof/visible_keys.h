// Queries that a mask leaves no key, whatever the host feeds.
#pragma once

#include <string>

#include "sym/expr.h"

namespace kvlift {

// A step with a query that sees no key: "past 3, new 2, query 1". visible: whether query i2 sees
// key i3 of `keys`, after `past` tokens and with `tokens` new ones. Only sizes near the numbers
// that stand in it are tried; past may be null, for buffers that the host counts. Empty if no such
// query is found, or if a mask of the host decides.
std::string QueryWithoutKeys(sym::Pool& pool, sym::Expr visible, sym::Expr past, sym::Expr tokens,
                             sym::Expr keys);

// Whether a number is added that is so large that scores are rounded away beside it.
bool RoundsScoresAway(sym::Expr added);

}  // namespace kvlift
