// Reads an Attention node for its lowerings, and computes its mask. Internal to lib/lower.
#pragma once

#include <limits>
#include <string>

#include "lower/lowering.h"

namespace kvlift::lower {

// The number that is added to the score of a key that a query does not see.
inline constexpr double kHidden = -std::numeric_limits<double>::infinity();

enum AttentionInput { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kNonpad };
enum AttentionOutput { kResult, kPresentKey, kPresentValue, kScores };

// Letters as in the glossary: N query heads, Nk heads of keys and values, S new tokens, T keys.
struct AttentionOperands {
  NodeId node = kNoNode;
  bool rank3 = false;
  int seq = 2;  // the axis of S in the queries, and of the new keys in the keys
  bool causal = false, has_past = false, has_nonpad = false;
  bool has_mask = false, float_mask = false;
  bool whole_mask = false;  // the mask has a column for each of the T keys
  int32_t type = 0;         // element type of the queries
};

// Reads the node into *site. Returns why the node cannot be lowered; empty if it can.
std::string ReadAttention(Lowering& l, NodeId n, AttentionOperands* site);

// Adds nodes for T and returns the name of the result, int64 [1].
std::string KeyLength(Lowering& l, const AttentionOperands& site);

// Adds nodes for the keys that is_causal and nonpad_kv_seqlen leave visible to each query. Returns
// the name of the result, bool [B or 1, 1, S or 1, T] or [S, T]; empty if the node has neither.
//
//   causal   t <= o + s, where o = nonpad_kv_seqlen[b] - S, or else P, or else 0
//   nonpad   t < nonpad_kv_seqlen[b], which the causal condition implies
std::string ShownKeys(Lowering& l, const AttentionOperands& site);

// Returns the name of the node's mask, padded to a column for each key: keys behind its last column
// are hidden.
std::string MaskForAllKeys(Lowering& l, const AttentionOperands& site);

// Replaces the node by operators of opset 22 (decompose_attention.cc). Returns why it cannot; empty
// if it did.
std::string Decompose(Lowering& l, const AttentionOperands& site);

}  // namespace kvlift::lower
