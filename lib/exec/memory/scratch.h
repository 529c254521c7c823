// Scratch memory of kernels: one stack of bytes per thread that keeps its size, so that a step
// whose shapes have occurred before allocates nothing. Memory is uninitialised and 64-byte aligned.
//
//   ScratchScope scratch;
//   float* panel = scratch.Get<float>(k * 32);   // valid until the scope ends
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace kvlift::exec {

namespace scratch_internal {

// The largest size that a stack of this process has had, in bytes.
inline std::atomic<size_t> most{0};

struct Chunk {
  std::byte* data;
  size_t size;
};

// Chunks are only appended while a scope is open. When the last scope closes they are replaced by
// one chunk of their total size.
struct Stack {
  std::vector<Chunk> chunks;
  size_t chunk = 0;   // index of the chunk in use
  size_t offset = 0;  // bytes used in it
  int depth = 0;

  ~Stack() {
    for (const Chunk& c : chunks) std::free(c.data);
  }
  void Append(size_t size) {
    chunks.push_back({static_cast<std::byte*>(std::aligned_alloc(64, size)), size});
    const size_t total = Total();
    for (size_t seen = most.load(); seen < total && !most.compare_exchange_weak(seen, total);) {
    }
  }
  size_t Total() const {
    size_t total = 0;
    for (const Chunk& c : chunks) total += c.size;
    return total;
  }
  void* Get(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    while (chunk < chunks.size() && offset + bytes > chunks[chunk].size) {
      ++chunk;
      offset = 0;
    }
    if (chunk == chunks.size()) {
      Append(bytes < (size_t{1} << 16) ? size_t{1} << 16 : bytes);
      offset = 0;
    }
    void* p = chunks[chunk].data + offset;
    offset += bytes;
    return p;
  }
  void Merge() {
    if (chunks.size() >= 2) Resize(Total());
  }
  void Reserve(size_t size) {
    if (depth == 0 && Total() < size) Resize(size);
  }
  void Resize(size_t size) {
    for (const Chunk& c : chunks) std::free(c.data);
    chunks.clear();
    Append(size);
  }
};

inline Stack& ThisThread() {
  static thread_local Stack stack;
  return stack;
}

}  // namespace scratch_internal

// Gives this thread as much scratch memory as any thread has had. Units of work move between
// threads from step to step, and find their room on each.
inline void ReserveScratch() {
  scratch_internal::ThisThread().Reserve(scratch_internal::most.load(std::memory_order_relaxed));
}

class ScratchScope {
 public:
  ScratchScope()
      : stack_(scratch_internal::ThisThread()), chunk_(stack_.chunk), offset_(stack_.offset) {
    ++stack_.depth;
  }
  ~ScratchScope() {
    stack_.chunk = chunk_;
    stack_.offset = offset_;
    if (--stack_.depth == 0) stack_.Merge();
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

  // Returns room for `count` elements; never null.
  template <typename T>
  T* Get(int64_t count) {
    return static_cast<T*>(stack_.Get(static_cast<size_t>(count > 0 ? count : 1) * sizeof(T)));
  }

 private:
  scratch_internal::Stack& stack_;
  size_t chunk_, offset_;
};

}  // namespace kvlift::exec
