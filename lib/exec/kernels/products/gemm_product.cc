#include "exec/kernels/products/gemm_product.h"

#include "exec/memory/scratch.h"

namespace kvlift::exec {

namespace {

using math::ParallelFor;
using math::ParallelUnits;

constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockN = 512;
constexpr int64_t kRowGroups = 8;  // groups of max_rows rows of a that are packed together

template <typename T>
int64_t ElementBytes(Storage storage) {
  return storage == Storage::kNative ? static_cast<int64_t>(sizeof(T)) : 2;
}

// Converts n contiguous elements of b's storage to T.
template <typename T>
void WidenRow(const std::byte* b, Storage storage, int64_t n, T* out) {
  if constexpr (sizeof(T) == 4) {
    if (storage != Storage::kNative) {
      const auto* bits = reinterpret_cast<const uint16_t*>(b);
      const ConvertOps& convert = Isa().convert;
      (storage == Storage::kHalf ? convert.half_to_float : convert.bfloat_to_float)(bits, n, out);
      return;
    }
  }
  std::memcpy(out, b, static_cast<size_t>(n) * sizeof(T));
}

// Packs b[k0 .. k0 + k, column .. column + n) as panel[k][kPanel], padded with zeros.
template <typename T>
void PackPanel(const Product<T>& p, int64_t k0, int64_t k, int64_t column, int n, T* panel) {
  constexpr int W = VectorOps<T>::kPanel;
  const int64_t bytes = ElementBytes<T>(p.storage);
  const auto* b = static_cast<const std::byte*>(p.b) + (k0 * p.b_k + column * p.b_column) * bytes;
  if (p.b_column == 1) {
    for (int64_t i = 0; i < k; ++i) {
      WidenRow<T>(b + i * p.b_k * bytes, p.storage, n, panel + i * W);
      for (int j = n; j < W; ++j) panel[i * W + j] = 0;
    }
    return;
  }
  if (p.b_k == 1 && p.storage == Storage::kNative) {
    Vectors<T>().pack_transposed(n, k, reinterpret_cast<const T*>(b), p.b_column, panel);
    return;
  }
  ScratchScope scratch;
  T* rows = scratch.Get<T>(W * k);
  for (int j = 0; j < n; ++j) {
    const std::byte* row = b + j * p.b_column * bytes;
    if (p.b_k == 1) {
      WidenRow<T>(row, p.storage, k, rows + j * k);
    } else {
      for (int64_t i = 0; i < k; ++i) {
        WidenRow<T>(row + i * p.b_k * bytes, p.storage, 1, rows + j * k + i);
      }
    }
  }
  Vectors<T>().pack_transposed(n, k, rows, k, panel);
}

// Multiplies columns [column, column + n) of rows [row, row + m).
template <typename T>
void MultiplyBlock(const Product<T>& p, int64_t row, int64_t m, int64_t column, int64_t n) {
  constexpr int W = VectorOps<T>::kPanel;
  const VectorOps<T>& ops = Vectors<T>();
  const int64_t group = ops.max_rows;
  const int64_t depth = std::min(kBlockK, p.k);
  const int64_t panels = (n + W - 1) / W;
  ScratchScope scratch;
  T* packed_b = scratch.Get<T>(panels * W * depth);
  T* packed_a = scratch.Get<T>(std::min(m, kRowGroups * group) * depth + group * depth);
  for (int64_t k0 = 0; k0 < p.k; k0 += kBlockK) {
    const int64_t k = std::min(kBlockK, p.k - k0);
    for (int64_t j = 0; j < panels; ++j) {
      const int width = static_cast<int>(std::min<int64_t>(W, n - j * W));
      PackPanel(p, k0, k, column + j * W, width, packed_b + j * W * k);
    }
    for (int64_t i0 = 0; i0 < m; i0 += kRowGroups * group) {
      const int64_t rows = std::min(m - i0, kRowGroups * group);
      for (int64_t i = 0; i < rows; i += group) {
        const int64_t count = std::min(group, rows - i);
        const T* a = p.a + (row + i0 + i) * p.a_row + k0 * p.a_k;
        T* out = packed_a + i * k;
        for (int64_t r = 0; r < count; ++r) {
          const T* in = a + r * p.a_row;
          for (int64_t t = 0; t < k; ++t) out[t * count + r] = in[t * p.a_k];
        }
      }
      for (int64_t j = 0; j < panels; ++j) {
        const int width = static_cast<int>(std::min<int64_t>(W, n - j * W));
        for (int64_t i = 0; i < rows; i += group) {
          const int64_t count = std::min(group, rows - i);
          ops.tile(static_cast<int>(count), width, k, packed_a + i * k, 1, count,
                   packed_b + j * W * k, W, p.c + (row + i0 + i) * p.c_row + column + j * W,
                   p.c_row, k0 != 0);
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void Multiply(const Product<T>& p, int threads) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i) std::fill(p.c + i * p.c_row, p.c + i * p.c_row + p.n, T{0});
    return;
  }
  const VectorOps<T>& ops = Vectors<T>();
  constexpr int64_t kWorkPerThread = 1 << 15;
  if (p.b_column == 1 && p.a_k == 1 && p.m <= VectorOps<T>::kStreamRows) {
    const int64_t bytes = ElementBytes<T>(p.storage);
    ParallelFor(threads, p.n, 64, std::max<int64_t>(64, kWorkPerThread / (p.k * p.m)),
                [&](int64_t begin, int64_t end) {
                  ops.stream(static_cast<int>(p.m), end - begin, p.k, p.a, p.a_row,
                             static_cast<const std::byte*>(p.b) + begin * bytes, p.storage, p.b_k,
                             p.c + begin, p.c_row);
                });
    return;
  }
  if (p.m * p.n * p.k < 2 * kWorkPerThread) threads = 1;
  // Makes column blocks narrower, then row blocks smaller, until every thread has work.
  const int64_t wanted = threads == 1 ? 1 : 4 * threads;
  int64_t block_n = kBlockN, block_m = p.m;
  while (block_n > 128 && (p.n + block_n - 1) / block_n < wanted) block_n /= 2;
  const int64_t blocks_n = (p.n + block_n - 1) / block_n;
  const int64_t rows_at_once = kRowGroups * ops.max_rows;
  if (blocks_n < wanted) {
    const int64_t parts = (wanted + blocks_n - 1) / blocks_n;
    block_m = std::max(rows_at_once, (p.m / parts + ops.max_rows) / ops.max_rows * ops.max_rows);
  }
  const int64_t blocks_m = (p.m + block_m - 1) / block_m;
  ParallelUnits(threads, blocks_n * blocks_m, [&](int64_t unit) {
    const int64_t row = unit / blocks_n * block_m, column = unit % blocks_n * block_n;
    MultiplyBlock(p, row, std::min(block_m, p.m - row), column, std::min(block_n, p.n - column));
  });
}

template void Multiply<float>(const Product<float>&, int);
template void Multiply<double>(const Product<double>&, int);

}  // namespace kvlift::exec
