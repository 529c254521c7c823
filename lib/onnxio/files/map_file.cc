#include "onnxio/files/map_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/sha256.h"
#include "onnxio/files/errno_status.h"

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

// Identifies the state of a file when it was mapped: device, inode, bytes, time of the last change.
using FileKey = std::tuple<dev_t, ino_t, off_t, time_t, long>;

// The maps in use. Two models with one file of weights share its pages.
class Maps {
 public:
  static Maps& Get() {
    static Maps& maps = *new Maps;
    return maps;
  }

  std::shared_ptr<Map> Find(const FileKey& key) {
    const std::lock_guard lock(mutex_);
    const auto it = maps_.find(key);
    return it == maps_.end() ? nullptr : it->second.lock();
  }

  void Add(const FileKey& key, const std::shared_ptr<Map>& map) {
    const std::lock_guard lock(mutex_);
    for (auto it = maps_.begin(); it != maps_.end();) {
      it = it->second.expired() ? maps_.erase(it) : std::next(it);
    }
    maps_[key] = map;
  }

 private:
  std::mutex mutex_;
  std::map<FileKey, std::weak_ptr<Map>> maps_;
};

std::optional<FileKey> KeyOf(const Fd& fd, int64_t size) {
  struct stat info {};
  if (size <= 0 || fstat(fd.get(), &info) != 0 || info.st_size != size) return std::nullopt;
  return FileKey(info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

}  // namespace

absl::StatusOr<MappedFile> MapFile(Fd fd, int64_t size, bool keep_open) {
  // A map that is kept open needs a descriptor of its own.
  const auto key = keep_open ? std::nullopt : KeyOf(fd, size);
  if (key) {
    if (std::shared_ptr<Map> known = Maps::Get().Find(*key); known != nullptr) {
      const std::string_view bytes(static_cast<const char*>(known->data), known->size);
      return MappedFile{bytes, std::move(known), -1};
    }
  }
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
  if (key) Maps::Get().Add(*key, map);
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
