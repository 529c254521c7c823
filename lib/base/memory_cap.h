// How much memory of its own the process may get: a backstop for code of others, whose needs cannot
// be told beforehand. Running into it is std::bad_alloc. Without effect under sanitizers, which
// reserve far more than they use.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>

namespace kvlift {

// Never more than the machine has.
void CapMemoryAtThatOfTheMachine();

// While one of these lives: what the process has now, and `more` bytes. One at a time.
class MemoryCap {
 public:
  explicit MemoryCap(uint64_t more);
  ~MemoryCap();
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  std::optional<rlimit> before_;
};

}  // namespace kvlift
