#include "exec/kernels/products/bits_panel.h"

#include <algorithm>
#include <cstring>

#include "exec/kernels/products/bits_quantize.h"
#include "exec/memory/memory.h"
#include "exec/memory/scratch.h"
#include "exec/memory/team.h"

namespace kvlift::exec {
namespace {

constexpr int W = PanelMatrix::kWidth;

int64_t ElementBytes(Storage storage) { return storage == Storage::kNative ? 4 : 2; }

uint32_t CodeAt(const uint8_t* data, int64_t index, int bits) {
  const int64_t first = index * bits;
  return (data[first / 8] >> (first % 8)) & ((1u << bits) - 1);
}

// Returns the rows from k on that share a word (bits_isa.h).
uint32_t WordAt(const uint8_t* codes, int64_t k, int bits) {
  uint32_t word = 0;
  if (bits == 2) {
    for (int t = 0; t < 16; ++t) word |= CodeAt(codes, k + t, bits) << (8 * (t % 4) + 2 * (t / 4));
    return word;
  }
  std::memcpy(&word, codes + k * bits / 8, 4);
  if (bits == 8) return word;
  const auto spread = [](uint32_t four) {  // moves four codes to the low halves of bytes
    four = (four | four << 8) & 0x00FF00FFu;
    return (four | four << 4) & 0x0F0F0F0Fu;
  };
  return spread(word & 0xFFFF) | spread(word >> 16) << 4;
}

// Rows of floats, quantised to int8 codes.
struct QuantizedRows {
  int8_t* codes;
  float *scales, *sums;
};

void QuantizeRow(const float* a, int64_t k, int64_t block, int64_t row, int64_t blocks,
                 const QuantizedRows& out) {
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t n = std::min(block, k - b * block), at = row * blocks + b;
    int8_t* codes = out.codes + at * block;
    VnniQuantize()(a + b * block, n, codes, out.scales + at, out.sums + at);
    std::fill(codes + n, codes + block, int8_t{0});
  }
}

}  // namespace

void MultiplyBitsDot(const PanelProduct& p, int threads) {
  const auto& b = static_cast<const PackedBits&>(*p.b);
  const BitsLayout& layout = b.layout();
  const int64_t blocks = b.blocks(), k = b.k();
  ScratchScope scratch;
  const QuantizedRows rows = {scratch.Get<int8_t>(p.m * blocks * layout.block),
                              scratch.Get<float>(p.m * blocks), scratch.Get<float>(p.m * blocks)};
  const float* a = FloatRows(p, scratch);
  RunUnits(threads, p.m,
           [&](int64_t i) { QuantizeRow(a + i * k, k, layout.block, i, blocks, rows); });
  const int64_t pairs = (b.panels() + 1) / 2;
  // Neighbouring panels are one stream of memory, so each thread gets long runs of them.
  constexpr int kUnitsPerThread = 2;
  const int64_t group = std::max<int64_t>(1, pairs / (std::max(threads, 1) * kUnitsPerThread));
  RunUnits(threads, (pairs + group - 1) / group, [&](int64_t unit) {
    float c[BitsOps::kMaxRows * 2 * W];
    for (int64_t pair = unit * group; pair < std::min(pairs, (unit + 1) * group); ++pair) {
      const int64_t first = pair * 2, column = first * W;
      const int panels = first + 1 < b.panels() ? 2 : 1;
      const int64_t columns = std::min<int64_t>(panels * W, b.n() - column);
      for (int64_t i = 0; i < p.m; i += BitsOps::kMaxRows) {
        const auto m = static_cast<int>(std::min<int64_t>(BitsOps::kMaxRows, p.m - i));
        const DotRows part = {rows.codes + i * blocks * layout.block, rows.scales + i * blocks,
                              rows.sums + i * blocks, blocks};
        BitsDot()(layout, m, panels, part, b.Address(first, 0), b.panel_bytes(), c);
        FinishColumns(p, i, m, column, columns, c, panels * W);
      }
    }
  });
}

BitsDotFn BitsDot() {
#if defined(__x86_64__)
  static const bool has = &Isa() == Avx512Isa() && __builtin_cpu_supports("avx512vnni");
  return has ? VnniBitsDot() : nullptr;
#else
  return nullptr;
#endif
}

std::shared_ptr<const PackedBits> PackedBits::Make(const BitsSource& source, bool integer_dot,
                                                   int threads) {
  if (source.block % 16 != 0 || source.k % 16 != 0 || source.k == 0) return nullptr;
  std::shared_ptr<PackedBits> packed(new PackedBits(source.k, source.n));
  BitsLayout& layout = packed->layout_;
  layout.bits = source.bits;
  layout.block = source.block;
  layout.scale = source.storage;
  // Zero points that are codes are exact as float16.
  layout.zero = source.packed_zeros != nullptr ? Storage::kHalf : source.storage;
  layout.has_zero = source.packed_zeros != nullptr || source.zeros != nullptr;
  layout.scale_offset = source.block * source.bits / 8 * W;
  layout.zero_offset = layout.scale_offset + W * ElementBytes(layout.scale);
  layout.block_bytes = layout.zero_offset + (layout.has_zero ? W * ElementBytes(layout.zero) : 0);
  packed->blocks_ = (source.k + source.block - 1) / source.block;
  packed->integer_dot_ = integer_dot && BitsDot() != nullptr;
  packed->data_ =
      AllocatePackedWeights(static_cast<size_t>(packed->panels() * packed->panel_bytes()));
  if (packed->data_ == nullptr) return nullptr;
  auto* to = static_cast<std::byte*>(packed->data_.get());
  RunUnits(threads, packed->panels(), [&](int64_t panel) {
    packed->PackPanel(source, panel, to + panel * packed->panel_bytes());
  });
  return packed;
}

void PackedBits::PackPanel(const BitsSource& source, int64_t panel, std::byte* to) const {
  const int64_t bytes = source.block * source.bits / 8, scale_bytes = ElementBytes(source.storage);
  const int64_t zero_row = (blocks_ * source.bits + 7) / 8;
  const int rows = 32 / source.bits;
  for (int j = 0; j < width(panel); ++j) {
    const int64_t n = panel * W + j;
    for (int64_t b = 0; b < blocks_; ++b) {
      std::byte* block = to + b * layout_.block_bytes;
      const uint8_t* codes = source.codes + (n * blocks_ + b) * bytes;
      for (int64_t k = 0; k < source.block; k += rows) {
        const uint32_t word = WordAt(codes, k, source.bits);
        std::memcpy(block + (k / rows * W + j) * 4, &word, 4);
      }
      const int64_t at = (n * blocks_ + b) * scale_bytes;
      std::memcpy(block + layout_.scale_offset + j * scale_bytes,
                  static_cast<const std::byte*>(source.scales) + at,
                  static_cast<size_t>(scale_bytes));
      if (source.packed_zeros != nullptr) {
        const uint32_t zero = CodeAt(source.packed_zeros + n * zero_row, b, source.bits);
        const uint16_t half = FloatToHalf(static_cast<float>(zero));
        std::memcpy(block + layout_.zero_offset + j * 2, &half, 2);
      } else if (source.zeros != nullptr) {
        std::memcpy(block + layout_.zero_offset + j * scale_bytes,
                    static_cast<const std::byte*>(source.zeros) + at,
                    static_cast<size_t>(scale_bytes));
      }
    }
  }
}

const std::byte* PackedBits::Address(int64_t panel, int64_t k0) const {
  const int64_t block = k0 / layout_.block, in = k0 % layout_.block;
  return static_cast<const std::byte*>(data_.get()) + panel * panel_bytes() +
         block * layout_.block_bytes + in * layout_.bits / 8 * W;
}

void PackedBits::Stream(int m, int64_t first, int64_t count, const float* a, float* c,
                        int64_t ldc) const {
  float sums[BitsOps::kMaxRows * 2 * W];
  for (int64_t j = 0; j < count; j += 2) {
    const int panels = j + 1 < count ? 2 : 1;
    Isa().bits.stream(layout_, m, panels, k(), a, Address(first + j, 0), panel_bytes(), sums);
    const int64_t columns = std::min<int64_t>(panels * W, n() - (first + j) * W);
    for (int i = 0; i < m; ++i) {
      std::copy_n(sums + i * panels * W, columns, c + i * ldc + j * W);
    }
  }
}

const float* PackedBits::Expand(int64_t panel, int64_t k0, int64_t k, float* room) const {
  Isa().bits.expand(layout_, k0, k, Address(panel, 0), room);
  return room;
}

}  // namespace kvlift::exec
