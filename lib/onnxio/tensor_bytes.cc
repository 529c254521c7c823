// The bytes of tensors whose data lies in another file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "onnxio/errno_status.h"
#include "onnxio/fd.h"
#include "onnxio/model.h"

namespace kvlift {
namespace {

struct Reference {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

// Decimal digits only.
std::optional<int64_t> ParseSize(const std::string& text) {
  int64_t value = 0;
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

absl::StatusOr<Reference> ParseReference(const onnx::TensorProto& tensor) {
  Reference reference;
  absl::flat_hash_set<std::string> seen;
  for (const auto& entry : tensor.external_data()) {
    if (!seen.insert(entry.key()).second) {
      return absl::InvalidArgumentError(
          fmt::format("external data has the key \"{}\" twice", EscapeTerminal(entry.key())));
    }
    if (entry.key() == "location") {
      reference.location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      const auto size = ParseSize(entry.value());
      if (!size) {
        return absl::InvalidArgumentError(fmt::format("external data with {} \"{}\"", entry.key(),
                                                      EscapeTerminal(entry.value())));
      }
      if (entry.key() == "offset") reference.offset = *size;
      if (entry.key() == "length") reference.length = *size;
    } else if (entry.key() != "checksum") {
      return absl::InvalidArgumentError(
          fmt::format("external data with the unknown key \"{}\"", EscapeTerminal(entry.key())));
    }
  }
  return reference;
}

absl::Status CheckLocation(const std::string& location) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(
        fmt::format("external data in \"{}\": {}", EscapeTerminal(location), why));
  };
  if (location.empty()) return refuse("no file is named");
  if (location.find('\0') != std::string::npos) return refuse("the name holds a NUL");
  if (location[0] == '/' || location[0] == '\\') return refuse("the path is absolute");
  if (location.size() > 1 && location[1] == ':') return refuse("the path names a drive");
  for (absl::string_view part : absl::StrSplit(location, absl::ByAnyChar("/\\"))) {
    if (part == "..") return refuse("the path leaves the directory of the model");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> resolved(realpath(path.c_str(), nullptr), &free);
  if (resolved == nullptr) {
    return ErrnoStatus(errno, fmt::format("external data \"{}\"", EscapeTerminal(path)));
  }
  return std::string(resolved.get());
}

// Opens the file by its real path, which has no link in it; a link put there meanwhile shows as a
// real path of the descriptor that differs.
absl::StatusOr<Fd> OpenInside(const std::string& base_dir, const std::string& location) {
  KV_ASSIGN_OR_RETURN(const std::string base, RealPath(base_dir.empty() ? "." : base_dir));
  KV_ASSIGN_OR_RETURN(const std::string path, RealPath(base + "/" + location));
  const std::string prefix = base == "/" ? base : base + "/";
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(
        fmt::format("external data in \"{}\": {}", EscapeTerminal(location), why));
  };
  if (!absl::StartsWith(path, prefix)) return refuse("a link leaves the directory of the model");
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.ok()) {
    return ErrnoStatus(errno, fmt::format("external data \"{}\"", EscapeTerminal(location)));
  }
  const auto opened = RealPath(fmt::format("/proc/self/fd/{}", fd.get()));
  if (opened.ok() && *opened != path) return refuse("a link changed while it was opened");
  return fd;
}

absl::StatusOr<std::string> ReadRange(int fd, int64_t offset, int64_t length) {
  std::string bytes(static_cast<size_t>(length), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pread(fd, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "external data cannot be read");
    if (n == 0) return absl::OutOfRangeError("external data became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return bytes;
}

absl::StatusOr<std::string> ReadExternal(const onnx::TensorProto& tensor,
                                         const std::string& base_dir) {
  KV_ASSIGN_OR_RETURN(const Reference reference, ParseReference(tensor));
  KV_RETURN_IF_ERROR(CheckLocation(reference.location));
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  KV_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(tensor.data_type(), count));
  const int64_t length = reference.length.value_or(expected);
  if (length != expected) {
    return absl::InvalidArgumentError(
        fmt::format("external data of {} bytes where the type and shape of the tensor need {}",
                    length, expected));
  }
  KV_ASSIGN_OR_RETURN(const Fd fd, OpenInside(base_dir, reference.location));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "external data cannot be read");
  const std::string shown = EscapeTerminal(reference.location);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        fmt::format("external data in \"{}\": not a regular file", shown));
  }
  const int64_t size = info.st_size;
  if (length > size || reference.offset > size - length) {
    return absl::OutOfRangeError(fmt::format("external data at {} of {} bytes, but \"{}\" has {}",
                                             reference.offset, length, shown, size));
  }
  return ReadRange(fd.get(), reference.offset, length);
}

}  // namespace

absl::StatusOr<std::string> ReadTensorBytes(const onnx::TensorProto& tensor,
                                            const std::string& base_dir) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return InlineBytes(tensor);
  auto bytes = ReadExternal(tensor, base_dir);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(),
                      fmt::format("tensor \"{}\": {}", EscapeTerminal(tensor.name()),
                                  std::string(bytes.status().message())));
}

}  // namespace kvlift
