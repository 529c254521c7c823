#include "onnxio/map_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "onnxio/errno_status.h"

namespace kvlift {
namespace {

struct Map {
  Map() = default;
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  ~Map() {
    if (data != nullptr) munmap(data, size);
  }

  void* data = nullptr;
  size_t size = 0;
  Fd fd;
};

}  // namespace

absl::StatusOr<MappedFile> MapFile(Fd fd, int64_t size, bool keep_open) {
  auto map = std::make_shared<Map>();
  if (size > 0) {
    void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return ErrnoStatus(errno, "cannot map");
    map->data = data;
    map->size = static_cast<size_t>(size);
  }
  MappedFile file;
  file.bytes = {static_cast<const char*>(map->data), map->size};
  if (keep_open) {
    map->fd = std::move(fd);
    file.fd = map->fd.get();
  }
  file.owner = std::move(map);
  return file;
}

}  // namespace kvlift
