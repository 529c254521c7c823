#include "ir/tensor_data.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/base/casts.h"
#include "base/checked.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "tensor bytes are little-endian");

constexpr int64_t kMaxElements = int64_t{1} << 62;

absl::Status Bad(const TensorProto& tensor, const std::string& what) {
  return absl::InvalidArgumentError(
      fmt::format("tensor \"{}\" {}", EscapeTerminal(tensor.name()), what));
}

template <typename Stored, typename Field>
std::string CopyField(const Field& field) {
  std::string bytes;
  bytes.reserve(sizeof(Stored) * field.size());
  for (const auto value : field) {
    const auto stored = static_cast<Stored>(value);
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return bytes;
}

// Returns the bytes of the typed field that the element type uses. An entry of int32_data holds one
// bit pattern of up to 16 bits, or one packed byte of elements with less than 8 bits.
std::string TypedFieldBytes(const TensorProto& tensor) {
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
    case TensorProto::COMPLEX64:
      return CopyField<float>(tensor.float_data());
    case TensorProto::DOUBLE:
    case TensorProto::COMPLEX128:
      return CopyField<double>(tensor.double_data());
    case TensorProto::INT64:
      return CopyField<int64_t>(tensor.int64_data());
    case TensorProto::UINT64:
      return CopyField<uint64_t>(tensor.uint64_data());
    case TensorProto::UINT32:
      return CopyField<uint32_t>(tensor.uint64_data());
    case TensorProto::INT32:
      return CopyField<int32_t>(tensor.int32_data());
    case TensorProto::INT16:
    case TensorProto::UINT16:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return CopyField<uint16_t>(tensor.int32_data());
    default:
      return CopyField<uint8_t>(tensor.int32_data());
  }
}

int NumValueFields(const TensorProto& tensor) {
  return int{!tensor.raw_data().empty()} + int{!tensor.float_data().empty()} +
         int{!tensor.int32_data().empty()} + int{!tensor.int64_data().empty()} +
         int{!tensor.double_data().empty()} + int{!tensor.uint64_data().empty()} +
         int{!tensor.string_data().empty()};
}

template <typename T>
T Load(const std::string& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

int64_t LoadBits(const std::string& bytes, int64_t i, int bits, bool is_signed) {
  const auto position = static_cast<size_t>(i) * bits;
  const int pattern =
      (static_cast<uint8_t>(bytes[position / 8]) >> (position % 8)) & ((1 << bits) - 1);
  return is_signed && pattern >= (1 << (bits - 1)) ? pattern - (1 << bits) : pattern;
}

int64_t LoadInt(const std::string& bytes, int64_t i, int32_t elem_type) {
  switch (elem_type) {
    case TensorProto::INT64:
      return Load<int64_t>(bytes, i);
    case TensorProto::INT32:
      return Load<int32_t>(bytes, i);
    case TensorProto::UINT32:
      return Load<uint32_t>(bytes, i);
    case TensorProto::INT16:
      return Load<int16_t>(bytes, i);
    case TensorProto::UINT16:
      return Load<uint16_t>(bytes, i);
    case TensorProto::INT8:
      return Load<int8_t>(bytes, i);
    case TensorProto::UINT8:
      return Load<uint8_t>(bytes, i);
    case TensorProto::BOOL:
      return Load<uint8_t>(bytes, i) != 0 ? 1 : 0;
    case TensorProto::INT4:
      return LoadBits(bytes, i, 4, true);
    case TensorProto::UINT4:
      return LoadBits(bytes, i, 4, false);
    case TensorProto::INT2:
      return LoadBits(bytes, i, 2, true);
    default:
      return LoadBits(bytes, i, 2, false);
  }
}

double HalfToDouble(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int fraction = half & 0x3ff;
  double magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

double LoadFloat(const std::string& bytes, int64_t i, int32_t elem_type) {
  switch (elem_type) {
    case TensorProto::FLOAT:
      return Load<float>(bytes, i);
    case TensorProto::DOUBLE:
      return Load<double>(bytes, i);
    case TensorProto::FLOAT16:
      return HalfToDouble(Load<uint16_t>(bytes, i));
    default:
      return absl::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(bytes, i)) << 16);
  }
}

}  // namespace

absl::StatusOr<int64_t> NumElements(const TensorProto& tensor) {
  // A zero dimension makes the product zero wherever it stands.
  bool empty = false;
  for (int64_t dim : tensor.dims()) {
    if (dim < 0) return Bad(tensor, fmt::format("has the negative dimension {}", dim));
    empty = empty || dim == 0;
  }
  if (empty) return 0;
  int64_t product = 1;
  for (int64_t dim : tensor.dims()) {
    const auto next = CheckedMul(product, dim);
    if (!next || *next > kMaxElements) return Bad(tensor, "has more than 2^62 elements");
    product = *next;
  }
  return product;
}

absl::StatusOr<int64_t> ByteSize(int32_t elem_type, int64_t num_elements) {
  const int bits = ElementBits(elem_type);
  if (bits == 0) {
    return absl::InvalidArgumentError(
        fmt::format("elements of type {} have no fixed size", ElementTypeName(elem_type)));
  }
  if (num_elements < 0 || num_elements > kMaxElements) {
    return absl::InvalidArgumentError("more than 2^62 elements");
  }
  const auto tail = (num_elements % 8 * bits + 7) / 8;
  const auto bytes = CheckedMul(num_elements / 8, bits);
  if (!bytes || *bytes > kMaxElements) return absl::InvalidArgumentError("more than 2^62 bytes");
  return *bytes + tail;
}

absl::StatusOr<std::string> InlineBytes(const TensorProto& tensor) {
  if (IsElsewhere(tensor)) {
    return absl::FailedPreconditionError(
        fmt::format("tensor \"{}\" has external data", EscapeTerminal(tensor.name())));
  }
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  const auto expected = ByteSize(tensor.data_type(), count);
  if (!expected.ok()) return Bad(tensor, std::string(expected.status().message()));
  if (NumValueFields(tensor) > 1) return Bad(tensor, "has more than one value field");
  const RawData raw = RawDataOf(tensor);
  if (raw.owner != nullptr && static_cast<int64_t>(raw.bytes.size()) != *expected) {
    return Bad(tensor, fmt::format("has {} bytes of data where its type and shape need {}",
                                   raw.bytes.size(), *expected));
  }
  std::string bytes = raw.bytes.empty() ? TypedFieldBytes(tensor) : std::string(raw.bytes);
  if (static_cast<int64_t>(bytes.size()) != *expected) {
    return Bad(tensor, fmt::format("has {} bytes of data where its type and shape need {}",
                                   bytes.size(), *expected));
  }
  return bytes;
}

absl::StatusOr<std::vector<int64_t>> ReadInts(const TensorProto& tensor) {
  const int32_t type = tensor.data_type();
  if (!IsIntegerType(type) && type != TensorProto::BOOL) {
    return Bad(tensor, fmt::format("has type {} where integers are needed", ElementTypeName(type)));
  }
  KV_ASSIGN_OR_RETURN(const std::string bytes, InlineBytes(tensor));
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    if (type != TensorProto::UINT64) {
      values.push_back(LoadInt(bytes, i, type));
      continue;
    }
    const auto wide = Load<uint64_t>(bytes, i);
    if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Bad(tensor, fmt::format("holds {}, above the largest int64", wide));
    }
    values.push_back(static_cast<int64_t>(wide));
  }
  return values;
}

absl::StatusOr<std::vector<double>> ReadFloats(const TensorProto& tensor) {
  const int32_t type = tensor.data_type();
  if (type != TensorProto::FLOAT && type != TensorProto::DOUBLE && type != TensorProto::FLOAT16 &&
      type != TensorProto::BFLOAT16) {
    return Bad(tensor, fmt::format("has type {} where float16, bfloat16, float32 or float64 is "
                                   "needed",
                                   ElementTypeName(type)));
  }
  KV_ASSIGN_OR_RETURN(const std::string bytes, InlineBytes(tensor));
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  std::vector<double> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(LoadFloat(bytes, i, type));
  return values;
}

TensorProto MakeInt64Tensor(std::string name, const std::vector<int64_t>& dims,
                            const std::vector<int64_t>& values) {
  TensorProto tensor;
  tensor.set_name(std::move(name));
  tensor.set_data_type(TensorProto::INT64);
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.mutable_int64_data()->Add(values.begin(), values.end());
  return tensor;
}

}  // namespace kvlift
