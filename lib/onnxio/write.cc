// Serialising, and writing files together or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <random>

#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "onnxio/errno_status.h"
#include "onnxio/fd.h"
#include "onnxio/guard.h"
#include "onnxio/limits.h"
#include "onnxio/model.h"

namespace kvlift {
namespace {

absl::Status Failed(int error, std::string_view what, const std::string& path) {
  return ErrnoStatus(error, fmt::format("cannot {} \"{}\"", what, EscapeTerminal(path)));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  constexpr size_t kPiece = size_t{1} << 30;  // below what one call may transfer
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min(bytes.size(), kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// A name beside `path` that stale files of a killed run are recognised by.
std::string TemporaryName(const std::string& path) {
  std::random_device random;
  return fmt::format("{}.tmp-{}-{:08x}", path, getpid(), random());
}

// Temporary files that take the names of the outputs together. What was not kept at the end is
// undone: new files are removed, old ones have their names back.
class Staged {
 public:
  Staged() = default;
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged();

  absl::Status Add(const OutputFile& file);
  absl::Status RenameAll();

 private:
  struct Entry {
    std::string path;
    std::string temporary;  // empty once renamed
    std::string backup;     // second name of the old file; empty if there is none
    bool replaces = false;  // there was an old file
  };
  absl::Status KeepOld(Entry& entry);

  std::vector<Entry> entries_;
  bool kept_ = false;
};

Staged::~Staged() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!entry->temporary.empty()) {
      unlink(entry->temporary.c_str());
    } else if (!kept_ && !entry->replaces) {
      unlink(entry->path.c_str());
    } else if (!kept_ && !entry->backup.empty() &&
               rename(entry->backup.c_str(), entry->path.c_str()) == 0) {
      continue;
    }
    if (!entry->backup.empty()) unlink(entry->backup.c_str());
  }
}

absl::Status Staged::Add(const OutputFile& file) {
  struct stat info {};
  if (file.path.empty() || file.path.back() == '/' ||
      (stat(file.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) {
    return absl::InvalidArgumentError(
        fmt::format("cannot write \"{}\": not a file name", EscapeTerminal(file.path)));
  }
  Fd fd;
  std::string path;
  for (int attempt = 0; attempt < 100 && !fd.ok(); ++attempt) {
    path = TemporaryName(file.path);
    fd = Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd.ok() && errno != EEXIST) return Failed(errno, "create", file.path);
  }
  if (!fd.ok()) return Failed(EEXIST, "create", file.path);
  entries_.push_back({file.path, path, {}, false});
  KV_RETURN_IF_ERROR(WriteAll(fd.get(), file.bytes, file.path));
  if (fsync(fd.get()) != 0) return Failed(errno, "write", file.path);
  if (close(fd.Release()) != 0) return Failed(errno, "write", file.path);
  return absl::OkStatus();
}

absl::Status Staged::KeepOld(Entry& entry) {
  struct stat info {};
  if (lstat(entry.path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed(errno, "write", entry.path);
  }
  entry.replaces = true;
  const std::string backup = TemporaryName(entry.path);
  if (link(entry.path.c_str(), backup.c_str()) == 0) {
    entry.backup = backup;
  } else if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK) {  // no hard links there
    return Failed(errno, "write", entry.path);
  }
  return absl::OkStatus();
}

absl::Status Staged::RenameAll() {
  // One file is replaced atomically; only what comes after another needs its old file kept.
  if (entries_.size() > 1) {
    for (Entry& entry : entries_) KV_RETURN_IF_ERROR(KeepOld(entry));
  }
  for (Entry& entry : entries_) {
    if (rename(entry.temporary.c_str(), entry.path.c_str()) != 0) {
      return Failed(errno, "write", entry.path);
    }
    entry.temporary.clear();
  }
  kept_ = true;
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return Failed(errno, "open", path);
  // Some file systems cannot sync a directory and need not.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return Failed(errno, "write", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFiles(const std::vector<OutputFile>& files) {
  Staged staged;
  for (const OutputFile& file : files) KV_RETURN_IF_ERROR(staged.Add(file));
  KV_RETURN_IF_ERROR(staged.RenameAll());
  for (const OutputFile& file : files) KV_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(file.path)));
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeModel(const onnx::ModelProto& model) {
  std::string bytes;
  bool complete = false;
  KV_RETURN_IF_ERROR(Guard("cannot serialise the model", [&] {
    if (model.ByteSizeLong() > static_cast<size_t>(kMaxModelBytes)) return;
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    complete = model.SerializeToCodedStream(&coded);
  }));
  if (!complete) {
    return absl::OutOfRangeError(
        fmt::format("the model takes more than {} bytes, the limit of protobuf", kMaxModelBytes));
  }
  return bytes;
}

}  // namespace kvlift
