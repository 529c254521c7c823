// Finds the conditions that hide keys in the last attention of a model: a mask, a causal flag, the
// number of valid keys.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutants.h"

namespace kvlift {

// The node that applies a mask: an Attention, or the Add or Where in front of a Softmax.
struct MaskSite {
  NodeId node = kNoNode;
  int mask = 0;            // index of the operand that is the mask, of Where the condition
  int scores = 0;          // index of the operand that is the scores; unused for Attention
  bool attention = false;  // the node is an Attention
};

// Returns the last mask in the order of the nodes. nullopt if there is none, or if a later
// Attention has no mask operand.
std::optional<MaskSite> LastMask(const Graph& graph);
// Returns the last Attention with the operand nonpad_kv_seqlen (Attention-24).
std::optional<NodeId> LastAttention(const Graph& graph);

// Removes the mask from the site's node: Attention loses the operand, an Add or Where becomes the
// identity of its scores.
void DropMask(const MaskSite& site, onnx::NodeProto* node);

}  // namespace kvlift
