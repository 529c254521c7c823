#include "onnxio/map_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/sha256.h"
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

std::string Sha256OfMap(std::string_view mapped) {
  constexpr size_t kPortion = size_t{16} << 20;  // a multiple of every page size
  Sha256 sha;
  for (size_t at = 0; at < mapped.size(); at += kPortion) {
    const std::string_view portion = mapped.substr(at, kPortion);
    void* begin = const_cast<char*>(portion.data());
    madvise(begin, portion.size(), MADV_WILLNEED);
    sha.Update(portion);
    madvise(begin, portion.size(), MADV_DONTNEED);
  }
  return sha.FinishHex();
}

}  // namespace kvlift
