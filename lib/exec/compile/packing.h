// Rearranges constant weights for their kernels when a program is compiled (OpDef::pack).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

class WeightPacker {
 public:
  // Finds Transposes of constant matrices that are read only by operators that pack transposed
  // constants. They are left out of the program: in `protos`, which has one entry per value, their
  // result becomes a constant with type and shape but without data.
  WeightPacker(const Graph& graph, std::vector<const onnx::TensorProto*>& protos);

  // Returns the constant whose transpose `v` is, if that Transpose is left out; else kNoValue.
  ValueId SourceOf(ValueId v) const;

  // Packs the constants of one node after the other and releases the file pages that were read.
  // Returns one result per node, null where nothing is packed. `constants` has one entry per value,
  // null where it is not a constant; the result of a left out Transpose has the entry of its
  // source. Calls `unread` with a constant as soon as no node needs its elements any more.
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

// Returns the transpose of a matrix whose elements take whole bytes. The result has no data if
// there is no memory.
Tensor TransposedMatrix(const Tensor& matrix);

}  // namespace kvlift::exec
