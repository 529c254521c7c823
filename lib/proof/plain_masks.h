// Masks and positions of attentions. Lengths are vectors of one element. Internal to lib/proof.
// Source: com.microsoft GroupQueryAttention and MultiHeadAttention.
#pragma once

#include <cstdint>
#include <string>

#include "proof/plain_writer.h"

namespace kvlift::plain {

// Adds nodes for the positions P + s [B, S], for each sequence and token s. `queries` is [B, S,
// ...]. Returns the name of the result.
std::string Positions(const std::string& queries, const std::string& past,
                      const std::string& tokens, Writer& w);
// The mask [S, P + S] of the causal order: key t is visible to token s if t <= P + s.
std::string InOrder(const std::string& past, const std::string& tokens, Writer& w);
// The mask [S, P + S] of a sliding window: key t is visible to token s if t > P + s - window.
std::string InWindow(int64_t window, const std::string& past, const std::string& tokens, Writer& w);
// What a key_padding_mask [B, P + S] adds to scores, as [B, 1, 1, P + S] of element type `type`:
// 0 where it is positive, and `low` elsewhere.
std::string OfPadding(const std::string& mask, float low, int32_t type, Writer& w);

}  // namespace kvlift::plain
