// Keeps what an in-place scatter overwrites, so that a step that fails later leaves the caches as
// they were. Costs as much as the update, not as the cache.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "exec/tensor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

class UndoLog {
 public:
  void Clear();
  // Saves the elements of inputs[0] that the node (TensorScatter, ScatterND, ScatterElements) is
  // about to overwrite. Indices out of range save nothing: the kernel refuses them unwritten.
  void Save(const onnx::NodeProto& node, absl::Span<const View> inputs);
  // Writes everything back and clears.
  void Restore();

 private:
  struct Region {
    std::byte* target;
    size_t offset, bytes;
  };
  void SaveBytes(std::byte* target, size_t bytes);
  void SaveTensorScatter(const onnx::NodeProto& node, absl::Span<const View> inputs);
  void SaveScatterNd(absl::Span<const View> inputs);
  void SaveScatterElements(const onnx::NodeProto& node, absl::Span<const View> inputs);

  std::vector<Region> regions_;
  std::vector<std::byte> bytes_;
};

}  // namespace kvlift::exec
