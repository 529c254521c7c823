// Aligned memory blocks of the executor and their count, which tests use to show that steps after
// warm-up allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace kvlift::exec {

// 64-byte aligned, uninitialised; null if there is no memory, if it would be more than
// RunLimits() has, or if bytes is 0.
std::shared_ptr<void> AllocateAligned(size_t bytes);
// The same for large blocks that are read often: on huge pages where the system has them, untouched
// and zero. Not counted.
std::shared_ptr<void> AllocateHuge(size_t bytes);
// Blocks handed out by AllocateAligned and taken by buffers since the process started, and the
// bytes of those that are held now.
int64_t AllocationCount();
int64_t AllocatedBytes();
// Whether that many more are within RunLimits(). What others hold for the executor counts, too.
bool HasRoom(size_t bytes);
void AddCharge(size_t bytes);
void DropCharge(size_t bytes);

// A block that grows and is reused. Growing drops the content. Large ones are on huge pages.
class Buffer {
 public:
  // NoMemory (budget.h) if there is none. One that grows gets a quarter more than it had.
  absl::Status Reserve(size_t bytes);
  // Grows to this and no more.
  absl::Status ReserveExactly(size_t bytes);
  // As Reserve, but takes a new block if someone else still holds the present one.
  absl::Status ReserveUnshared(size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  size_t capacity() const { return capacity_; }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  absl::Status Grow(size_t bytes);

  std::shared_ptr<void> memory_;
  size_t capacity_ = 0;
};

}  // namespace kvlift::exec
