// Expands fused operators of other domains around attention into ONNX's own operators, by the texts
// of these operators.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A condition on the lengths that a GroupQueryAttention is given. Its expansion is right only if
// the condition holds, which the proof has to show.
struct LengthClaim {
  std::string value;    // a value of the model
  std::string past;     // the operator's past keys [B, Nk, P, D]
  std::string queries;  // its queries [B, S, ...]
  int64_t less = 0;     // every element of `value` is P + S - less
};

// An input that a relation says is a sliding buffer of a GroupQueryAttention with
// sliding_window_cache.
struct SlidingPast {
  std::string input, output;
  int64_t axis = 0;  // of the rows
  SlidingBuffer buffer;
};

// The expanded model, and what its expansion assumes.
struct ExpandedModel {
  onnx::ModelProto model;
  std::vector<LengthClaim> claims;
  // Values that hold the positions of the new tokens: P + s for each sequence and token s. The
  // operator reads only the first of them in a step without a past, and counts up from there.
  std::vector<std::string> positions;
  // The inputs of the SlidingPasts whose node was expanded. They are pasts of all P rows in the
  // expanded model.
  std::vector<std::string> grown;
};

// The prefix of the names of values that an expansion makes.
inline constexpr char kExpandedPrefix[] = "plain/";

// Expands SimplifiedLayerNormalization to RMSNormalization, MultiHeadAttention and Attention of
// com.microsoft with a past to Attention and the nodes around it, KeyValueCache
// (onnxio/model/functional_form.h) to slices and concatenations of its tensors, and an Einsum that
// is a product of matrices to one. With `lengths`, also expands GroupQueryAttention, which rests on
// LengthClaims. A GroupQueryAttention over sliding buffers is expanded if `sliding` names them as
// the graph has them: its results are those of pasts with all rows. Nodes in subgraphs, and forms
// of these operators that are not known, stay as they are. Source: the operator texts of
// com.microsoft, and of OpenPPL's KeyValueCache.
ExpandedModel ExpandContribOps(onnx::ModelProto model, bool lengths,
                               const std::vector<SlidingPast>& sliding);

}  // namespace kvlift
