// Shows that padding tokens behind a sequence do not change the source's results for its real
// tokens.
//
// A converted model takes sequences of different lengths in one step, the shorter ones with padding
// tokens behind. A source with growing caches is run for each sequence alone, without them. Both
// compute the same for the real tokens if no token of a step reads a later one, and if nothing
// depends on the number of tokens.
//
// Statement: let v be a value of the source in a step of S tokens, and v' the same value in a step
// that has only the first S' of them. Then v' is v at the first S' tokens, on each axis of tokens
// [S], of keys [P + S], or of both sequences and tokens [B * S]. This is shown for each result from
// the elements of the operands that it is computed from (proof/graphs/operand_places.h), and for an
// attention from its queries, keys, values, bias and visible keys, which must not lie behind the
// query's own token.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/graphs/attention_reading.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// The source's attentions that were proved, by their results.
using ReadAttentions = absl::flat_hash_map<ValueId, AttentionReading>;

// Why padding tokens may change the results for real tokens.
struct PaddingReach {
  std::string why;  // empty if they do not; else names an output or cache
  // They change them even if the source is given the same padding tokens, since its caches keep
  // them: something depends on the number of tokens, or takes in all rows of a cache.
  bool with_same_padding = false;
};

// Judges all outputs and caches that the manifest compares, up to the first for which the statement
// is not shown. A step of one token has no padding tokens.
PaddingReach ReachOfPadding(const GraphPair& pair, const Correspondence& twins,
                            const ReadAttentions& attentions, const Manifest& relation);

// Finds out whether a real token may read, outside the attentions, what an attention computed for
// another token of its step, or may see the keys of padding tokens in an attention. For padding
// tokens in front of a sequence, whose queries see no key, attentions of the two models may compute
// different rows; these must not reach real tokens.
PaddingReach ReachOfRowsWithoutKeys(const GraphPair& pair, const Correspondence& twins,
                                    const ReadAttentions& attentions, const Manifest& relation);

}  // namespace kvlift
