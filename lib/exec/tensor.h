// Dense row-major tensors of the executor: an owning Tensor and non-owning views.
// Element types are onnx::TensorProto::DataType values. float16 and bfloat16 are stored as uint16_t
// bit patterns, bool as uint8_t (0 or 1), 4-bit types packed two to a byte, low nibble first.
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

// Types of what is no tensor. A sequence: `data` is a std::vector<Tensor>, its length the shape.
// kNothing: an empty optional value; one that is not empty is the value itself.
inline constexpr int32_t kSequence = -1, kNothing = -2;

int64_t NumElements(const Shape& shape);
// Bytes of a dense tensor, 4-bit types rounded up. -1 on overflow, for strings (`data` is a
// std::string per element), sequences and nothing.
int64_t NumBytes(int32_t type, const Shape& shape);
std::string ShapeString(const Shape& shape);  // "[1, 2, 3]"

// A view: does not own. Const-ness of the data is by convention: kernels never write inputs.
struct View {
  int32_t type = 0;
  Shape shape;
  std::byte* data = nullptr;  // may be null if the tensor has no elements
  // 0: dense. Else the last two dims are dense blocks, this many elements from one to the next in
  // row-major order of the other dims. Only kernels that say so get such operands (kernel.h).
  int64_t pitch = 0;

  bool absent() const { return type == 0; }  // an omitted optional input
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

// Owns 64-byte aligned memory; copies share it.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialised memory of the right size.
  Tensor(int32_t type, Shape shape);
  static Tensor Zeros(int32_t type, Shape shape);
  // Memory that is held by `owner`; it stays alive as long as the tensor does.
  static Tensor Wrap(View view, std::shared_ptr<void> owner);
  static Tensor Sequence(std::vector<Tensor> items);  // that own their memory
  static Tensor Nothing();
  template <typename T>
  static Tensor From(int32_t type, Shape shape, absl::Span<const T> values);
  // Reads inline data of any field, or maps external data below base_dir (never written through).
  // Inline data may be shared with the proto if `owner` keeps that alive.
  // InvalidArgument for a wrong amount of data or a bad location.
  static absl::StatusOr<Tensor> FromProto(const onnx::TensorProto& proto,
                                          const std::string& base_dir,
                                          std::shared_ptr<void> owner = nullptr);
  onnx::TensorProto ToProto(const std::string& name) const;
  Tensor Clone() const;

  // Gives back the memory of data that stands in a file; it is read again when needed.
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

// Bit-exact conversions, round to nearest even, NaN preserved.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BfloatToFloat(uint16_t bits);
uint16_t FloatToBfloat(float value);

// Element i of any float, integer or bool tensor as double (int64 beyond 2^53 loses bits).
double ElementAsDouble(const View& view, int64_t i);

}  // namespace kvlift::exec
