// Lemma heads-regrouped. If H query heads share K key/value heads and H = G K,
//
//   attention(q, k, v)[b, h] = attention of q[b, h] over k[b, h div G] and v[b, h div G]
//
// Query heads of a group read the same keys, so they may also be further rows of one head: row g *
// S + s of head k is token s of query head k * G + g. Side conditions: H is a multiple of K; there
// are G times as many rows as tokens; and heads of a group are adjacent. Heads assigned in turn (h
// mod K) would read other keys. Source: ONNX Attention-24, grouped-query attention.
#pragma once

#include <cstdint>
#include <optional>

#include "proof/graphs/attention_reading.h"

namespace kvlift {

// Returns G if `heads` query heads can share `key_heads` key/value heads; nullopt if the numbers do
// not fit.
std::optional<int64_t> GroupSize(int64_t heads, int64_t key_heads);
// Returns G if `stacked` has G times fewer heads than `plain`, and its `rows` rows are G times the
// `tokens` tokens, both in the source's terms. Returns 1 if both have the same heads, and nullopt
// if they do not fit.
std::optional<int64_t> GroupsAsRows(sym::Pool& pool, const AttentionReading& plain,
                                    const AttentionReading& stacked, sym::Expr rows,
                                    sym::Expr tokens);
// Return the part of a reading that belongs to member g of each group, over the same indices for
// both arrangements: i1 counts the key/value heads and i2 the tokens.
AttentionReading OfPlainHeads(sym::Pool& pool, AttentionReading plain, int64_t groups, int64_t g);
AttentionReading OfStackedRows(sym::Pool& pool, AttentionReading stacked, sym::Expr tokens,
                               int64_t g);

}  // namespace kvlift
