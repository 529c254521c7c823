#include "onnxio/files/stale.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

namespace kvlift {
namespace {

namespace fs = std::filesystem;

bool IsGone(std::string_view pid_and_random) {
  int pid = 0;
  const char* end = pid_and_random.data() + pid_and_random.size();
  const auto [rest, error] = std::from_chars(pid_and_random.data(), end, pid);
  if (error != std::errc() || pid <= 0 || rest == end || *rest != '-') return false;
  const std::string_view random(rest + 1, static_cast<size_t>(end - rest - 1));
  if (random.size() != 16 || random.find_first_not_of("0123456789abcdef") != random.npos) {
    return false;
  }
  return kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::vector<std::string> StaleTemporaries(const std::string& path) {
  const fs::path output(path);
  const std::string start = output.filename().string() + ".tmp-";
  const fs::path folder = output.has_parent_path() ? output.parent_path() : ".";
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.compare(0, start.size(), start) == 0 &&
        IsGone(std::string_view(name).substr(start.size()))) {
      found.push_back((output.parent_path() / name).string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace kvlift
