// Caches that were parts of one tensor of the source, kept in one tensor (--cache-tensors packed).
//
// The parts lie one behind the other on the sequence axis: [B, L, 2, M, Nk, D] is a buffer of
// 2 * L * M rows, in which row m of layer l's keys is row 2 * l * M + m, and that of its values
// (2 * l + 1) * M + m. Each layer writes at an offset into what the layer in front of it gave, so
// that one buffer is enough, and attention reads a Slice of it. Heads stay in front of the rows
// where the parts have them there: [B, Nk, L, 2, M, D].
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "rewrite/convert.h"

namespace kvlift {

// Of a converted model with a cache for each part: packs those that lie in one tensor of the
// source, in the model and in its manifest. An index that is out of a part's range is out of the
// buffer's, too. Finding KV246, and nothing changed, if there are none, if some part of a tensor
// stands in the way, or if the options ask for what no packed tensor can be.
absl::StatusOr<std::optional<Finding>> PackCaches(const ConvertOptions& options,
                                                  onnx::ModelProto* model, Manifest* manifest);

}  // namespace kvlift
