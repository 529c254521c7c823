#include "kvlift/inputs/npy.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("npy: {}", what));
}

// Returns the text behind 'KEY': in the header's dictionary, without leading spaces.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  size_t at = header.find(fmt::format("'{}'", key));
  if (at == std::string_view::npos) return {};
  at = header.find(':', at + key.size() + 2);
  if (at == std::string_view::npos) return {};
  at = header.find_first_not_of(' ', at + 1);
  return at == std::string_view::npos ? std::string_view() : header.substr(at);
}

// The element types of arrays, by their descriptor.
constexpr std::pair<std::string_view, int32_t> kTypes[] = {
    {"<f4", onnx::TensorProto::FLOAT},   {"<f8", onnx::TensorProto::DOUBLE},
    {"<f2", onnx::TensorProto::FLOAT16}, {"|b1", onnx::TensorProto::BOOL},
    {"|i1", onnx::TensorProto::INT8},    {"|u1", onnx::TensorProto::UINT8},
    {"<i2", onnx::TensorProto::INT16},   {"<u2", onnx::TensorProto::UINT16},
    {"<i4", onnx::TensorProto::INT32},   {"<u4", onnx::TensorProto::UINT32},
    {"<i8", onnx::TensorProto::INT64},   {"<u8", onnx::TensorProto::UINT64}};

// Returns the descriptor of a type. Types that NumPy does not know have that of their bits; empty:
// their elements are no whole bytes.
std::string_view DescriptorOf(int32_t type) {
  for (const auto& [name, known] : kTypes) {
    if (type == known) return name;
  }
  return ElementBits(type) == 8 ? "|u1" : ElementBits(type) == 16 ? "<u2" : "";
}

absl::StatusOr<int32_t> TypeOf(std::string_view value) {
  const size_t end =
      value.size() < 2 || value[0] != '\'' ? std::string_view::npos : value.find('\'', 1);
  if (end == std::string_view::npos) return Bad("no simple element type");
  const std::string_view descr = value.substr(1, end - 1);
  for (const auto& [name, type] : kTypes) {
    if (descr == name) return type;
  }
  return Bad(fmt::format("element type {} is not read", descr));
}

absl::StatusOr<exec::Shape> ShapeOf(std::string_view value) {
  const size_t end = value.find(')');
  if (value.empty() || value[0] != '(' || end == std::string_view::npos) return Bad("no shape");
  exec::Shape shape;
  for (const char* at = value.data() + 1; at < value.data() + end;) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, value.data() + end, dim);
    if (error != std::errc() || dim < 0) return Bad("a bad shape");
    shape.push_back(dim);
    at = next;
  }
  return shape;
}

}  // namespace

absl::StatusOr<exec::Tensor> ParseNpy(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic || bytes.size() < 10) return Bad("no .npy file");
  const auto byte = [&](size_t k) { return static_cast<size_t>(static_cast<uint8_t>(bytes[k])); };
  const size_t version = byte(6);
  if (version < 1 || version > 3) return Bad(fmt::format("format version {} is unknown", version));
  const size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) return Bad("truncated header");
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() - start < length) return Bad("truncated header");
  const std::string_view header = bytes.substr(start, length);
  KV_ASSIGN_OR_RETURN(const int32_t type, TypeOf(ValueOf(header, "descr")));
  KV_ASSIGN_OR_RETURN(const exec::Shape shape, ShapeOf(ValueOf(header, "shape")));
  const std::string_view order = ValueOf(header, "fortran_order");
  if (order.substr(0, 5) != "False" && shape.size() > 1) return Bad("not in C order");
  const std::string_view data = bytes.substr(start + length);
  const int64_t size = exec::NumBytes(type, shape);
  if (size < 0 || static_cast<size_t>(size) != data.size()) {
    return Bad(fmt::format("{} bytes of data do not make a shape of {}", data.size(),
                           exec::ShapeString(shape)));
  }
  exec::Tensor tensor(type, shape);
  if (size > 0) std::memcpy(tensor.data(), data.data(), data.size());
  return tensor;
}

absl::StatusOr<std::string> NpyOf(const exec::View& tensor) {
  static_assert(std::endian::native == std::endian::little);
  const std::string_view descriptor = DescriptorOf(tensor.type);
  if (descriptor.empty() || tensor.bytes() < 0) {
    return absl::UnimplementedError(
        fmt::format("a tensor of {} cannot be written as .npy", ElementTypeName(tensor.type)));
  }
  std::string shape;
  for (int64_t dim : tensor.shape) shape += fmt::format("{},", dim);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descriptor, shape);
  // The data begins at a multiple of 64 bytes, behind the magic, two bytes of the version and two
  // of the header's length.
  constexpr size_t kBefore = kMagic.size() + 4, kAlign = 64;
  header.append(kAlign - 1 - (kBefore + header.size()) % kAlign, ' ');
  header.push_back('\n');
  std::string bytes(kMagic);
  for (const size_t byte : {size_t{1}, size_t{0}, header.size() & 0xFF, header.size() >> 8}) {
    bytes.push_back(static_cast<char>(byte));
  }
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes()));
  return bytes;
}

}  // namespace kvlift::cli
