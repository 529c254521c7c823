// Limits how much memory the process may allocate (RLIMIT_DATA). This is a backstop for library
// code whose memory use cannot be estimated beforehand: an allocation beyond the limit fails with
// std::bad_alloc. The limit is not set in sanitised builds, which reserve far more than they use.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace kvlift {

// Lowers the limit to the physical memory of the machine. A limit that is already lower stays.
void CapMemoryAtPhysical();

// While an object of this class exists, the process may allocate `more` bytes beyond what it has
// when the object is made. Only one such object may exist at a time. Does nothing if the system
// does not say what the process has, or if the limit is lower already.
class MemoryCap {
 public:
  explicit MemoryCap(uint64_t more);
  ~MemoryCap();
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

  // Returns true while an object exists. The caller then turns std::bad_alloc into an error of its
  // own.
  static bool Exists() { return exists_.load(std::memory_order_relaxed); }

 private:
  inline static std::atomic<bool> exists_ = false;
  std::optional<rlimit> before_;
};

}  // namespace kvlift
