#include "kvlift/fleet/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "base/sanitized.h"
#include "onnxio/files/errno_status.h"
#include "onnxio/files/fd.h"

namespace kvlift::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(5);
// The time in which a process that takes too long may remove its temporary files, before it is
// killed.
constexpr double kGraceSeconds = 2;

// Opens a file with a descriptor above those of the standard streams, so that none of these is
// taken for another in the child.
Fd OpenFile(const char* path, int flags) {
  Fd fd(open(path, flags | O_CLOEXEC, 0666));
  if (!fd.ok() || fd.get() > STDERR_FILENO) return fd;
  return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

void SetLimit(__rlimit_resource_t what, rlim_t value) {
  const rlimit limit{value, value};
  setrlimit(what, &limit);
}

// Delays all signals while it lives.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

// Path of the executable, then the words in front of the arguments.
struct Self {
  std::string path = "/proc/self/exe";
  std::vector<std::string> words = {"kvlift"};
};

Self& TheSelf() {
  static Self* const self = new Self;
  return *self;
}

// Runs in the child, which begins with all signals blocked: the handlers of this process would
// remove its temporary files. It may call only what is safe between fork and exec.
[[noreturn]] void Become(const char* path, char* const* arguments, pid_t parent,
                         const int (&streams)[3], [[maybe_unused]] const ProcessLimits& limits,
                         const sigset_t& signals) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(128 + SIGTERM);
  SetLimit(RLIMIT_CORE, 0);
#ifndef KVLIFT_SANITIZED
  if (limits.memory_bytes > 0) SetLimit(RLIMIT_DATA, static_cast<rlim_t>(limits.memory_bytes));
#endif
  for (int k = 0; k < 3; ++k) dup2(streams[k], k);
  execv(path, arguments);
  constexpr char kText[] = "kvlift: cannot run itself again\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(127);
  _exit(127);
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void RunSelfAs(std::vector<std::string> words) {
  TheSelf().path = words.front();
  TheSelf().words = std::move(words);
}

Processes::~Processes() {
  for (const Child& child : children_) kill(-child.pid, SIGTERM);
  while (!children_.empty()) {
    for (Child& child : children_) {
      if (!child.warned) child.begin = Clock::now();
      child.warned = true;
      if (SecondsSince(child.begin) > kGraceSeconds) kill(-child.pid, SIGKILL);
    }
    std::erase_if(children_,
                  [](const Child& child) { return waitpid(child.pid, nullptr, WNOHANG) != 0; });
    if (!children_.empty()) std::this_thread::sleep_for(kPollInterval);
  }
}

absl::Status Processes::Start(size_t id, const std::vector<std::string>& arguments,
                              const std::string& out_path, const std::string& err_path) {
  const Fd in = OpenFile("/dev/null", O_RDONLY);
  const Fd out = OpenFile(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  if (!out.ok()) return ErrnoStatus(errno, out_path);
  const Fd err = OpenFile(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  if (!err.ok()) return ErrnoStatus(errno, err_path);
  const int streams[3] = {in.get(), out.get(), err.get()};
  std::vector<std::string> words = TheSelf().words;
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const BlockSignals blocked;
  const pid_t pid = fork();
  if (pid == 0) {
    Become(TheSelf().path.c_str(), pointers.data(), parent, streams, limits_, blocked.before());
  }
  if (pid < 0) return ErrnoStatus(errno, "cannot start a process");
  setpgid(pid, pid);  // the child does so, too: whoever is first
  children_.push_back({id, pid, Clock::now()});
  return absl::OkStatus();
}

void Processes::StopLateOne(Child& child) const {
  if (limits_.seconds <= 0) return;
  const double late = SecondsSince(child.begin) - limits_.seconds;
  if (late > 0 && !child.warned) {
    kill(-child.pid, SIGTERM);
    child.warned = true;
  }
  if (late > kGraceSeconds && !child.killed) {
    kill(-child.pid, SIGKILL);
    child.killed = true;
  }
}

void Processes::Poll() {
  std::erase_if(children_, [this](Child& child) {
    ProcessEnd end;
    rusage usage{};
    if (wait4(child.pid, &end.status, WNOHANG, &usage) != child.pid) {
      StopLateOne(child);
      return false;
    }
    end.pid = child.pid;
    end.seconds = SecondsSince(child.begin);
    end.timed_out = child.warned && WIFSIGNALED(end.status);
    end.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
    kill(-child.pid, SIGKILL);  // what it may have started itself
    ended_.emplace_back(child.id, end);
    return true;
  });
}

std::pair<size_t, ProcessEnd> Processes::WaitForOne() {
  for (Poll(); ended_.empty(); Poll()) std::this_thread::sleep_for(kPollInterval);
  const auto first = ended_.front();
  ended_.pop_front();
  return first;
}

}  // namespace kvlift::cli
