// Pasts of GroupQueryAttention with sliding_window_cache: buffers for the newest tokens, whose rows
// the operator moves to the front when they are full (SlidingBuffer of contract/manifest.h). The
// queries of a step see W tokens at most, and a buffer never drops one of the newest W. The results
// are therefore those of the operator without the attribute, over a past that grows and keeps all
// rows. Internal to lib/rewrite. Source: the contrib operator text of ONNX Runtime 1.31.
#pragma once

#include <array>
#include <string>

#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {

// The positions of a GroupQueryAttention's operands and results: pasts and presents of keys and
// values, and the attention_bias.
struct SlidingOperands {
  std::array<int, 2> pasts, presents;
  int bias = 0;
};

// Returns true if the node is a GroupQueryAttention whose pasts are such buffers.
bool HasSlidingBuffers(const onnx::NodeProto& node);
// Returns why the pasts of such a node cannot become pasts that grow, as the end of a sentence;
// empty if they can.
std::string WhyNotSliding(Lowering& l, NodeId n, const SlidingOperands& at);
// Returns P: the rows of the pasts of other nodes, or else a symbol of its own.
sym::Expr PastLength(Lowering& l, const SlidingOperands& at);
// Declares the pasts of such a node as pasts of P rows, and records their buffers.
void DeclareAllRows(Lowering& l, NodeId n, const SlidingOperands& at);

}  // namespace kvlift::fused
