// Quantises the caches of a converted model: int8 with one scale per group of G head elements, or
// float8e4m3fn with one scale per row. A row is quantised when it is written, from itself alone:
//
//   scale[g] = max(max |x[g, :]| / 127, 2^-126)      (448 instead of 127 for float8)
//   value    = QuantizeLinear(x, scale), blocks of G along D
//
// Values [.., D] and scales [.., D / G] are two caches, written at the same index, and readers get
// the rows through a DequantizeLinear.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "rewrite/emit/emission.h"
#include "rewrite/types/resolved_options.h"

namespace kvlift {

struct ScaleRules {
  float smallest = 0x1p-126F;  // the least scale
  bool of_rows = false;        // scales have the type of the rows; false: float32
};
// The rules of KeyValueCache of the domains pmx and opmx.
constexpr ScaleRules kKeyValueCacheScaleRules = {1e-5F, /*of_rows=*/true};

// Quantises every cache as options.quantize_cache says, which must be set; each becomes two, values
// and scales. Returns the reason (KV241-KV245), and changes nothing, if one of them cannot be
// quantised. Does not check how much the results change.
absl::StatusOr<std::optional<Finding>> QuantizeCaches(const ResolvedOptions& options,
                                                      Emission* emission,
                                                      const ScaleRules& rules = {});

}  // namespace kvlift
