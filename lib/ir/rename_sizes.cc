#include "ir/rename_sizes.h"

namespace kvlift {

void RenameSizes(const SizeNames& names, onnx::GraphProto* graph) {
  for (onnx::ValueInfoProto& input : *graph->mutable_input()) {
    if (!input.type().tensor_type().has_shape()) continue;
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
      const auto it = names.find(dim.dim_param());
      if (it != names.end()) dim.set_dim_param(it->second);
    }
  }
}

}  // namespace kvlift
