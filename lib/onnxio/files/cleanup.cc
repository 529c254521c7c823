#include "onnxio/files/cleanup.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>

namespace kvlift {
namespace {

struct Slot {
  std::atomic<int> state = 0;  // 0 free, 1 being filled, 2 noted
  std::array<char, PATH_MAX> path{};
};

std::array<Slot, 64> noted_paths;
std::atomic<int> holds = 0;
std::atomic<int> waiting = 0;  // the signal that came while signals were held

void EndBy(int signal) {
  RemoveTemporaries();
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  raise(signal);
}

extern "C" void OnSignal(int signal) {
  if (holds.load() > 0) {
    waiting.store(signal);
    return;
  }
  EndBy(signal);
}

extern "C" void OnShorterFile(int /*signal*/) {
  constexpr char kText[] =
      "kvlift: a file became shorter while it was read; run again when nobody writes it [KV008]\n";
  RemoveTemporaries();
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(3);
  _exit(3);
}

}  // namespace

void RemoveTemporaries() {
  for (Slot& slot : noted_paths) {
    if (slot.state.load() == 2) unlink(slot.path.data());
  }
  for (Slot& slot : noted_paths) {
    if (slot.state.load() == 2) rmdir(slot.path.data());
  }
}

void CleanUpOnSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    // A process that ignores these signals (nohup) continues to do so.
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
  action.sa_handler = OnShorterFile;
  sigaction(SIGBUS, &action, nullptr);
}

int NoteTemporary(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (size_t i = 0; i < noted_paths.size(); ++i) {
    int free = 0;
    if (!noted_paths[i].state.compare_exchange_strong(free, 1)) continue;
    std::memcpy(noted_paths[i].path.data(), path.c_str(), path.size() + 1);
    noted_paths[i].state.store(2);
    return static_cast<int>(i);
  }
  return -1;
}

void ForgetTemporary(int slot) {
  if (slot >= 0) noted_paths[static_cast<size_t>(slot)].state.store(0);
}

DelaySignals::DelaySignals() { holds.fetch_add(1); }

DelaySignals::~DelaySignals() {
  if (holds.fetch_sub(1) != 1) return;
  if (const int signal = waiting.exchange(0); signal != 0) EndBy(signal);
}

}  // namespace kvlift
