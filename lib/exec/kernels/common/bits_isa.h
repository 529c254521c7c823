// Primitives for weights of 2, 4 or 8 bits in panels of 32 columns. A weight is (code - zero) *
// scale, each step rounded to float; scale and zero hold for `block` rows of a column. A panel is a
// sequence of blocks: codes, then 32 scales, then 32 zero points if there are any. Codes are words
// [block * bits / 32][32]: each word holds 32 / bits rows of one column, row t at bit 8 * (t % 4) +
// bits * (t / 4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvlift::exec {

enum class Storage { kNative, kHalf, kBfloat };  // kNative: float, or the product's own type

struct BitsLayout {
  int bits = 4;
  int64_t block = 32;  // a multiple of 16
  Storage scale = Storage::kNative, zero = Storage::kNative;
  bool has_zero = false;  // false: the zero point is 2^(bits - 1)
  // Byte offsets within a block, and the bytes of a block.
  int64_t scale_offset = 0, zero_offset = 0, block_bytes = 0;
};

struct BitsOps {
  static constexpr int kMaxRows = 4;
  // Sets c[m, 32 * panels] to a * panels, for m <= kMaxRows and one or two panels that lie
  // panel_bytes apart; a is [k][m], k a multiple of 16.
  void (*stream)(const BitsLayout& layout, int m, int panels, int64_t k, const float* a,
                 const std::byte* data, int64_t panel_bytes, float* c);
  // Writes rows [k0, k0 + k) of a panel as floats [k][32]; k0 and k are multiples of 16.
  void (*expand)(const BitsLayout& layout, int64_t k0, int64_t k, const std::byte* data,
                 float* out);
};

// Rows of int8 codes with a scale per block, for integer products.
struct DotRows {
  const int8_t* codes;  // [m][blocks * block]
  const float* scales;  // [m][blocks]
  const float* sums;    // [m][blocks]: sums of the codes
  int64_t blocks;
};

// Sets c[m, 32 * panels] as BitsOps::stream does, with exact integer sums within a block.
using BitsDotFn = void (*)(const BitsLayout& layout, int m, int panels, const DotRows& a,
                           const std::byte* data, int64_t panel_bytes, float* c);

// Returns null where this processor or compiler has no such instructions.
BitsDotFn BitsDot();
BitsDotFn VnniBitsDot();  // does not look at the processor

}  // namespace kvlift::exec
