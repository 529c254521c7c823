#include "kvlift/fleet/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/bytes/copy.h"
#include "onnxio/files/errno_status.h"

namespace kvlift::cli {
namespace {

// Commands in the order in which a user runs them.
size_t RankOf(const std::string& command) {
  return command == "convert" ? 0 : command == "verify" ? 1 : 2;
}

absl::StatusOr<std::string> ReadResultsText(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot be read");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is no file of results");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || (info.st_size > 0 && !(text << file.rdbuf()))) {
    return ErrnoStatus(errno == 0 ? EIO : errno, "cannot be read");
  }
  return text.str();
}

}  // namespace

absl::StatusOr<std::vector<FleetResult>> ReadResults(const std::string& path) {
  KV_ASSIGN_OR_RETURN(const std::string text, ReadResultsText(path));
  std::vector<FleetResult> results;
  size_t begin = 0, number = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++number;
    auto result = ReadLine(std::string_view(text).substr(begin, end - begin));
    if (!result) {
      return absl::InvalidArgumentError(fmt::format("line {} is no result of fleet", number));
    }
    results.push_back(*std::move(result));
  }
  return results;
}

absl::StatusOr<ResultsLog> ResultsLog::Open(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0) return WriteFailed(errno, "open", path);
  off_t end = info.st_size;
  for (char last = 0; end > 0; --end) {
    if (pread(fd.get(), &last, 1, end - 1) != 1) return WriteFailed(errno, "read", path);
    if (last == '\n') break;
  }
  if (end < info.st_size && ftruncate(fd.get(), end) != 0) return WriteFailed(errno, "write", path);
  return ResultsLog(path, std::move(fd));
}

absl::Status ResultsLog::Add(const FleetResult& result) {
  const std::string line = ToLine(result);
  const off_t before = lseek(fd_.get(), 0, SEEK_END);
  errno = 0;
  const ssize_t written = write(fd_.get(), line.data(), line.size());
  if (written == std::ssize(line) && fdatasync(fd_.get()) == 0) return absl::OkStatus();
  const int error = errno == 0 ? ENOSPC : errno;
  if (written > 0 && before >= 0 && ftruncate(fd_.get(), before) != 0) {
    return WriteFailed(errno, "write", path_);
  }
  return WriteFailed(error, "write", path_);
}

std::vector<FleetResult> InOrder(const std::vector<FleetResult>& results) {
  std::map<std::vector<std::string>, const FleetResult*> last;
  for (const FleetResult& result : results) last[result.Subject()] = &result;
  std::vector<FleetResult> sorted;
  sorted.reserve(last.size());
  for (const auto& [subject, result] : last) sorted.push_back(*result);
  std::stable_sort(sorted.begin(), sorted.end(), [](const FleetResult& a, const FleetResult& b) {
    return std::tuple(RankOf(a.command), a.index) < std::tuple(RankOf(b.command), b.index);
  });
  return sorted;
}

std::string ResultsText(const std::vector<FleetResult>& results) {
  std::string text;
  for (const FleetResult& result : results) text += ToLine(result);
  return text;
}

absl::StatusOr<Fd> TakeFolder(const std::string& folder) {
  Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return WriteFailed(errno, "open", folder);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  // Some file systems have no locks; another process is not kept out there.
  if (errno != EWOULDBLOCK) return fd;
  return absl::FailedPreconditionError("another run of fleet is writing into this folder");
}

}  // namespace kvlift::cli
