// Constants in the form that their kernels read fastest, made when a program is compiled.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/tensor.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

class WeightPacker {
 public:
  // Transposes of constant matrices that only packed products read are left out of the program:
  // their results become constants without data (entries of `protos`, which has one per value).
  WeightPacker(const Graph& graph, std::vector<const onnx::TensorProto*>& protos);

  // The constant whose transpose `v` would have been; kNoValue if that was not left out.
  ValueId SourceOf(ValueId v) const;

  // What OpDef::pack makes for each node (null where nothing is packed), one node after the other;
  // after each the pages of its source are given back. `constants` has one entry per value, null
  // where it is no constant; a left out transpose has that of its source. `unread` is called with
  // each constant of which nobody will read the elements any more, as soon as that is so.
  std::vector<std::shared_ptr<const Prepacked>> Pack(absl::Span<const OpDef* const> defs,
                                                     absl::Span<const Tensor* const> constants,
                                                     bool canonical, int threads,
                                                     absl::FunctionRef<void(ValueId)> unread);

 private:
  using Key = std::pair<std::vector<const void*>, std::string>;

  std::shared_ptr<const Prepacked> PackNode(NodeId n, const OpDef& def,
                                            absl::Span<const Tensor* const> constants,
                                            bool canonical, int threads);

  absl::flat_hash_map<const Tensor*, int64_t> CountReaders(
      absl::Span<const Tensor* const> constants) const;

  const Graph& graph_;
  absl::flat_hash_map<ValueId, ValueId> sources_;           // transposed value -> constant
  std::vector<std::unique_ptr<onnx::TensorProto>> shapes_;  // protos of left out values
  absl::btree_map<Key, std::shared_ptr<const Prepacked>> done_;
};

// Of whole bytes per element; no data without memory.
Tensor TransposedMatrix(const Tensor& matrix);

}  // namespace kvlift::exec
