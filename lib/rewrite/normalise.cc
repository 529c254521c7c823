#include "rewrite/normalise.h"

#include <utility>

#include "base/status.h"
#include "rewrite/fused_operators.h"
#include "rewrite/merged_decoder.h"
#include "rewrite/simplified_norm.h"

namespace kvlift {

absl::StatusOr<Normalised> Normalise(onnx::ModelProto model) {
  Normalised result;
  result.model = std::move(model);
  ReplaceSimplifiedNorms(&result.model);
  KV_RETURN_IF_ERROR(Unmerge(&result));
  KV_RETURN_IF_ERROR(LowerFused(&result));
  return result;
}

}  // namespace kvlift
