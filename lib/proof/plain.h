// Operators of other domains around attention, written in ONNX's own: the text of each operator.
#pragma once

#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

// What stands in the place of an operator holds where this is so; the proof has to show it.
struct LengthClaim {
  std::string value;    // of the model
  std::string past;     // the operator's past keys [B, Nk, P, D]
  std::string queries;  // its queries [B, S, ...]
  int64_t less = 0;     // every element is P + S less this
};

struct PlainModel {
  onnx::ModelProto model;
  std::vector<LengthClaim> claims;
};

// Values that are made in the place of an operator begin with this.
inline constexpr char kPlainPrefix[] = "plain/";

// Writes model-level nodes in ONNX's own operators: SimplifiedLayerNormalization as
// RMSNormalization, MultiHeadAttention and GroupQueryAttention with a past of their own as
// Attention with what is around it, KeyValueCache (onnxio/in_out.h) as splices of its tensors.
// Forms that are not known stay as they are. `lengths`: also what rests on a LengthClaim.
PlainModel AsPlain(onnx::ModelProto model, bool lengths);

}  // namespace kvlift
