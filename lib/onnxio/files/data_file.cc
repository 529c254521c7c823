#include "onnxio/files/data_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/files/errno_status.h"

namespace kvlift {
namespace {

// O_NONBLOCK keeps open from waiting for a writer if the file is a pipe.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr int kFolderFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

// Accepts decimal digits only.
std::optional<int64_t> ParseSize(const std::string& text) {
  int64_t value = 0;
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

absl::Status Refused(std::string_view code, const std::string& location, std::string_view why) {
  constexpr size_t kShown = 200;
  return Coded(code, absl::InvalidArgumentError(
                         fmt::format("external data in \"{}\"{}: {}",
                                     EscapeTerminal(std::string_view(location).substr(0, kShown)),
                                     location.size() > kShown ? "..." : "", why)));
}

absl::Status BadReference(const std::string& what) {
  return Coded("KV006", absl::InvalidArgumentError(what));
}

std::optional<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> resolved(realpath(path.c_str(), nullptr), &free);
  if (resolved == nullptr) return std::nullopt;
  return std::string(resolved.get());
}

// Opens a path component by component, for kernels without openat2.
int OpenByWalking(int folder, const std::string& path) {
  Fd at(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  if (!at.ok()) return -1;
  std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == ".") continue;
    if (parts[i] == "..") {
      errno = EXDEV;
      return -1;
    }
    const bool last = i + 1 == parts.size();
    Fd next(openat(at.get(), parts[i].c_str(), (last ? kReadFlags : kFolderFlags) | O_NOFOLLOW));
    if (!next.ok()) {
      // A link in the middle of a path is reported as ENOTDIR.
      struct stat info {};
      if (errno == ENOTDIR &&
          fstatat(at.get(), parts[i].c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(info.st_mode)) {
        errno = ELOOP;
      }
      return -1;
    }
    at = std::move(next);
  }
  return at.Release();
}

// Opens a path below the folder in which no part is a link. ELOOP if a part is one.
int OpenWithoutLinks(int folder, const std::string& path) {
  static std::atomic<bool> has_openat2 = true;
  if (has_openat2.load(std::memory_order_relaxed)) {
    open_how how = {};
    how.flags = kReadFlags;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    for (int attempt = 0; attempt < 100; ++attempt) {
      const auto fd =
          static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how)));
      if (fd >= 0) return fd;
      if (errno == EAGAIN || errno == EINTR) continue;  // a part of the path was renamed meanwhile
      if (errno != ENOSYS && errno != EPERM) return -1;
      break;
    }
    if (errno == ENOSYS || errno == EPERM) has_openat2.store(false, std::memory_order_relaxed);
  }
  return OpenByWalking(folder, path);
}

// Resolves the links of a path. Returns the folder that contains the target, and the target's path
// below it; nullopt if no folder contains it.
std::optional<std::pair<std::string, std::string>> TargetOf(const std::vector<std::string>& folders,
                                                            const std::string& path) {
  const auto real = RealPath(path);
  if (!real) return std::nullopt;
  for (const std::string& folder : folders) {
    const auto root = RealPath(folder.empty() ? "." : folder);
    if (!root) continue;
    const std::string prefix = *root == "/" ? *root : *root + "/";
    if (absl::StartsWith(*real, prefix)) return std::pair(*root, real->substr(prefix.size()));
  }
  return std::nullopt;
}

absl::Status CheckOpened(const std::string& location, const DataPolicy& policy, DataFile* file) {
  if (fstat(file->fd.get(), &file->info) != 0) {
    return ErrnoStatus(errno, fmt::format("external data \"{}\"", EscapeTerminal(location)));
  }
  if (!S_ISREG(file->info.st_mode)) return Refused("KV005", location, "is no regular file");
  if (file->info.st_nlink > 1 && !policy.hard_links) {
    return Refused("KV005", location,
                   "the file has another name elsewhere (a hard link); --trust-links reads it");
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> OpenIn(const std::string& folder, const std::vector<std::string>& folders,
                          const std::string& location, const DataPolicy& policy) {
  const std::string base = folder.empty() ? "." : folder;
  const auto failed = [&](int error) {
    return ErrnoStatus(error, fmt::format("external data \"{}\"", EscapeTerminal(location)));
  };
  const Fd root(open(base.c_str(), kFolderFlags));
  if (!root.ok()) return failed(errno);
  Fd fd(OpenWithoutLinks(root.get(), location));
  if (fd.ok()) return fd;
  if (errno == EXDEV)
    return Refused("KV004", location, "the path leads out of the folder of the model");
  if (errno == ENXIO) return Refused("KV005", location, "is no regular file");
  if (errno != ELOOP) return failed(errno);
  if (!policy.links) {
    return Refused("KV005", location,
                   "a part of the path is a symbolic link, which check and --strict-links do not "
                   "follow");
  }
  const auto target = TargetOf(folders, base + "/" + location);
  if (!target) {
    const bool dangling = !RealPath(base + "/" + location);
    if (dangling && errno == ENOENT) return failed(ENOENT);
    return Refused("KV005", location,
                   "a link leads out of the folder of the model; --data-dir names other folders");
  }
  const Fd target_root(open(target->first.c_str(), kFolderFlags));
  if (!target_root.ok()) return failed(errno);
  fd = Fd(OpenWithoutLinks(target_root.get(), target->second));
  if (fd.ok()) return fd;
  if (errno == ELOOP) return Refused("KV005", location, "a link changed while it was opened");
  if (errno == ENXIO) return Refused("KV005", location, "is no regular file");
  return failed(errno);
}

}  // namespace

absl::StatusOr<DataReference> ParseReference(const onnx::TensorProto& tensor) {
  DataReference reference;
  absl::flat_hash_set<std::string> seen;
  for (const auto& entry : tensor.external_data()) {
    if (!seen.insert(entry.key()).second) {
      return BadReference(
          fmt::format("its external data has the key \"{}\" twice", EscapeTerminal(entry.key())));
    }
    if (entry.key() == "location") {
      reference.location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      const auto size = ParseSize(entry.value());
      if (!size) {
        return BadReference(
            fmt::format("the {} of its external data, \"{}\", is no decimal number of bytes",
                        entry.key(), EscapeTerminal(entry.value())));
      }
      if (entry.key() == "offset") reference.offset = *size;
      if (entry.key() == "length") reference.length = *size;
    } else if (entry.key() != "checksum") {
      return BadReference(
          fmt::format("its external data has the key \"{}\"; location, offset, length and checksum "
                      "are known",
                      EscapeTerminal(entry.key())));
    }
  }
  return reference;
}

absl::Status CheckLocation(const std::string& location) {
  const auto refuse = [&](const char* why) { return Refused("KV004", location, why); };
  if (location.empty()) return refuse("no file is named");
  if (location.size() >= 4096) return refuse("the path is too long");
  if (location.find('\0') != std::string::npos) return refuse("the name holds a NUL");
  if (location[0] == '/' || location[0] == '\\') return refuse("the path is absolute");
  if (location.size() > 1 && location[1] == ':') return refuse("the path names a drive");
  for (absl::string_view part : absl::StrSplit(location, absl::ByAnyChar("/\\"))) {
    if (part == "..") return refuse("the path leads out of the folder of the model");
  }
  return absl::OkStatus();
}

absl::StatusOr<DataFile> OpenDataFile(const std::vector<std::string>& folders,
                                      const std::string& location, const DataPolicy& policy) {
  KV_RETURN_IF_ERROR(CheckLocation(location));
  absl::Status missing = absl::NotFoundError("no folder");
  for (const std::string& folder : folders) {
    auto fd = OpenIn(folder, folders, location, policy);
    if (absl::IsNotFound(fd.status())) {
      missing = fd.status();
      continue;
    }
    if (!fd.ok()) return fd.status();
    DataFile file;
    file.fd = *std::move(fd);
    file.folder = folder;
    KV_RETURN_IF_ERROR(CheckOpened(location, policy, &file));
    return file;
  }
  return missing;
}

std::vector<std::string> DataFoldersOf(const std::string& model_path) {
  const auto folder_of = [](const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return std::string(".");
    return slash == 0 ? std::string("/") : path.substr(0, slash);
  };
  if (model_path.empty() || model_path == "-") return {"."};
  std::vector<std::string> folders = {folder_of(model_path)};
  const auto real = RealPath(model_path);
  const auto near = RealPath(folders[0]);
  if (real && near && folder_of(*real) != *near) folders.push_back(folder_of(*real));
  return folders;
}

}  // namespace kvlift
