// Random changes of one place of a model. Many change its result only beyond some length, for some
// types or for some numbers, and some do not change it at all.
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

// Returns the types of all values that ONNX's shape inference finds.
Types InferredTypes(const onnx::ModelProto& model);

// Makes one change and returns it as "Min at Gather/1": the change, and the input that reads its
// result. Empty if no place was found.
std::string Edit(onnx::ModelProto* model, const Types& types, Random& random);

}  // namespace kvlift::soundness
