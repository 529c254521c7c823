// Overflow-checked int64 arithmetic for sizes that come from a model. Both functions return nullopt
// if the exact result does not fit into an int64.
#pragma once

#include <cstdint>
#include <optional>

namespace kvlift {

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

}  // namespace kvlift
