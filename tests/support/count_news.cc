// Replaces the global operator new by one that counts.
#include "support/count_news.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> news{0};
}  // namespace

namespace kvlift {
int64_t CountedNews() { return news.load(std::memory_order_relaxed); }
}  // namespace kvlift

void* operator new(size_t size) {
  news.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
