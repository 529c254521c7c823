// Saves the bytes that scatter nodes overwrite in place, so that the caches can be restored if the
// step fails later. The cost is proportional to the update, not to the cache.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "exec/memory/tensor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

class UndoLog {
 public:
  void Clear();
  // Saves the elements of inputs[0] that the node (TensorScatter, ScatterND or ScatterElements) is
  // about to overwrite. Skips indices that are out of range, since the kernel refuses them before
  // it writes. Saves all of inputs[0] for types smaller than a byte.
  void Save(const onnx::NodeProto& node, absl::Span<const View> inputs);
  // Writes everything back, newest first, and clears the log.
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
