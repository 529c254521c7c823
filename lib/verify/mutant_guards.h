// What hides keys from tokens in the last attention of a model, and mutants without it.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "verify/mutant_maker.h"
#include "verify/mutants.h"

namespace kvlift {

// A mask's place: an operand of Attention, or of the sum or selection in front of a softmax.
struct MaskSite {
  NodeId node = kNoNode;
  int mask = 0;    // operand
  int scores = 0;  // operand that stays where the mask is dropped; of Attention: none
  bool attention = false;
};

std::optional<MaskSite> LastMask(const Graph& graph);
// The last Attention that is told how many keys are valid, or has a mask or a causal flag.
std::optional<NodeId> LastAttention(const Graph& graph);

// Takes the mask away from the node of the site.
void DropMask(const MaskSite& site, onnx::NodeProto* node);

}  // namespace kvlift
