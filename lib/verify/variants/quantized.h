// Takes a converted model with quantised caches apart, into models that are compared with the
// source on one side and with the model itself on the other. The definition of a quantised row x
// with groups g of elements is
//
//   scale[g] = max(max |x[g, :]| / reach, 2^-126)     reach: 127 for int8, 448 for float8e4m3fn
//   value    = x / scale, rounded to nearest, ties to even
//   read     = value * scale
//
// and is written here in operators, apart from those that the conversion emits.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"

namespace kvlift {

// Returns true if the relation has a quantised cache.
bool HasQuantizedCaches(const Manifest& relation);

struct QuantizedParts {
  // The model without quantisation: caches of the rows' own type, no scales.
  Model plain;
  // `plain` with each row quantised and dequantised before it is written. `rounded` is run by the
  // executor; in `rounded_bounds`, for the oracle, the rounding is an error of a known size.
  Model rounded, rounded_bounds;
  Manifest plain_relation;  // relates the source to each of the three models above
  // The model with values and scales computed and read by the definition: in Div, Round and Mul,
  // and in QuantizeLinear and DequantizeLinear. The first is run, the second is for the proof.
  Model defined, defined_operators;
  Manifest stored_relation;  // relates each of these two, as the source, to the model itself
};

// FailedPrecondition names a cache that is not written or read as expected: values and scales each
// by one TensorScatter, rows quantised by QuantizeLinear and read by DequantizeLinear.
absl::StatusOr<QuantizedParts> TakeApart(const Model& after, const Manifest& relation);

}  // namespace kvlift
