#include "freeze/freeze.h"

#include <utility>

#include "base/status.h"
#include "freeze/fold.h"
#include "freeze/input_sizes.h"
#include "freeze/static_types.h"

namespace kvlift {

absl::StatusOr<Frozen> Freeze(const onnx::ModelProto& converted, const Manifest& manifest,
                              const FreezeSizes& sizes) {
  Frozen frozen;
  frozen.manifest = manifest;
  onnx::ModelProto model = converted;
  KV_ASSIGN_OR_RETURN(frozen.refusal, SetInputSizes(sizes, &model, &frozen.manifest));
  if (frozen.refusal) return frozen;
  KV_ASSIGN_OR_RETURN(model, FoldConstants(model));
  KV_ASSIGN_OR_RETURN(frozen.refusal, DeclareStaticTypes(&model));
  if (!frozen.refusal) frozen.model = std::move(model);
  return frozen;
}

}  // namespace kvlift
