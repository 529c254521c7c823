// Aligned memory blocks of the executor, counted so that tests can show that steps after the first
// ones allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace kvlift::exec {

// Returns a block of uninitialised memory, aligned to 64 bytes. Null if bytes is 0, the system has
// no memory, or RunLimits().run_bytes would be exceeded.
std::shared_ptr<void> AllocateAligned(size_t bytes);
// Returns zeroed memory, on huge pages where the system has them. For large blocks that are read
// often. It is neither counted nor limited. Null if bytes is 0 or the system has no memory.
std::shared_ptr<void> AllocateHuge(size_t bytes);
// Returns a block of packed weights, zeroed, as AllocateHuge does. Blocks of up to 16 MiB share
// maps of 32 MiB, so that they lie on huge pages, too: on small pages a step that reads many
// weights of some 100 KiB waits for page tables. A map is released with the last of its blocks.
std::shared_ptr<void> AllocatePackedWeights(size_t bytes);
// Return the number of blocks that AllocateAligned and buffers have allocated since the process
// started, and the bytes that are held at present, including AddCharge.
int64_t AllocationCount();
int64_t AllocatedBytes();
// Returns true if that many more bytes stay within RunLimits().run_bytes. AddCharge and DropCharge
// count memory that is allocated elsewhere.
bool HasRoom(size_t bytes);
void AddCharge(size_t bytes);
void DropCharge(size_t bytes);

// A block that grows and is reused. Growing drops its content. Blocks of 2 MiB and more are on huge
// pages. All Reserve functions return NoMemory (budget.h) if there is no memory, and do nothing if
// the block is large enough.
class Buffer {
 public:
  // Grows to at least `bytes`, and to at least a quarter more than before.
  absl::Status Reserve(size_t bytes);
  // Grows to `bytes`.
  absl::Status ReserveExactly(size_t bytes);
  // Works as Reserve, but leaves the block alone and takes another if someone else still holds it.
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
