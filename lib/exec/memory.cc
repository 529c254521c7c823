#include "exec/memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "fmt/format.h"

namespace kvlift::exec {
namespace {

constexpr size_t kAlignment = 64;
std::atomic<int64_t> allocation_count{0};

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::shared_ptr<void> AllocateAligned(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) return nullptr;
  void* memory = std::aligned_alloc(kAlignment, RoundUp(bytes));
  if (memory == nullptr) return nullptr;
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<void>(memory, std::free);
}

int64_t AllocationCount() { return allocation_count.load(std::memory_order_relaxed); }

absl::Status Buffer::Reserve(size_t bytes) {
  if (bytes <= capacity_) return absl::OkStatus();
  // A quarter more, so that a value that grows by a little each step settles.
  const size_t wanted = capacity_ == 0 ? bytes : std::max(bytes, capacity_ + capacity_ / 4);
  memory_.reset();
  capacity_ = 0;
  memory_ = AllocateAligned(wanted);
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(fmt::format("cannot allocate {} bytes", wanted));
  }
  capacity_ = RoundUp(wanted);
  return absl::OkStatus();
}

absl::Status Buffer::ReserveUnshared(size_t bytes) {
  if (memory_.use_count() > 1) {
    memory_.reset();
    capacity_ = 0;
  }
  return Reserve(bytes);
}

}  // namespace kvlift::exec
