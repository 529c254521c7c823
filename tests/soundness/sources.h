// Small decoders: one layer with one or two heads of two elements, a vocabulary of four tokens, and
// a growing cache. Dimensions are named B, S, P and T = P + S.
#pragma once

#include <optional>

#include "onnx/onnx_pb.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

enum class MaskInput { kNone, kPadding, kPaddingAdded, kAdded, kPaddingTruth };
enum class Places { kByLength, kInput, kNone, kByMask };

// What is drawn where nothing is said.
struct Choices {
  std::optional<MaskInput> mask;
  std::optional<Places> places;
  std::optional<bool> tokens_first;  // caches [B, P, N, D]
  std::optional<bool> windowed;      // a token sees the last few only
  bool reordered = false;            // a Gather of the past by the input `beams`
  int64_t opset = 0;                 // 0: any
};

onnx::ModelProto DrawSource(Random& random, const Choices& choices = {});

}  // namespace kvlift::soundness
