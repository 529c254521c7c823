// Serialises models, and writes files together or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <random>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/bytes/copy.h"
#include "onnxio/bytes/image.h"
#include "onnxio/files/cleanup.h"
#include "onnxio/files/fd.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Returns a name beside `path`, by which StaleTemporaries recognises the files of killed runs.
std::string TemporaryName(const std::string& path) {
  std::random_device random;
  return fmt::format("{}.tmp-{}-{:08x}{:08x}", path, getpid(), random(), random());
}

// Returns what is at a path, or where a link there leads to, if a file must not take its place;
// empty if one may. A link into /proc leads to a file that a process has open.
std::string_view WhatIsInTheWay(const std::string& path) {
  if (path.empty() || path.back() == '/') return "not a file name";
  char target[sizeof("/proc/")] = {};
  constexpr std::string_view kProc = "/proc/";
  if (readlink(path.c_str(), target, kProc.size()) > 0 && kProc == target) {
    return "it is a link to an open file";
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  if (S_ISDIR(info.st_mode)) return "it is a folder";
  return S_ISFIFO(info.st_mode)   ? "it is a pipe"
         : S_ISSOCK(info.st_mode) ? "it is a socket"
                                  : "it is a device";
}

// Returns the permissions of a new file: only users who may read every file whose bytes it gets may
// read it.
mode_t ModeOf(const std::vector<Piece>& pieces) {
  mode_t mode = 0666;
  for (const Piece& piece : pieces) {
    struct stat info {};
    if (piece.fd >= 0 && fstat(piece.fd, &info) == 0) mode &= info.st_mode | S_IRUSR | S_IWUSR;
  }
  return mode;
}

// Temporary files that are renamed to the outputs together. Without success the destructor undoes
// everything: new files are removed, old ones get their names back.
class Staged {
 public:
  Staged() = default;
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged();

  absl::Status Add(const OutputFile& file, const WriteProgress& progress);
  // Renames the files in the order in which they were added.
  absl::Status RenameAll();

 private:
  struct Entry {
    std::string path;
    std::string temporary;  // empty once renamed
    std::string backup;     // second name of the old file; empty if there is none
    int slot = -1;          // of NoteTemporary
    bool replaces = false;  // an old file exists
  };
  absl::Status KeepOld(Entry& entry);

  std::vector<Entry> entries_;
  bool kept_ = false;
};

Staged::~Staged() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!entry->temporary.empty()) {
      unlink(entry->temporary.c_str());
      ForgetTemporary(entry->slot);
    } else if (!kept_ && !entry->replaces) {
      unlink(entry->path.c_str());
    } else if (!kept_ && !entry->backup.empty() &&
               rename(entry->backup.c_str(), entry->path.c_str()) == 0) {
      continue;
    }
    if (!entry->backup.empty()) unlink(entry->backup.c_str());
  }
}

absl::Status Staged::Add(const OutputFile& file, const WriteProgress& progress) {
  if (const std::string_view why = WhatIsInTheWay(file.path); !why.empty()) {
    return Coded("KV501", absl::InvalidArgumentError(fmt::format("cannot write \"{}\": {}",
                                                                 EscapeTerminal(file.path), why)));
  }
  const std::string path = TemporaryName(file.path);
  const int slot = NoteTemporary(path);
  // The file is noted before it exists, so that a signal cannot leave it behind.
  entries_.push_back({file.path, path, {}, slot, false});
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
             ModeOf(file.pieces)));
  if (!fd.ok()) {
    const int error = errno;
    entries_.pop_back();
    ForgetTemporary(slot);
    return WriteFailed(error, "create", file.path);
  }
  std::vector<Piece> pieces = {{file.bytes, -1, 0}};
  if (file.bytes.empty()) pieces.clear();
  pieces.insert(pieces.end(), file.pieces.begin(), file.pieces.end());
  KV_RETURN_IF_ERROR(WritePieces(fd.get(), pieces, file.path, progress));
  if (fsync(fd.get()) != 0) return WriteFailed(errno, "write", file.path);
  if (close(fd.Release()) != 0) return WriteFailed(errno, "write", file.path);
  return absl::OkStatus();
}

absl::Status Staged::KeepOld(Entry& entry) {
  struct stat info {};
  if (lstat(entry.path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : WriteFailed(errno, "write", entry.path);
  }
  entry.replaces = true;
  entry.backup = TemporaryName(entry.path);
  if (link(entry.path.c_str(), entry.backup.c_str()) == 0) return absl::OkStatus();
  entry.backup.clear();
  // The file system has no hard links.
  if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK) {
    return WriteFailed(errno, "write", entry.path);
  }
  return absl::OkStatus();
}

absl::Status Staged::RenameAll() {
  // A single file is replaced atomically. With several, the old files are kept until all are
  // renamed.
  if (entries_.size() > 1) {
    for (Entry& entry : entries_) KV_RETURN_IF_ERROR(KeepOld(entry));
  }
  for (Entry& entry : entries_) {
    if (rename(entry.temporary.c_str(), entry.path.c_str()) != 0) {
      return WriteFailed(errno, "write", entry.path);
    }
    entry.temporary.clear();
    ForgetTemporary(entry.slot);
  }
  kept_ = true;
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return WriteFailed(errno, "open", path);
  // Some file systems cannot sync a directory and need not.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return WriteFailed(errno, "write", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFiles(const std::vector<OutputFile>& files, const WriteProgress& progress) {
  {
    std::optional<DelaySignals> hold;  // until `staged` has removed the second names of old files
    Staged staged;
    for (const OutputFile& file : files) KV_RETURN_IF_ERROR(staged.Add(file, progress));
    hold.emplace();
    KV_RETURN_IF_ERROR(staged.RenameAll());
  }
  for (const OutputFile& file : files) KV_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(file.path)));
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeModel(const onnx::ModelProto& model) {
  KV_ASSIGN_OR_RETURN(const ModelImage image, ImageOf(model, {}));
  std::string bytes;
  bytes.reserve(image.size);
  for (const Piece& piece : image.pieces) bytes.append(piece.bytes);
  return bytes;
}

}  // namespace kvlift
