// Helpers of the kernels that move data without computing on it. They take any element type,
// including packed types smaller than a byte, and count in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/tensor.h"
#include "fmt/format.h"

namespace kvlift::exec::move {

using Ints = absl::InlinedVector<int64_t, 6>;

template <typename... Args>
absl::Status InvalidInput(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

inline int64_t Rank(const View& view) { return static_cast<int64_t>(view.shape.size()); }

// Returns the element strides of a dense row-major tensor.
Ints DenseStrides(const Shape& shape);

// Return the strides of a view that may have a pitch; the second one of the view broadcast to
// `out`.
Ints StridesOf(const View& view);
Ints StridesOf(const View& view, const Shape& out);

// One side of a copy: element `offset` of `data`, and one stride per dimension (0 repeats an
// element, a negative one runs backwards).
struct Strided {
  std::byte* data;
  int64_t offset;
  absl::Span<const int64_t> strides;
};
// Copies prod(shape) elements. The target must overlap neither the source nor itself.
void CopyStrided(int32_t type, absl::Span<const int64_t> shape, const Strided& target,
                 const Strided& source, int threads);
// Copies `count` contiguous elements.
void CopyElements(int32_t type, std::byte* target, int64_t target_index, const std::byte* source,
                  int64_t source_index, int64_t count);
// Sets `count` contiguous elements to element `source_index` of `source`.
void FillElements(int32_t type, std::byte* target, int64_t target_index, int64_t count,
                  const std::byte* source, int64_t source_index);

// Returns element i of an int32 or int64 tensor.
inline int64_t IndexAt(const View& view, int64_t i) {
  return view.type == onnx::TensorProto::INT32 ? view.as<int32_t>()[i] : view.as<int64_t>()[i];
}
inline bool IsIndexType(int32_t type) {
  return type == onnx::TensorProto::INT32 || type == onnx::TensorProto::INT64;
}
// Returns all elements of an int32 or int64 input, which has to be a vector. InvalidArgument for
// other types and ranks.
absl::StatusOr<Ints> ReadInts(const KernelContext& context, size_t input);
// Does the same for operators of which ONNX Runtime takes scalars as well: Expand and Unsqueeze.
absl::StatusOr<Ints> ReadIntsOfAnyRank(const KernelContext& context, size_t input);
// Returns the attribute `name`, empty if absent.
Ints IntsAttribute(const KernelContext& context, const char* name);
// Returns the elements of `input` if it is present, else the attribute `name`. `*given` is set to
// whether there is either.
absl::StatusOr<Ints> InputOrAttribute(const KernelContext& context, size_t input, const char* name,
                                      bool* given);
// Returns the attribute `name` (default `fallback`) as an axis in [0, rank). InvalidArgument if it
// is out of range.
absl::StatusOr<int64_t> Axis(const KernelContext& context, const char* name, int64_t fallback,
                             int64_t rank);
absl::StatusOr<int64_t> NormalizeAxis(const KernelContext& context, int64_t axis, int64_t rank);

inline int64_t Product(absl::Span<const int64_t> shape, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

}  // namespace kvlift::exec::move
