// Runs this program again in child processes that have limits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace kvlift::cli {

// 0: no limit.
struct ProcessLimits {
  // Memory that a process may allocate (RLIMIT_DATA). Files that are mapped for reading do not
  // count. Builds with sanitizers ignore it, as their shadow memory counts.
  int64_t memory_bytes = 0;
  double seconds = 0;
};

struct ProcessEnd {
  int status = 0;          // as waitpid gives it
  bool timed_out = false;  // it was ended because it took too long
  double seconds = 0;
  int64_t peak_bytes = 0;  // resident memory
  pid_t pid = 0;
};

// Sets the words in front of the arguments with which this program starts itself again; the first
// is the path of an executable. By default the only word is /proc/self/exe, which is Python in the
// Python package.
void RunSelfAs(std::vector<std::string> words);

// Child processes, each in a process group of its own. They end with this object, and get SIGTERM
// if this process is killed. Only one thread may use an object.
class Processes {
 public:
  explicit Processes(ProcessLimits limits) : limits_(limits) {}
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Starts this program with arguments (without its name), an empty stdin, and its output in two
  // files, which are overwritten. Fails as ErrnoStatus.
  absl::Status Start(size_t id, const std::vector<std::string>& arguments,
                     const std::string& out_path, const std::string& err_path);
  // Returns the number of processes that WaitForOne has not returned yet.
  size_t running() const { return children_.size() + ended_.size(); }
  // Notes processes that have ended, and stops those that take too long. It does not wait: a caller
  // that does other work meanwhile calls it from time to time, so that times and limits are kept.
  void Poll();
  // Waits until a process ends, and returns its id. There must be a running one.
  std::pair<size_t, ProcessEnd> WaitForOne();

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    size_t id = 0;
    pid_t pid = 0;
    Clock::time_point begin;
    bool warned = false, killed = false;  // it got SIGTERM, or SIGKILL
  };
  void StopLateOne(Child& child) const;

  const ProcessLimits limits_;
  std::vector<Child> children_;
  std::deque<std::pair<size_t, ProcessEnd>> ended_;
};

}  // namespace kvlift::cli
