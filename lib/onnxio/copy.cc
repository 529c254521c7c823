#include "onnxio/copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/errno_status.h"

namespace kvlift {
namespace {

constexpr uint64_t kLarge = uint64_t{1} << 20;
constexpr uint64_t kPortion = uint64_t{64} << 20;  // bytes between two calls of progress

// Shares the blocks of a whole file with an empty one. False if the file system cannot do that.
bool ShareBlocks(int to, const Piece& piece) {
  struct stat info {};
  return piece.fd >= 0 && piece.offset == 0 && fstat(piece.fd, &info) == 0 &&
         static_cast<uint64_t>(info.st_size) == piece.bytes.size() &&
         ioctl(to, FICLONE, piece.fd) == 0;
}

class Writer {
 public:
  Writer(int fd, uint64_t total, const std::string& shown, const WriteProgress& progress)
      : fd_(fd), total_(total), shown_(shown), progress_(progress) {}

  absl::Status Put(const Piece& piece) {
    uint64_t at = 0;
    const uint64_t size = piece.bytes.size();
    bool by_kernel = piece.fd >= 0 && size >= kLarge;
    while (at < size) {
      const auto portion = static_cast<size_t>(std::min(size - at, kPortion));
      auto from = static_cast<off_t>(piece.offset + at);
      const ssize_t n = by_kernel ? copy_file_range(piece.fd, &from, fd_, nullptr, portion, 0)
                                  : write(fd_, piece.bytes.data() + at, portion);
      if (n < 0 && errno == EINTR) continue;
      if (by_kernel && (n == 0 || (n < 0 && CannotCopy(errno)))) {
        by_kernel = false;
        continue;
      }
      if (n < 0) return WriteFailed(errno, "write", shown_);
      at += static_cast<uint64_t>(n);
      StartWriting(static_cast<uint64_t>(n));
      done_ += static_cast<uint64_t>(n);
      if (progress_ != nullptr) progress_(done_, total_);
    }
    return absl::OkStatus();
  }

 private:
  // Starts writing the last bytes to the disk while more are read. This is only a hint.
  void StartWriting(uint64_t size) const {
    if (size < kLarge) return;
    sync_file_range(fd_, static_cast<off64_t>(done_), static_cast<off64_t>(size),
                    SYNC_FILE_RANGE_WRITE);
  }

  static bool CannotCopy(int error) {
    return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
           error == EPERM || error == EBADF;
  }

  const int fd_;
  const uint64_t total_;
  const std::string& shown_;
  const WriteProgress& progress_;
  uint64_t done_ = 0;
};

}  // namespace

absl::Status WriteFailed(int error, std::string_view what, const std::string& shown) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Coded(full ? "KV504" : "KV501",
               ErrnoStatus(error, fmt::format("cannot {} \"{}\"", what, EscapeTerminal(shown))));
}

absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress) {
  uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes.size();
  if (pieces.size() == 1 && ShareBlocks(fd, pieces[0])) return absl::OkStatus();
  if (total >= kLarge && fallocate(fd, 0, 0, static_cast<off_t>(total)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    return WriteFailed(errno, "write", shown);
  }
  Writer writer(fd, total, shown, progress);
  std::string joined;  // small neighbouring pieces
  const auto flush = [&]() -> absl::Status {
    const absl::Status status = writer.Put({joined, -1, 0});
    joined.clear();
    return status;
  };
  for (const Piece& piece : pieces) {
    if (piece.bytes.size() < kLarge) {
      joined.append(piece.bytes);
      if (joined.size() >= kLarge) KV_RETURN_IF_ERROR(flush());
      continue;
    }
    KV_RETURN_IF_ERROR(flush());
    KV_RETURN_IF_ERROR(writer.Put(piece));
  }
  return flush();
}

}  // namespace kvlift
