#include "exec/memory/team.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "exec/memory/scratch.h"

// ThreadSanitizer does not know how libgomp starts and joins threads, so its builds use
// std::thread.
#ifdef __SANITIZE_THREAD__
#define KVLIFT_PLAIN_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVLIFT_PLAIN_THREADS 1
#endif
#endif

namespace kvlift::exec {
namespace {

constexpr int kPausesPerLook = 32;  // pauses between two looks at the clock
constexpr std::chrono::microseconds kSpin(50);

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Spins until done() or for kSpin at most; returns done().
template <typename Done>
bool SpinUntil(const Done& done) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() - start < kSpin);
  return done();
}

// Sleeps while *word is `value`; may return early.
void Sleep(std::atomic<uint32_t>& word, uint32_t value) {
#ifdef __linux__
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
  (void)word;
  (void)value;
  std::this_thread::yield();
#endif
}

void WakeAll(std::atomic<uint32_t>& word) {
#ifdef __linux__
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr,
          0);
#else
  (void)word;
#endif
}

thread_local bool in_unit = false;
thread_local int64_t requests = 0;

void RunUnit(absl::FunctionRef<void(int64_t)> f, int64_t unit) {
  const bool outer = in_unit;
  in_unit = true;
  f(unit);
  in_unit = outer;
}

class Team {
 public:
  using Job = absl::FunctionRef<void(int64_t)>;

  // Runs a job. It is called on the leading thread only, one job after the other.
  void Run(int64_t units, Job f) {
    const uint64_t job = (state_.load(std::memory_order_relaxed) >> kShift) + 1;
    // The state is closed before the fields change. A thread that has read fields of two jobs fails
    // to claim a unit, since the state differs from the one that it read.
    state_.store(job << kShift | kClosed, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    job_.store(&f, std::memory_order_release);
    units_.store(static_cast<uint64_t>(units), std::memory_order_release);
    Publish(job << kShift);
    while (ClaimAndRun(state_.load(std::memory_order_acquire))) {
    }
    const auto done = [&] { return finished_.load(std::memory_order_acquire) == units; };
    if (SpinUntil(done)) return;
    while (!done()) std::this_thread::yield();
  }

  void Stop() { Publish(kStop); }

  // The loop of the other threads, until Stop.
  void Work() {
    ReserveScratch();
    for (;;) {
      const uint64_t seen = state_.load(std::memory_order_acquire);
      if (seen == kStop) return;
      if (!ClaimAndRun(seen)) WaitForChange(seen);
    }
  }

 private:
  // state_ has the number of the job, and in its low bits the next unit to claim.
  static constexpr int kShift = 32;
  static constexpr uint64_t kClosed = 0xffffffff;
  static constexpr uint64_t kStop = ~uint64_t{0};

  void Publish(uint64_t state) {
    state_.store(state, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    wake_.fetch_add(1, std::memory_order_seq_cst);
    WakeAll(wake_);
  }

  // Claims a unit in the state `seen` and runs it. Returns false if there was nothing to claim,
  // true if the caller should look again.
  bool ClaimAndRun(uint64_t seen) {
    const uint64_t unit = seen & kClosed;
    const Job* job = job_.load(std::memory_order_acquire);
    if (unit >= units_.load(std::memory_order_acquire)) return false;
    if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                     std::memory_order_relaxed)) {
      RunUnit(*job, static_cast<int64_t>(unit));
      finished_.fetch_add(1, std::memory_order_release);
    }
    return true;
  }

  void WaitForChange(uint64_t seen) {
    const auto changed = [&] { return state_.load(std::memory_order_seq_cst) != seen; };
    if (SpinUntil(changed)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t wake = wake_.load(std::memory_order_seq_cst);
    if (!changed()) Sleep(wake_, wake);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // These are on separate cache lines, so that threads that spin are not slowed by the count of
  // units.
  alignas(64) std::atomic<uint64_t> state_{kClosed};
  std::atomic<const Job*> job_{nullptr};
  std::atomic<uint64_t> units_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
};

thread_local Team* current = nullptr;  // the team of the step that runs on this thread

}  // namespace

void RunWithTeam(int threads, absl::FunctionRef<void()> body) {
  if (threads <= 1 || in_unit || current != nullptr) {
    body();
    return;
  }
  Team team;
  const auto lead = [&] {
    current = &team;
    ReserveScratch();
    body();
    current = nullptr;
    team.Stop();
  };
#ifdef KVLIFT_PLAIN_THREADS
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&] { team.Work(); });
  lead();
  for (std::thread& other : others) other.join();
#else
#pragma omp parallel num_threads(threads)
  {
#pragma omp master
    lead();
    team.Work();  // nothing is left to do for the leading thread
  }
#endif
}

void RunUnits(int threads, int64_t units, absl::FunctionRef<void(int64_t)> f) {
  if (threads <= 1 || units <= 1 || in_unit) {
    for (int64_t i = 0; i < units; ++i) f(i);
    return;
  }
  ++requests;
  RunWithTeam(threads, [&] {
    if (units < std::numeric_limits<uint32_t>::max()) {
      current->Run(units, f);
    } else {
      for (int64_t i = 0; i < units; ++i) f(i);
    }
  });
}

int64_t TeamRequests() { return requests; }

}  // namespace kvlift::exec
