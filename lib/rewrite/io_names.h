// Names of caches at the interface that say role and layer: key_cache.0 and updated_key_cache.0, as
// exporters of static caches write them.
#pragma once

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Renames the caches' inputs and outputs in the model and in its manifest. A finding, and nothing
// renamed, if a cache is neither of keys nor of values, or a name is taken.
absl::StatusOr<std::optional<Finding>> NameCachesByLayer(onnx::ModelProto* model,
                                                         Manifest* manifest);

}  // namespace kvlift
