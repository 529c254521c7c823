// Reads the bytes of tensors from the model or from external data.
#include <unistd.h>

#include <cerrno>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnxio/files/data_file.h"
#include "onnxio/files/errno_status.h"
#include "onnxio/files/map_file.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

absl::StatusOr<std::string> ReadRange(int fd, int64_t offset, int64_t length) {
  std::string bytes(static_cast<size_t>(length), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pread(fd, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "external data cannot be read");
    if (n == 0) return absl::OutOfRangeError("its external data became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return bytes;
}

struct OpenRange {
  DataFile file;
  int64_t offset = 0;
  int64_t length = 0;
};

absl::StatusOr<OpenRange> OpenRangeOf(const onnx::TensorProto& tensor,
                                      const std::string& base_dir) {
  KV_ASSIGN_OR_RETURN(const DataReference reference, ParseReference(tensor));
  KV_RETURN_IF_ERROR(CheckLocation(reference.location));
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  KV_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(tensor.data_type(), count));
  const int64_t length = reference.length.value_or(expected);
  if (length != expected) {
    return absl::InvalidArgumentError(fmt::format(
        "its external data has {} bytes, where its type and shape need {}", length, expected));
  }
  OpenRange range;
  KV_ASSIGN_OR_RETURN(range.file, OpenDataFile({base_dir}, reference.location, DataPolicy()));
  const int64_t size = range.file.info.st_size;
  if (length > size || reference.offset > size - length) {
    return absl::OutOfRangeError(
        fmt::format("its external data is {} bytes from byte {} of \"{}\" on, which has {}", length,
                    reference.offset, EscapeTerminal(reference.location), size));
  }
  range.offset = reference.offset;
  range.length = length;
  return range;
}

absl::Status Named(const onnx::TensorProto& tensor, const absl::Status& status) {
  return Prefixed(fmt::format("tensor \"{}\"", EscapeTerminal(tensor.name())), status);
}

}  // namespace

absl::StatusOr<std::string> ReadTensorBytes(const onnx::TensorProto& tensor,
                                            const std::string& base_dir) {
  if (!IsElsewhere(tensor)) return InlineBytes(tensor);
  const auto range = OpenRangeOf(tensor, base_dir);
  if (!range.ok()) return Named(tensor, range.status());
  auto bytes = ReadRange(range->file.fd.get(), range->offset, range->length);
  return bytes.ok() ? std::move(bytes) : Named(tensor, bytes.status());
}

absl::StatusOr<RawData> MapTensorBytes(const onnx::TensorProto& tensor,
                                       const std::string& base_dir) {
  auto range = OpenRangeOf(tensor, base_dir);
  if (!range.ok()) return Named(tensor, range.status());
  const int64_t size = range->file.info.st_size;
  const auto mapped = MapFile(std::move(range->file.fd), size, /*keep_open=*/false);
  if (!mapped.ok()) return Named(tensor, mapped.status());
  return RawData{
      mapped->bytes.substr(static_cast<size_t>(range->offset), static_cast<size_t>(range->length)),
      mapped->owner};
}

}  // namespace kvlift
