// Writes the masks and positions of the attentions that ExpandContribOps expands. Lengths are int64
// [1]. Internal to lib/proof. Source: com.microsoft GroupQueryAttention and MultiHeadAttention.
#pragma once

#include <cstdint>
#include <string>

#include "proof/lower/contrib_writer.h"

namespace kvlift::plain {

// Adds nodes for the positions P + s [B, S], for each sequence and token s. `queries` is [B, S,
// ...]. Returns the name of the result.
std::string Positions(const std::string& queries, const std::string& past,
                      const std::string& tokens, Writer& w);
// Adds nodes for the mask [S, P + S] of the causal order: key t is visible to token s if t <= P +
// s.
std::string InOrder(const std::string& past, const std::string& tokens, Writer& w);
// Adds nodes for the mask [S, P + S] of a sliding window: key t is visible to token s if t > P + s
// - window.
std::string InWindow(int64_t window, const std::string& past, const std::string& tokens, Writer& w);
// Adds nodes for the slot of the first new row of each sequence in a buffer, [B]: 0 where `total`,
// the length of the longest sequence with its new tokens, is the number of new tokens, and else
// last + 1 - S. last: [B] or [B, 1], the slot of the last token. `tokens` and `total` hold one
// number.
std::string FirstSlots(const std::string& last, const std::string& total, const std::string& tokens,
                       Writer& w);
// Adds nodes for the slot of each new row, [B, S], from FirstSlots.
std::string SlotsOfRows(const std::string& first, const std::string& tokens, Writer& w);
// Adds nodes for the mask [B, 1, S, M] over a buffer of M slots: slot t is visible to the row in
// slot r if t <= r and, with a window of 1 or more, t > r - window. slots: SlotsOfRows.
std::string OfSlots(int64_t window, const std::string& slots, const std::string& capacity,
                    Writer& w);
// Adds nodes for what a key_padding_mask [B, P + S] adds to scores, [B, 1, 1, P + S] of element
// type `type`: 0 where it is positive, and `low` elsewhere.
std::string OfPadding(const std::string& mask, float low, int32_t type, Writer& w);

// Adds nodes for what is added to the scores of N = `heads` query heads over T keys and a sink
// behind them, [B or 1, N, S, T + 1] of element type `type`: 0 where `seen`, bool [S, T] or
// [B, 1, S, T], holds, -inf elsewhere, and the sink's score. `sink`: [N]; empty: its scores are 0.
std::string WithSink(const std::string& seen, const std::string& sink, int64_t heads, int32_t type,
                     const std::string& tokens, Writer& w);
// Adds nodes that append a row of zeros to rows [B, N, T, D].
std::string WithZeros(const std::string& rows, int64_t heads, int64_t size, int32_t type,
                      Writer& w);

}  // namespace kvlift::plain
