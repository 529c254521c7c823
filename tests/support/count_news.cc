// Replaces operator new, and malloc unless a sanitizer does, by versions that count.
#include "support/count_news.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "base/sanitized.h"

#if defined(__GLIBC__) && !defined(KVLIFT_SANITIZED)
#define KVLIFT_COUNT_MALLOC 1
#endif

namespace {
std::atomic<int64_t> news{0};
void Count() { news.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

namespace kvlift {
int64_t CountedNews() { return news.load(std::memory_order_relaxed); }
}  // namespace kvlift

#ifdef KVLIFT_COUNT_MALLOC
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* p, size_t size) {
  Count();
  return __libc_realloc(p, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** p, size_t alignment, size_t size) {
  Count();
  *p = __libc_memalign(alignment, size);
  return *p == nullptr ? ENOMEM : 0;
}
}
#endif

void* operator new(size_t size) {
  Count();
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  Count();
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
