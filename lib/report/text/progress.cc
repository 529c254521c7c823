#include "report/text/progress.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/escape.h"
#include "fmt/format.h"
#include "report/text/style.h"
#include "report/text/text_width.h"

namespace kvlift {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kPause = std::chrono::milliseconds(200);
constexpr char kWipe[] = "\r\x1b[K";

}  // namespace

Progress::Progress(int fd, bool enabled) : fd_(fd) {
  if (!enabled) return;
  // The thread blocks all signals, so that they reach the threads that do the work.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Progress::~Progress() { Stop(); }

void Progress::Say(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Progress::Write(const std::string& text) const {
  // If the terminal takes nothing, only this line is lost.
  [[maybe_unused]] const ssize_t written = write(fd_, text.data(), text.size());
}

void Progress::Run() {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  bool shown = false;
  auto pause = kPatience;
  while (!wake_.wait_for(lock, pause, [this] { return done_; })) {
    pause = kPause;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const int width = StyleOf(fd_, ColorChoice::kNever).width;
    const std::string line =
        WrapText(fmt::format("{:.0f} s  {}", seconds, EscapeTerminal(what_)), width - 1)[0];
    Write(kWipe + line);
    shown = true;
  }
  if (shown) Write(kWipe);
}

}  // namespace kvlift
