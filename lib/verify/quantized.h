// Converted models whose caches are kept in few bits, taken apart: what they would be with their
// rows kept as they are, and what they must be with each row quantised by the definition
//
//   scale[g] = max(max |x[g, :]| / reach, 2^-126)     reach: 127, of float8e4m3fn 448
//   value    = x / scale, rounded to the nearest, ties to even
//   read     = value * scale
//
// which is written here in operators of its own. The model itself is then held against both.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"

namespace kvlift {

bool HasQuantizedCaches(const Manifest& relation);

struct QuantizedParts {
  // Rows are kept as they are: the caches of the source's type.
  Model plain;
  // The same, but each row is rounded as quantising rounds it before it is written; as the executor
  // runs it, and as the oracle does, where the rounding is an error of a known size.
  Model rounded, rounded_bounds;
  Manifest plain_relation;  // of the source and these
  // With values and scales, by the definition: spelt out, and in ONNX's operators for it.
  Model defined, defined_operators;
  Manifest stored_relation;  // of one of these and the model itself
};

// FailedPrecondition says what is quantised or read in a way that cannot be told.
absl::StatusOr<QuantizedParts> TakeApart(const Model& after, const Manifest& relation);

}  // namespace kvlift
