// Tensors of the executor: an owning Tensor and non-owning views, row-major. Element types are
// values of onnx::TensorProto::DataType. float16 and bfloat16 are stored as uint16_t bit patterns,
// bool as uint8_t (0 or 1). Types smaller than a byte are packed, the first element in the lowest
// bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

using Shape = absl::InlinedVector<int64_t, 6>;

// Element types of values that are not tensors. kSequence: `data` is a std::vector<Tensor>, and the
// shape holds its length. kNothing: an empty optional value (a non-empty one is represented by its
// element).
inline constexpr int32_t kSequence = -1, kNothing = -2;

int64_t NumElements(const Shape& shape);
// Returns the bytes of a dense tensor, rounded up to whole bytes. Returns -1 on overflow, for
// negative dimensions, for strings (`data` is one std::string per element), sequences and kNothing.
int64_t NumBytes(int32_t type, const Shape& shape);
std::string ShapeString(const Shape& shape);  // "[1, 2, 3]"

// A tensor that does not own its data. Constness is by convention: kernels never write to inputs.
struct View {
  int32_t type = 0;
  Shape shape;
  std::byte* data = nullptr;  // may be null if the tensor has no elements
  // 0: dense. Otherwise the last two dimensions form dense blocks, and this is the distance from
  // one block to the next, in elements; blocks follow in row-major order of the other dimensions.
  // Only kernels that declare it get such operands (OpDef::pitched_inputs).
  int64_t pitch = 0;

  bool absent() const { return type == 0; }  // true for an omitted optional input
  int64_t size() const { return NumElements(shape); }
  int64_t bytes() const { return NumBytes(type, shape); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  template <typename T>
  absl::Span<T> span() const {
    return {as<T>(), static_cast<size_t>(size())};
  }
};

// A tensor that owns 64-byte aligned memory; copies share it.
class Tensor {
 public:
  Tensor() = default;
  // Allocates uninitialised memory (strings are empty). Throws std::bad_alloc if there is none
  // (budget.h).
  Tensor(int32_t type, Shape shape);
  static Tensor Zeros(int32_t type, Shape shape);
  // Makes a tensor of `view`'s memory, which `owner` keeps alive; null: the caller does.
  static Tensor Wrap(View view, std::shared_ptr<void> owner);
  // The items must own their memory.
  static Tensor Sequence(std::vector<Tensor> items);
  static Tensor Nothing();
  template <typename T>
  static Tensor From(int32_t type, Shape shape, absl::Span<const T> values);
  // Reads inline data of any field, or maps external data below `base_dir` (never written to).
  // Inline data is shared with the proto if `owner`, which must keep the proto alive, is given;
  // else it is copied. InvalidArgument for a wrong amount of data or a bad location; Unimplemented
  // for an unknown element type.
  static absl::StatusOr<Tensor> FromProto(const onnx::TensorProto& proto,
                                          const std::string& base_dir,
                                          std::shared_ptr<void> owner = nullptr);
  onnx::TensorProto ToProto(const std::string& name) const;
  Tensor Clone() const;

  // Releases the resident pages of data that is mapped from a file; they are read again when
  // needed.
  void ReleasePages() const;

  bool empty() const { return view_.type == 0; }
  const View& view() const { return view_; }
  int32_t type() const { return view_.type; }
  const Shape& shape() const { return view_.shape; }
  int64_t size() const { return view_.size(); }
  std::byte* data() const { return view_.data; }
  const std::shared_ptr<void>& storage() const { return storage_; }
  template <typename T>
  absl::Span<T> span() const {
    return view_.span<T>();
  }

 private:
  View view_;
  std::shared_ptr<void> storage_;
  bool mapped_ = false;  // from a file
};

template <typename T>
Tensor Tensor::From(int32_t type, Shape shape, absl::Span<const T> values) {
  Tensor t(type, std::move(shape));
  std::copy(values.begin(), values.end(), t.span<T>().begin());
  return t;
}

// Bit-exact conversions: rounded to nearest, ties to even; NaN stays NaN.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BfloatToFloat(uint16_t bits);
uint16_t FloatToBfloat(float value);

// Returns element i of a tensor of numbers as a double (int64 values beyond 2^53 are rounded), and
// NaN for strings and complex numbers. Does not check i.
double ElementAsDouble(const View& view, int64_t i);

}  // namespace kvlift::exec
