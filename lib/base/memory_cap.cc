#include "base/memory_cap.h"

#include <unistd.h>

#include <cstdio>

#include "base/sanitized.h"

namespace kvlift {
namespace {

#ifdef KVLIFT_SANITIZED
constexpr bool kCaps = false;
#else
constexpr bool kCaps = true;
#endif

// Lowers the limit. Returns the limit before, or nullopt if it was not changed.
std::optional<rlimit> Lower(uint64_t bytes) {
  rlimit limit{};
  if (!kCaps || getrlimit(RLIMIT_DATA, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= bytes) return std::nullopt;
  const rlimit before = limit;
  limit.rlim_cur = bytes;
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return std::nullopt;
  return before;
}

// Returns the number of bytes that RLIMIT_DATA counts, or 0 if the system does not say.
uint64_t DataBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long long pages = 0;
  const bool read = std::fscanf(file, "%*u %*u %*u %*u %*u %llu", &pages) == 1;
  std::fclose(file);
  return read ? pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) : 0;
}

}  // namespace

void CapMemoryAtPhysical() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && size > 0) Lower(static_cast<uint64_t>(pages) * static_cast<uint64_t>(size));
}

MemoryCap::MemoryCap(uint64_t more) {
  exists_.store(true, std::memory_order_relaxed);
  if (const uint64_t held = DataBytes(); held > 0) before_ = Lower(held + more);
}

MemoryCap::~MemoryCap() {
  exists_.store(false, std::memory_order_relaxed);
  if (before_) setrlimit(RLIMIT_DATA, &*before_);
}

}  // namespace kvlift
