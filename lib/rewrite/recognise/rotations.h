// Finds RoPE that is spelt out, of which one RotaryEmbedding-23 gives the same bits:
//
//   y[d] = x[d] * cos[d] - x[d + D/2] * sin[d]        for d < D/2
//   y[d] = x[d] * cos[d] + x[d - D/2] * sin[d]        otherwise
//
// x: [B, N, S, D], float32, D even. cos, sin: [B or 1, 1, S, D], float32; their second half repeats
// the first. The operator computes the same sums and products, so the bits are the same if each of
// them is rounded.
// Source: ONNX RotaryEmbedding-23.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "ir/graph.h"

namespace kvlift {

struct NodeOperand {
  NodeId node = kNoNode;
  int index = 0;
};

struct Rotation {
  NodeId node = kNoNode;  // an Add, which gives y
  NodeOperand x, cosine, sine;
  int64_t half = 0;          // D/2
  bool one_for_all = false;  // the tables have a batch of 1, x may have a larger one
};

// Returns true if an operand has one row per sequence on axis 0 where the graph has one for all.
using IsWidened = absl::FunctionRef<bool(const NodeOperand&)>;

// Returns all rotations, by node.
std::vector<Rotation> FindRotations(const Graph& graph, IsWidened is_widened);

}  // namespace kvlift
