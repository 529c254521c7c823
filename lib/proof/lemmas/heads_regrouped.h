// Lemma heads-regrouped. Where H query heads share K heads of keys, H = G K
//
//   attention(q, k, v)[b, h] = attention of q[b, h] over k[b, h div G] and v[b, h div G]
//
// and, as heads of a group read the same keys, they may be further rows of one head: row g * S + s
// of head k is token s of query head k * G + g. Side conditions: H is a multiple of K, and the
// number of rows is G times that of tokens; heads of a group follow one another. Heads that are
// dealt out in turn, h mod K, read other keys. Source: ONNX's text of Attention-24, Group-query
// Attention.
#pragma once

#include <cstdint>
#include <optional>

#include "proof/attention_reading.h"

namespace kvlift {

// G, if so many query heads share so many heads of keys; nullopt if they do not fit each other.
std::optional<int64_t> GroupSize(int64_t heads, int64_t key_heads);
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
