#include "exec/external_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

struct Location {
  std::string path;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool has_length = false;
};

absl::StatusOr<Location> ReadLocation(const onnx::TensorProto& proto) {
  Location location;
  for (const onnx::StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      location.path = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      uint64_t& target = entry.key() == "offset" ? location.offset : location.length;
      if (!absl::SimpleAtoi(entry.value(), &target)) {
        return absl::InvalidArgumentError(fmt::format("tensor \"{}\": external {} is \"{}\"",
                                                      proto.name(), entry.key(), entry.value()));
      }
      if (entry.key() == "length") location.has_length = true;
    }
  }
  const std::string& path = location.path;
  bool bad = path.empty() || path[0] == '/' || path.find('\0') != std::string::npos;
  for (const absl::string_view part : absl::StrSplit(path, '/')) bad = bad || part == "..";
  if (bad) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\": external location \"{}\" is not a relative path below the "
                    "model's folder",
                    proto.name(), path));
  }
  return location;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<MappedRange> MapExternalData(const onnx::TensorProto& proto,
                                            const std::string& base_dir, size_t expected) {
  KV_ASSIGN_OR_RETURN(const Location location, ReadLocation(proto));
  if (location.has_length && location.length != expected) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\": external length {} where its shape needs {}", proto.name(),
                    location.length, expected));
  }
  const std::string path = (base_dir.empty() ? "." : base_dir) + "/" + location.path;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    return absl::NotFoundError(
        fmt::format("tensor \"{}\": cannot open \"{}\"", proto.name(), location.path));
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\": \"{}\" is no regular file", proto.name(), location.path));
  }
  const auto file_size = static_cast<uint64_t>(info.st_size);
  if (location.offset > file_size || expected > file_size - location.offset) {
    return absl::OutOfRangeError(fmt::format("tensor \"{}\": \"{}\" has {} bytes, {} + {} needed",
                                             proto.name(), location.path, file_size,
                                             location.offset, expected));
  }
  if (expected == 0) return MappedRange{};
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = location.offset / page * page;
  const size_t length = expected + static_cast<size_t>(location.offset - start);
  void* map = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.get(), static_cast<off_t>(start));
  if (map == MAP_FAILED) {
    return absl::ResourceExhaustedError(fmt::format("cannot map \"{}\"", location.path));
  }
  MappedRange range;
  range.owner = std::shared_ptr<void>(map, [length](void* p) { munmap(p, length); });
  range.data = static_cast<const std::byte*>(map) + (location.offset - start);
  range.size = expected;
  return range;
}

}  // namespace kvlift::exec
