// Attention in which the query heads of a group are further rows of one head: row g * S + s of head
// k is token s of query head k * G + g.
#pragma once

#include <cstdint>
#include <optional>

#include "proof/attention_reading.h"

namespace kvlift {

// G, if `stacked` has so many fewer heads than `plain` and so many more rows; `rows` are its rows
// by the terms of the other. 1 if both have the same heads.
std::optional<int64_t> GroupsAsRows(sym::Pool& pool, const AttentionReading& plain,
                                    const AttentionReading& stacked, sym::Expr rows,
                                    sym::Expr tokens);
// Group g: i1 counts the heads of keys, i2 the tokens.
AttentionReading OfPlainHeads(sym::Pool& pool, AttentionReading plain, int64_t groups, int64_t g);
AttentionReading OfStackedRows(sym::Pool& pool, AttentionReading stacked, sym::Expr tokens,
                               int64_t g);

}  // namespace kvlift
