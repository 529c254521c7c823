#include "kvlift/reports/cache_memory.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"

namespace kvlift::cli {
namespace {

constexpr int64_t kTokens[] = {1 << 10, 1 << 12, 1 << 15, 1 << 17};

}  // namespace

std::vector<CacheMemory> MemoryOfCaches(const Inspection& inspection) {
  std::vector<CacheMemory> memory;
  std::optional<int64_t> slots;  // of fixed buffers
  bool grows = false;
  int64_t growing = 0, fixed = 0;  // bytes: per token, and of whole buffers
  for (const CacheReport& cache : inspection.caches) {
    if (!cache.bytes_per_token || cache.kind == UpdateKind::kWindow ||
        cache.kind == UpdateKind::kSliding) {
      return {};
    }
    if (cache.growing) {
      grows = true;
      growing += *cache.bytes_per_token;
      continue;
    }
    int64_t capacity = 0;
    if (!absl::SimpleAtoi(cache.capacity, &capacity) || capacity < 1) return {};
    slots = std::min(slots.value_or(capacity), capacity);
    fixed += *cache.bytes_per_token * capacity;
  }
  const auto add = [&](int64_t tokens) {
    const int64_t one = growing * tokens + fixed;
    memory.push_back({tokens, 2 * one, one});
  };
  if (grows) {
    for (const int64_t tokens : kTokens) add(tokens);
  } else if (slots) {
    add(*slots);
  }
  return memory;
}

}  // namespace kvlift::cli
