#include "exec/memory/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "exec/memory/budget.h"
#include "exec/memory/memory.h"
#include "exec/memory/small_types.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/types.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {

using onnx::TensorProto;

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t NumBytes(int32_t type, const Shape& shape) {
  const int bits = ElementBits(type);
  if (bits == 0) return -1;
  int64_t n = 1;
  bool zero = false;
  for (const int64_t d : shape) {
    if (d < 0) return -1;
    zero = zero || d == 0;
  }
  if (zero) return 0;
  for (const int64_t d : shape) {
    if (__builtin_mul_overflow(n, d, &n)) return -1;
  }
  int64_t total_bits = 0;
  if (__builtin_mul_overflow(n, static_cast<int64_t>(bits), &total_bits)) return -1;
  if (total_bits > std::numeric_limits<int64_t>::max() - 7) return -1;
  return (total_bits + 7) / 8;
}

std::string ShapeString(const Shape& shape) {
  return fmt::format("[{}]", absl::StrJoin(shape, ", "));
}

Tensor::Tensor(int32_t type, Shape shape) {
  view_.type = type;
  view_.shape = std::move(shape);
  if (type == TensorProto::STRING) {
    const auto strings = std::make_shared<std::vector<std::string>>(view_.size());
    view_.data = reinterpret_cast<std::byte*>(strings->data());
    storage_ = strings;
    return;
  }
  const int64_t bytes = view_.bytes();
  // The size in bytes overflows although no dimension is negative.
  const bool sizes =
      std::all_of(view_.shape.begin(), view_.shape.end(), [](int64_t dim) { return dim >= 0; });
  if (bytes < 0 && sizes && ElementBits(type) > 0) ThrowNoMemory(SIZE_MAX);
  if (bytes > 0) {
    storage_ = AllocateAligned(static_cast<size_t>(bytes));
    if (storage_ == nullptr) ThrowNoMemory(static_cast<size_t>(bytes));
  }
  view_.data = static_cast<std::byte*>(storage_.get());
}

Tensor Tensor::Zeros(int32_t type, Shape shape) {
  Tensor t(type, std::move(shape));
  if (t.data() != nullptr) std::memset(t.data(), 0, static_cast<size_t>(t.view().bytes()));
  return t;
}

Tensor Tensor::Wrap(View view, std::shared_ptr<void> owner) {
  Tensor t;
  t.view_ = std::move(view);
  t.storage_ = std::move(owner);
  return t;
}

Tensor Tensor::Sequence(std::vector<Tensor> items) {
  // The items count as allocated bytes for as long as they are held.
  const size_t bytes = items.size() * sizeof(Tensor);
  if (!HasRoom(bytes)) ThrowNoMemory(bytes);
  const std::shared_ptr<std::vector<Tensor>> owner(new std::vector<Tensor>(std::move(items)),
                                                   [bytes](const std::vector<Tensor>* held) {
                                                     DropCharge(bytes);
                                                     delete held;
                                                   });
  AddCharge(bytes);
  const auto length = static_cast<int64_t>(owner->size());
  return Wrap({kSequence, {length}, reinterpret_cast<std::byte*>(owner.get())}, owner);
}

Tensor Tensor::Nothing() {
  Tensor nothing;
  nothing.view_.type = kNothing;
  return nothing;
}

Tensor Tensor::Clone() const {
  if (empty() || type() == kNothing) return *this;
  if (type() == kSequence) return Sequence(*view_.as<std::vector<Tensor>>());
  if (type() == TensorProto::STRING) {
    return From<std::string>(type(), shape(), span<std::string>());
  }
  Tensor t(type(), shape());
  if (t.data() != nullptr) std::memcpy(t.data(), data(), static_cast<size_t>(view_.bytes()));
  return t;
}

namespace {

absl::Status WrongCount(const TensorProto& proto, int64_t needed, int64_t found) {
  return absl::InvalidArgumentError(
      fmt::format("tensor \"{}\": {} values or bytes, {} needed", proto.name(), found, needed));
}

// Copies a repeated field with one number per element of type T.
template <typename T, typename Field>
absl::Status CopyField(const TensorProto& proto, const Field& field, int64_t count, Tensor& t) {
  if (field.size() != count) return WrongCount(proto, count, field.size());
  T* out = t.view().as<T>();
  for (int i = 0; i < field.size(); ++i) out[i] = static_cast<T>(field.Get(i));
  return absl::OkStatus();
}

constexpr int64_t kMostBytesOfNumber = 8;  // in a typed field

// Returns how many numbers the typed fields hold.
int64_t NumbersIn(const TensorProto& proto) {
  return int64_t{proto.float_data_size()} + proto.double_data_size() + proto.int32_data_size() +
         proto.int64_data_size() + proto.uint64_data_size();
}

absl::Status CopyTyped(const TensorProto& proto, Tensor& t) {
  const int64_t n = t.size();
  const int bits = ElementBits(t.type());
  switch (proto.data_type()) {
    case TensorProto::FLOAT:
      return CopyField<float>(proto, proto.float_data(), n, t);
    case TensorProto::COMPLEX64:
      return CopyField<float>(proto, proto.float_data(), 2 * n, t);
    case TensorProto::DOUBLE:
      return CopyField<double>(proto, proto.double_data(), n, t);
    case TensorProto::COMPLEX128:
      return CopyField<double>(proto, proto.double_data(), 2 * n, t);
    case TensorProto::INT64:
      return CopyField<int64_t>(proto, proto.int64_data(), n, t);
    case TensorProto::UINT64:
      return CopyField<uint64_t>(proto, proto.uint64_data(), n, t);
    case TensorProto::UINT32:
      return CopyField<uint32_t>(proto, proto.uint64_data(), n, t);
    case TensorProto::INT32:
      return CopyField<int32_t>(proto, proto.int32_data(), n, t);
    case TensorProto::BOOL: {
      KV_RETURN_IF_ERROR(CopyField<uint8_t>(proto, proto.int32_data(), n, t));
      for (uint8_t& b : t.span<uint8_t>()) b = b != 0;
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (bits == 16) return CopyField<uint16_t>(proto, proto.int32_data(), n, t);
  // 8-bit types, and packed types with one byte per number.
  return CopyField<uint8_t>(proto, proto.int32_data(), t.view().bytes(), t);
}

absl::StatusOr<Tensor> StringsOf(const TensorProto& proto, const Shape& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(count, d, &count)) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}\": shape {}", proto.name(), ShapeString(shape)));
    }
  }
  if (proto.string_data_size() != count) {
    return WrongCount(proto, count, proto.string_data_size());
  }
  const std::vector<std::string> strings(proto.string_data().begin(), proto.string_data().end());
  return Tensor::From<std::string>(TensorProto::STRING, shape, strings);
}

}  // namespace

namespace {

// Releases the whole pages inside a range of a mapped file.
void ReleaseRange(const void* data, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(data);
  const auto begin = (start + page - 1) / page * page;
  const auto end = (start + static_cast<uintptr_t>(bytes)) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// Returns true if the data is in a file, whose pages can be read again.
bool LiesInFile(const TensorProto& proto) {
  const SpanRange span = SpanOf(proto);
  if (span.source == nullptr) return proto.data_location() == TensorProto::EXTERNAL;
  const SpanSource::Content& content = span.source->content();
  return content.kind == SpanSource::Kind::kDataFile || content.fd >= 0;
}

}  // namespace

void Tensor::ReleasePages() const {
  if (mapped_) ReleaseRange(data(), view_.bytes());
}

absl::StatusOr<Tensor> Tensor::FromProto(const TensorProto& proto, const std::string& base_dir,
                                         std::shared_ptr<void> owner) {
  const Shape shape(proto.dims().begin(), proto.dims().end());
  if (proto.data_type() == TensorProto::STRING) return StringsOf(proto, shape);
  if (ElementBits(proto.data_type()) == 0) {
    return absl::UnimplementedError(fmt::format("tensor \"{}\" has element type {}", proto.name(),
                                                ElementTypeName(proto.data_type())));
  }
  const int64_t bytes = NumBytes(proto.data_type(), shape);
  if (bytes < 0) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\": shape {}", proto.name(), ShapeString(shape)));
  }
  RawData raw = RawDataOf(proto);
  if (proto.data_location() == TensorProto::EXTERNAL && raw.owner == nullptr) {
    KV_ASSIGN_OR_RETURN(raw, MapTensorBytes(proto, base_dir));
  }
  const bool mapped = raw.owner != nullptr;
  if (mapped) owner = std::const_pointer_cast<void>(raw.owner);
  if (owner != nullptr && static_cast<int64_t>(raw.bytes.size()) == bytes && bytes > 0 &&
      proto.data_type() != TensorProto::BOOL &&
      reinterpret_cast<uintptr_t>(raw.bytes.data()) % alignof(std::max_align_t) == 0) {
    auto* data = reinterpret_cast<std::byte*>(const_cast<char*>(raw.bytes.data()));
    Tensor wrapped = Wrap({proto.data_type(), shape, data}, std::move(owner));
    wrapped.mapped_ = mapped && LiesInFile(proto);
    return wrapped;
  }
  // Memory is asked for only if the data may be there.
  const bool is_raw = mapped || proto.has_raw_data();
  if (is_raw && static_cast<int64_t>(raw.bytes.size()) != bytes) {
    return WrongCount(proto, bytes, static_cast<int64_t>(raw.bytes.size()));
  }
  if (!is_raw && bytes / kMostBytesOfNumber > NumbersIn(proto)) {
    return WrongCount(proto, bytes, NumbersIn(proto));
  }
  Tensor t(proto.data_type(), shape);
  if (is_raw) {
    if (bytes > 0) std::memcpy(t.data(), raw.bytes.data(), static_cast<size_t>(bytes));
    if (mapped && LiesInFile(proto)) ReleaseRange(raw.bytes.data(), bytes);
    if (t.type() == TensorProto::BOOL) {
      for (uint8_t& b : t.span<uint8_t>()) b = b != 0;
    }
    return t;
  }
  KV_RETURN_IF_ERROR(CopyTyped(proto, t));
  return t;
}

TensorProto Tensor::ToProto(const std::string& name) const {
  TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(type());
  for (const int64_t d : shape()) proto.add_dims(d);
  if (type() == TensorProto::STRING) {
    for (const std::string& s : span<std::string>()) proto.add_string_data(s);
    return proto;
  }
  const int64_t bytes = view_.bytes();
  proto.set_raw_data(
      bytes > 0 ? std::string(reinterpret_cast<const char*>(data()), static_cast<size_t>(bytes))
                : std::string());
  // The unused bits behind the last element of a packed type are cleared.
  const int64_t used = size() * ElementBits(type()) % 8;
  if (bytes > 0 && ElementBits(type()) < 8 && used != 0) {
    auto& last = proto.mutable_raw_data()->back();
    last = static_cast<char>(static_cast<unsigned char>(last) & ((1u << used) - 1));
  }
  return proto;
}

namespace {

uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float BitsFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return BitsFloat(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return BitsFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = FloatBits(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // NaN: keeps the top bits of the payload, and never becomes infinity.
  if (magnitude > 0x7f800000u) {
    const uint32_t payload = (magnitude >> 13) & 0x3ffu;
    return static_cast<uint16_t>(sign | 0x7c00u | (payload != 0 ? payload : 0x200u));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  // Below 2^-14 the result is subnormal: scaling is exact, and nearbyint rounds.
  if (magnitude < 0x38800000u) {
    const float scaled = BitsFloat(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyintf(scaled)));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float BfloatToFloat(uint16_t bits) { return BitsFloat(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBfloat(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    const auto high = static_cast<uint16_t>(bits >> 16);
    return (high & 0x7fu) != 0 ? high : static_cast<uint16_t>(high | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

double ElementAsDouble(const View& view, int64_t i) {
  switch (view.type) {
    case TensorProto::FLOAT:
      return view.as<float>()[i];
    case TensorProto::DOUBLE:
      return view.as<double>()[i];
    case TensorProto::FLOAT16:
      return HalfToFloat(view.as<uint16_t>()[i]);
    case TensorProto::BFLOAT16:
      return BfloatToFloat(view.as<uint16_t>()[i]);
    case TensorProto::INT64:
      return static_cast<double>(view.as<int64_t>()[i]);
    case TensorProto::UINT64:
      return static_cast<double>(view.as<uint64_t>()[i]);
    case TensorProto::INT32:
      return view.as<int32_t>()[i];
    case TensorProto::UINT32:
      return view.as<uint32_t>()[i];
    case TensorProto::INT16:
      return view.as<int16_t>()[i];
    case TensorProto::UINT16:
      return view.as<uint16_t>()[i];
    case TensorProto::INT8:
      return view.as<int8_t>()[i];
    case TensorProto::UINT8:
    case TensorProto::BOOL:
      return view.as<uint8_t>()[i];
    default:
      if (IsSmallFloat(view.type)) return SmallFloatAt(view, i);
      if (IsSmallInteger(view.type)) return static_cast<double>(SmallIntegerAt(view, i));
      return std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace kvlift::exec
