#include "exec/kernels/products/panel.h"

#include <algorithm>
#include <cstring>

#include "exec/memory/memory.h"
#include "exec/memory/scratch.h"
#include "exec/memory/team.h"

namespace kvlift::exec {
namespace {

constexpr int64_t kBlockK = 256;
constexpr int64_t kChunkRows = 264;        // rows of a that stay in the cache, for 256 of k
constexpr int64_t kUnitBytes = 128 << 10;  // bytes of weights that one unit streams
constexpr int64_t kUnitPanels = 8;         // most panels in one unit
constexpr int64_t kPackRows = 16;          // rows of b that are packed as one unit
constexpr int W = PanelMatrix::kWidth;

int64_t ElementBytes(Storage storage) { return storage == Storage::kNative ? 4 : 2; }

void Widen(const void* x, Storage storage, int64_t n, float* y) {
  const ConvertOps& convert = Isa().convert;
  if (storage == Storage::kHalf) {
    convert.half_to_float(static_cast<const uint16_t*>(x), n, y);
  } else if (storage == Storage::kBfloat) {
    convert.bfloat_to_float(static_cast<const uint16_t*>(x), n, y);
  } else {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(float));
  }
}

void Narrow(const float* x, Storage storage, int64_t n, void* y) {
  const ConvertOps& convert = Isa().convert;
  if (storage == Storage::kHalf) {
    convert.float_to_half(x, n, static_cast<uint16_t*>(y));
  } else if (storage == Storage::kBfloat) {
    convert.float_to_bfloat(x, n, static_cast<uint16_t*>(y));
  } else if (x != y) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(float));
  }
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

void AddBias(const PanelProduct& p, int64_t row, int64_t column, int64_t columns, float* y) {
  const int64_t bytes = ElementBytes(p.storage);
  const auto* bias =
      static_cast<const std::byte*>(p.bias) + (row * p.bias_row + column * p.bias_column) * bytes;
  float wide[W];
  for (int64_t j = 0; j < columns; j += W) {
    const int64_t n = std::min<int64_t>(W, columns - j);
    Widen(bias + j * p.bias_column * bytes, p.storage, p.bias_column == 0 ? 1 : n, wide);
    if (p.bias_column == 0) std::fill(wide + 1, wide + n, wide[0]);
    for (int64_t t = 0; t < n; ++t) y[j + t] += p.beta != 1 ? p.beta * wide[t] : wide[t];
  }
}

// Rounds y and adds a row of the same type.
void AddRow(const void* added, Storage storage, int64_t n, float* y) {
  if (storage == Storage::kNative) {
    const auto* x = static_cast<const float*>(added);
    for (int64_t j = 0; j < n; ++j) y[j] += x[j];
    return;
  }
  const auto* x = static_cast<const uint16_t*>(added);
  uint16_t rounded[W];
  float wide[W];
  for (int64_t j = 0; j < n; j += W) {
    const int64_t count = std::min<int64_t>(W, n - j);
    Narrow(y + j, storage, count, rounded);
    Widen(rounded, storage, count, y + j);
    Widen(x + j, storage, count, wide);
    for (int64_t t = 0; t < count; ++t) y[j + t] += wide[t];
  }
}

// One call of MultiplyPanels.
class Runner {
 public:
  Runner(const PanelProduct& p, int threads)
      : p_(p), b_(*p.b), ops_(Isa().panel), threads_(threads) {}

  void Run() {
    const bool stream = p_.m <= b_.stream_rows();
    const float* a = FloatRows(p_, scratch_);
    if (stream) {
      RunStream(a);
    } else {
      RunBlocks(a);
    }
  }

 private:
  // Returns where a unit writes its columns: into c itself if that has floats, else into scratch.
  float* Target(int64_t row, int64_t rows, int64_t column, int64_t columns, ScratchScope& scratch,
                int64_t* ldc) const {
    if (p_.storage == Storage::kNative) {
      *ldc = b_.n();
      return static_cast<float*>(p_.c) + row * b_.n() + column;
    }
    *ldc = columns;
    return scratch.Get<float>(rows * columns);
  }

  int64_t Columns(int64_t first, int64_t count) const {
    return std::min(b_.n() - first * W, count * W);
  }

  void RunStream(const float* a) {
    const auto m = static_cast<int>(p_.m);
    if (m > 1) {
      float* packed = scratch_.Get<float>(p_.m * b_.k() + 16);
      ops_.pack_rows(m, b_.k(), a, b_.k(), packed);
      a = packed;
    }
    const int64_t step = b_.panels_at_once();
    const int64_t wanted = kUnitBytes / std::max<int64_t>(1, b_.panel_bytes()) / step * step;
    const int64_t group = std::clamp(wanted, step, kUnitPanels);
    RunUnits(threads_, CeilDiv(b_.panels(), group), [&](int64_t unit) {
      const int64_t first = unit * group, count = std::min(group, b_.panels() - first);
      const int64_t columns = Columns(first, count);
      ScratchScope scratch;
      int64_t ldc;
      float* c = Target(0, m, first * W, columns, scratch, &ldc);
      b_.Stream(m, first, count, a, c, ldc);
      FinishColumns(p_, 0, m, first * W, columns, c, ldc);
    });
  }

  // Packs a as [block of k][tile of rows][k][rows of the tile].
  const float* PackA(const float* a) {
    const int64_t tiles = CeilDiv(p_.m, ops_.max_rows), blocks = CeilDiv(b_.k(), kBlockK);
    float* packed = scratch_.Get<float>(p_.m * b_.k());
    RunUnits(threads_, tiles, [&](int64_t tile) {
      ScratchScope scratch;
      float* room = scratch.Get<float>(ops_.max_rows * kBlockK + 16);
      const int64_t row = tile * ops_.max_rows;
      const auto rows = static_cast<int>(std::min<int64_t>(ops_.max_rows, p_.m - row));
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t k0 = block * kBlockK, k = std::min(kBlockK, b_.k() - k0);
        ops_.pack_rows(rows, k, a + row * b_.k() + k0, b_.k(), room);
        std::copy_n(room, rows * k, packed + k0 * p_.m + row * k);
      }
    });
    return packed;
  }

  void RunBlocks(const float* a) {
    const float* packed = PackA(a);
    const int64_t chunks = CeilDiv(p_.m, kChunkRows);
    // Groups of panels are narrower if there are few panels.
    const int64_t group = std::clamp<int64_t>(b_.panels() * chunks / 32, 1, 4);
    const int64_t groups = CeilDiv(b_.panels(), group);
    RunUnits(threads_, groups * chunks, [&](int64_t unit) {
      const int64_t first = unit % groups * group, row = unit / groups * kChunkRows;
      Block(packed, row, std::min(kChunkRows, p_.m - row), first,
            std::min(group, b_.panels() - first));
    });
  }

  void Block(const float* packed, int64_t row, int64_t rows, int64_t first, int64_t count) const {
    ScratchScope scratch;
    float* room = scratch.Get<float>(kBlockK * W);
    // Sums are stored as [panel][row][W], since rows of c itself may be a power of two apart.
    float* c = scratch.Get<float>(count * rows * W);
    for (int64_t k0 = 0; k0 < b_.k(); k0 += kBlockK) {
      const int64_t k = std::min(kBlockK, b_.k() - k0);
      for (int64_t j = 0; j < count; ++j) {
        const float* panel = b_.Expand(first + j, k0, k, room);
        // The address that the next iteration reads.
        const bool last = j + 1 == count;
        const std::byte* next = b_.Address(last ? first : first + j + 1, last ? k0 + k : k0);
        for (int64_t i = 0; i < rows; i += ops_.max_rows) {
          const auto m = static_cast<int>(std::min<int64_t>(ops_.max_rows, rows - i));
          ops_.tile(Storage::kNative, m, W, k, packed + k0 * p_.m + (row + i) * k, panel,
                    c + (j * rows + i) * W, W, k0 != 0, next, 64);
          if (i <= 2 * ops_.max_rows) next += k * 64;
        }
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      FinishColumns(p_, row, rows, (first + j) * W, b_.width(first + j), c + j * rows * W, W);
    }
  }

  const PanelProduct& p_;
  const PanelMatrix& b_;
  const PanelOps& ops_;
  int threads_;
  ScratchScope scratch_;
};

}  // namespace

std::optional<Storage> StorageOfType(int32_t type) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
      return Storage::kNative;
    case onnx::TensorProto::FLOAT16:
      return Storage::kHalf;
    case onnx::TensorProto::BFLOAT16:
      return Storage::kBfloat;
    default:
      return std::nullopt;
  }
}

std::shared_ptr<const Prepacked> PackMatrix(const View& b, bool transposed, int threads) {
  constexpr int64_t kFewest = 16;  // columns; with fewer, panels are mostly padding
  const auto storage = StorageOfType(b.type);
  if (!storage.has_value() || b.shape.size() != 2 || b.size() == 0) return nullptr;
  const int64_t k = b.shape[transposed ? 1 : 0], n = b.shape[transposed ? 0 : 1];
  if (n < kFewest) return nullptr;
  return PackedMatrix::Make(b.data, *storage, k, n, transposed ? 1 : n, transposed ? k : 1,
                            threads);
}

int PanelMatrix::width(int64_t panel) const {
  return static_cast<int>(std::min<int64_t>(kWidth, n_ - panel * kWidth));
}

std::shared_ptr<const PackedMatrix> PackedMatrix::Make(const void* b, Storage storage, int64_t k,
                                                       int64_t n, int64_t b_k, int64_t b_column,
                                                       int threads) {
  std::shared_ptr<PackedMatrix> packed(new PackedMatrix(storage, k, n));
  packed->data_ =
      AllocatePackedWeights(static_cast<size_t>(packed->panels() * packed->panel_bytes()));
  if (packed->data_ == nullptr) return nullptr;
  const int64_t bytes = ElementBytes(storage), panel_bytes = packed->panel_bytes();
  const auto* from = static_cast<const std::byte*>(b);
  auto* to = static_cast<std::byte*>(packed->data_.get());
  if (b_column == 1) {
    // Packs some rows at a time, so that they are read in order. Columns beyond n are zero already.
    RunUnits(threads, CeilDiv(k, kPackRows), [&](int64_t unit) {
      const int64_t k0 = unit * kPackRows, k1 = std::min(k, k0 + kPackRows);
      for (int64_t j = 0; j < packed->panels(); ++j) {
        const auto size = static_cast<size_t>(packed->width(j) * bytes);
        for (int64_t p = k0; p < k1; ++p) {
          std::memcpy(to + j * panel_bytes + p * W * bytes, from + (p * b_k + j * W) * bytes, size);
        }
      }
    });
    return packed;
  }
  RunUnits(threads, packed->panels(), [&](int64_t j) {
    const std::byte* rows = from + j * W * b_column * bytes;
    std::byte* panel = to + j * panel_bytes;
    if (storage == Storage::kNative) {
      Isa().f32.pack_transposed(packed->width(j), k, reinterpret_cast<const float*>(rows), b_column,
                                reinterpret_cast<float*>(panel));
    } else {
      Isa().panel.pack_transposed16(packed->width(j), k, reinterpret_cast<const uint16_t*>(rows),
                                    b_column, reinterpret_cast<uint16_t*>(panel));
    }
  });
  return packed;
}

int64_t PackedMatrix::panel_bytes() const { return k() * W * ElementBytes(storage_); }

int PackedMatrix::stream_rows() const { return Isa().panel.wide_rows; }

void PackedMatrix::Stream(int m, int64_t first, int64_t count, const float* a, float* c,
                          int64_t ldc) const {
  constexpr int64_t kStreamAhead = 8192;  // bytes
  const std::byte* panel = Address(first, 0);
  const int64_t step = W * ElementBytes(storage_);
  for (int64_t j = 0; j < count; ++j) {
    Isa().panel.tile(storage_, m, width(first + j), k(), a, panel + j * panel_bytes(), c + j * W,
                     ldc, false, panel + j * panel_bytes() + kStreamAhead, step);
  }
}

const float* PackedMatrix::Expand(int64_t panel, int64_t k0, int64_t k, float* room) const {
  const std::byte* from = Address(panel, k0);
  if (storage_ == Storage::kNative) return reinterpret_cast<const float*>(from);
  Widen(from, storage_, k * W, room);
  return room;
}

const std::byte* PackedMatrix::Address(int64_t panel, int64_t k0) const {
  return static_cast<const std::byte*>(data_.get()) + panel * panel_bytes() +
         k0 * W * ElementBytes(storage_);
}

const float* FloatRows(const PanelProduct& p, ScratchScope& scratch) {
  if (p.storage == Storage::kNative) return static_cast<const float*>(p.a);
  const int64_t size = p.m * p.b->k();
  float* wide = scratch.Get<float>(size);
  Widen(p.a, p.storage, size, wide);
  return wide;
}

void FinishColumns(const PanelProduct& p, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, float* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i) {
    float* y = c + i * ldc;
    if (p.alpha != 1) {
      for (int64_t j = 0; j < columns; ++j) y[j] = p.alpha * y[j];
    }
    if (p.bias != nullptr) AddBias(p, row + i, column, columns, y);
    auto* out =
        static_cast<std::byte*>(p.c) + ((row + i) * p.b->n() + column) * ElementBytes(p.storage);
    if (p.added != nullptr) {
      AddRow(static_cast<const std::byte*>(p.added) + (out - static_cast<std::byte*>(p.c)),
             p.storage, columns, y);
    }
    Narrow(y, p.storage, columns, out);
  }
}

void MultiplyPanels(const PanelProduct& p, int threads) {
  if (p.m > 0 && p.b->n() > 0) Runner(p, threads).Run();
}

}  // namespace kvlift::exec
