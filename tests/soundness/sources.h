// Small random decoders: one layer with one or two heads of two elements, a vocabulary of four
// tokens, and a growing cache. Dimensions are named B, S, P and T = P + S.
#pragma once

#include <optional>

#include "onnx/onnx_pb.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

// The mask input: none; an integer padding mask [B, T], used as a condition or added as a bias; a
// float mask [B, 1, S, T] that is added to scores; a bool padding mask [B, T].
enum class MaskInput { kNone, kPadding, kPaddingAdded, kAdded, kPaddingTruth };
enum class Places { kByLength, kInput, kNone, kByMask };

// Properties of the decoder; those without a value are drawn.
struct Choices {
  std::optional<MaskInput> mask;
  std::optional<Places> places;
  std::optional<bool> tokens_first;  // caches [B, P, N, D]
  std::optional<bool> windowed;      // sliding window: a token sees the last few tokens only
  bool reordered = false;            // a Gather reorders the past by the input `beams`
  int64_t opset = 0;                 // 0: any
};

onnx::ModelProto DrawSource(Random& random, const Choices& choices = {});

}  // namespace kvlift::soundness
