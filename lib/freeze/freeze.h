// Makes an instance of a converted model with static shapes, for one number of sequences and one of
// new tokens. Engines that take no dynamic shapes need it.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "freeze/request.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Frozen {
  std::optional<onnx::ModelProto> model;  // absent: `refusal` says why
  Manifest manifest;                      // the converted model's, with the sizes in `frozen`
  std::optional<Finding> refusal;
};

// Declares the sizes at the inputs, replaces values that are computed from shapes alone by
// constants, and declares the type of every value. Refuses (KV260) if a size is not assigned or
// does not fit, and (KV261) at a value whose shape depends on data. Fails as Graph::Build.
absl::StatusOr<Frozen> Freeze(const onnx::ModelProto& converted, const Manifest& manifest,
                              const FreezeSizes& sizes);

}  // namespace kvlift
