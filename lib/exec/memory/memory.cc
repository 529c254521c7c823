#include "exec/memory/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "exec/memory/budget.h"

namespace kvlift::exec {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLarge = size_t{2} << 20;  // huge pages pay off from this size on
std::atomic<int64_t> allocation_count{0};
std::atomic<int64_t> allocated_bytes{0};

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void Count(size_t bytes) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  AddCharge(bytes);
}

}  // namespace

bool HasRoom(size_t bytes) {
  const int64_t most = RunLimits().run_bytes, held = AllocatedBytes();
  return held <= most && bytes <= static_cast<uint64_t>(most - held);
}

void AddCharge(size_t bytes) {
  allocated_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

void DropCharge(size_t bytes) {
  allocated_bytes.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

std::shared_ptr<void> AllocateAligned(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) return nullptr;
  const size_t size = RoundUp(bytes);
  if (!HasRoom(size)) return nullptr;
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return nullptr;
  Count(size);
  return std::shared_ptr<void>(memory, [size](void* block) {
    DropCharge(size);
    std::free(block);
  });
}

std::shared_ptr<void> AllocateHuge(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes == 0 || bytes > SIZE_MAX / 2) return nullptr;
  // A map of its own, which starts at a huge page boundary if it is large.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  const size_t size = bytes + slack;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(map);
  if (slack != 0) start += (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
  if (slack != 0) madvise(start, bytes, MADV_HUGEPAGE);
#endif
  return std::shared_ptr<void>(start, [map, size](void*) { munmap(map, size); });
}

std::shared_ptr<void> AllocatePackedWeights(size_t bytes) {
  constexpr size_t kMap = size_t{32} << 20;
  // The map that blocks are taken from is held by its blocks alone.
  static std::mutex mutex;
  static std::weak_ptr<void> current;
  static size_t taken;
  if (bytes == 0 || bytes > kMap / 2) return AllocateHuge(bytes);
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<void> map = current.lock();
  if (map == nullptr || taken + RoundUp(bytes) > kMap) {
    map = AllocateHuge(kMap);
    if (map == nullptr) return AllocateHuge(bytes);
    current = map;
    taken = 0;
  }
  void* block = static_cast<std::byte*>(map.get()) + taken;
  taken += RoundUp(bytes);
  return std::shared_ptr<void>(map, block);
}

int64_t AllocationCount() { return allocation_count.load(std::memory_order_relaxed); }

int64_t AllocatedBytes() { return allocated_bytes.load(std::memory_order_relaxed); }

absl::Status Buffer::Reserve(size_t bytes) {
  if (bytes <= capacity_) return absl::OkStatus();
  // A quarter more, so that a value that grows a little in each step rarely reallocates.
  return Grow(capacity_ == 0 ? bytes : std::max(bytes, capacity_ + capacity_ / 4));
}

absl::Status Buffer::ReserveExactly(size_t bytes) {
  return bytes <= capacity_ ? absl::OkStatus() : Grow(bytes);
}

absl::Status Buffer::Grow(size_t bytes) {
  const size_t size = RoundUp(bytes);
  memory_.reset();
  capacity_ = 0;
  if (size < kLarge) {
    memory_ = AllocateAligned(size);
  } else if (!HasRoom(size)) {
    return NoMemory(size);
  } else if (std::shared_ptr<void> pages = AllocateHuge(size)) {
    Count(size);
    void* start = pages.get();
    memory_ = std::shared_ptr<void>(start, [pages, size](void*) { DropCharge(size); });
  }
  if (memory_ == nullptr) return NoMemory(size);
  capacity_ = size;
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
