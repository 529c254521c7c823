// Caches of a converted model kept in few bits: int8 with one scale per group of head elements, or
// float8e4m3fn with one per row. A row is quantised when it is written, from itself alone:
//
//   scale[g] = max(max |x[g, :]| / 127, 2^-126)      (448 for float8)
//   value    = QuantizeLinear(x, scale), blocks of G along D
//
// Values and scales are two caches, written at the same index; DequantizeLinear stands behind what
// reads them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "rewrite/convert.h"

namespace kvlift {

// How scales are kept.
struct ScaleRules {
  float smallest = 0x1p-126F;  // below it a row is taken for zeros
  bool of_rows = false;        // of the type of the rows, else float32
};

// Quantises every cache of the relation, or none: then the reason. Model and manifest are only
// changed if all are.
absl::StatusOr<std::optional<Finding>> QuantizeCaches(const ConvertOptions& options,
                                                      onnx::ModelProto* model, Manifest* manifest,
                                                      const ScaleRules& rules = {});

}  // namespace kvlift
