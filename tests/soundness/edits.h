// Random changes of one place of a model. Many of them change what it computes only beyond some
// length, in some type or for some numbers, and some not at all.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

struct TypeOf {
  int32_t type = 0;
  int rank = 0;
};
using Types = absl::flat_hash_map<std::string, TypeOf>;

// Of all values whose type ONNX infers.
Types InferredTypes(const onnx::ModelProto& model);

// What was changed, as "Min at Gather/1": the change and where its result is read. Empty: nothing,
// for want of a place.
std::string Edit(onnx::ModelProto* model, const Types& types, Random& random);

}  // namespace kvlift::soundness
