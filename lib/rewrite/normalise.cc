#include "rewrite/normalise.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "rewrite/fused_operators.h"
#include "rewrite/key_value_cache.h"
#include "rewrite/merged_decoder.h"
#include "rewrite/simplified_norm.h"

namespace kvlift {

void Normalised::NameSource(std::vector<std::string>* nodes) const {
  std::vector<std::string> named;
  for (std::string& name : *nodes) {
    for (const Origin& origin : origins) {
      if (name.rfind(origin.prefix, 0) == 0) name = origin.node;
    }
    if (std::find(named.begin(), named.end(), name) == named.end()) {
      named.push_back(std::move(name));
    }
  }
  *nodes = std::move(named);
}

absl::StatusOr<Normalised> Normalise(onnx::ModelProto model) {
  Normalised result;
  result.model = std::move(model);
  ReplaceSimplifiedNorms(&result.model);
  KV_RETURN_IF_ERROR(Unmerge(&result));
  KV_RETURN_IF_ERROR(UnpackCaches(&result));
  KV_RETURN_IF_ERROR(LowerFused(&result));
  return result;
}

}  // namespace kvlift
