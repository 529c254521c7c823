// Primitives for weights of 2, 4 or 8 bits in panels of 32 columns. A weight is
// (code - zero) * scale, each step rounded to float; scale and zero hold for `block` rows of a
// column. A panel is a sequence of blocks: codes, then 32 scales, then 32 zeros if there are any.
// Codes are words [block * bits / 32][32]: each word holds 32 / bits rows of one column, row t at
// bit 8 * (t % 4) + bits * (t / 4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvlift::exec {

enum class Storage { kNative, kHalf, kBfloat };  // kNative: float, or the product's own type

struct BitsLayout {
  int bits = 4;
  int64_t block = 32;  // a multiple of 16
  Storage scale = Storage::kNative, zero = Storage::kNative;
  bool has_zero = false;  // otherwise 2^(bits - 1)
  int64_t scale_offset = 0, zero_offset = 0, block_bytes = 0;
};

struct BitsOps {
  static constexpr int kMaxRows = 4;
  // c[m, 32 * panels] = a * panels for m <= kMaxRows, one or two panels that lie panel_bytes
  // apart; a is [k][m], k a multiple of 16.
  void (*stream)(const BitsLayout& layout, int m, int panels, int64_t k, const float* a,
                 const std::byte* data, int64_t panel_bytes, float* c);
  // Rows [k0, k0 + k) of a panel as floats [k][32]; k0 and k are multiples of 16.
  void (*expand)(const BitsLayout& layout, int64_t k0, int64_t k, const std::byte* data,
                 float* out);
};

// Rows of int8 codes, scaled by block, for products of integers.
struct DotRows {
  const int8_t* codes;  // [m][blocks * block]
  const float* scales;  // [m][blocks]
  const float* sums;    // [m][blocks] of the codes
  int64_t blocks;
};

// c[m, 32 * panels], as BitsOps::stream, with exact sums within a block.
using BitsDotFn = void (*)(const BitsLayout& layout, int m, int panels, const DotRows& a,
                           const std::byte* data, int64_t panel_bytes, float* c);

// Null where this processor or compiler has no such instructions.
BitsDotFn BitsDot();
BitsDotFn VnniBitsDot();  // whatever the processor

}  // namespace kvlift::exec
