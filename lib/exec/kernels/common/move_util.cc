#include "exec/kernels/common/move_util.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec::move {
namespace {

unsigned GetPacked(const std::byte* data, int64_t i, int bits) {
  const int64_t per_byte = 8 / bits;
  const auto byte = static_cast<unsigned>(data[i / per_byte]);
  return (byte >> (i % per_byte * bits)) & ((1u << bits) - 1u);
}

void SetPacked(std::byte* data, int64_t i, int bits, unsigned value) {
  const int64_t per_byte = 8 / bits;
  const auto shift = static_cast<int>(i % per_byte * bits);
  const unsigned mask = ((1u << bits) - 1u) << shift;
  auto& byte = data[i / per_byte];
  byte = static_cast<std::byte>((static_cast<unsigned>(byte) & ~mask) | (value << shift));
}

// Calls f(target offset, source offset) for each index of `shape`, the last dimension fastest.
template <typename F>
void ForEachOffset(absl::Span<const int64_t> shape, int64_t target, const Ints& target_strides,
                   int64_t source, const Ints& source_strides, const F& f) {
  Ints index(shape.size(), 0);
  const int64_t count = Product(shape, 0, shape.size());
  for (int64_t i = 0; i < count; ++i) {
    f(target, source);
    for (size_t d = shape.size(); d-- > 0;) {
      target += target_strides[d];
      source += source_strides[d];
      if (++index[d] < shape[d]) break;
      target -= target_strides[d] * shape[d];
      source -= source_strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

// The copy without dimensions of length 1, and with dimensions merged where both sides have uniform
// steps.
struct Folded {
  Ints shape, target, source;
};

Folded Fold(absl::Span<const int64_t> shape, absl::Span<const int64_t> target,
            absl::Span<const int64_t> source) {
  Folded f;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!f.shape.empty() && f.target.back() == target[d] * shape[d] &&
        f.source.back() == source[d] * shape[d]) {
      f.shape.back() *= shape[d];
      f.target.back() = target[d];
      f.source.back() = source[d];
      continue;
    }
    f.shape.push_back(shape[d]);
    f.target.push_back(target[d]);
    f.source.push_back(source[d]);
  }
  return f;
}

struct Wide {
  uint64_t low, high;
};

template <typename T>
void CopyRow(T* target, int64_t target_stride, const T* source, int64_t source_stride,
             int64_t count) {
  if (target_stride == 1 && source_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) target[i * target_stride] = source[i * source_stride];
  }
}

// Copies target[r][i] = source[i][r]: rows of the target are columns of the source. Works in blocks
// that read and write whole cache lines.
template <typename T>
void CopyTransposed(T* target, int64_t target_row, const T* source, int64_t source_row,
                    int64_t rows, int64_t count) {
  constexpr int64_t kBlock = 16;
  for (int64_t i0 = 0; i0 < count; i0 += kBlock) {
    const int64_t n = std::min(kBlock, count - i0);
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
      const int64_t end = std::min(rows, r0 + kBlock);
      for (int64_t r = r0; r < end; ++r) {
        T* to = target + r * target_row + i0;
        const T* from = source + i0 * source_row + r;
        for (int64_t i = 0; i < n; ++i) to[i] = from[i * source_row];
      }
    }
  }
}

// Copies the last two dimensions of `f` as transposed matrices; returns false if they are not.
template <typename T>
bool CopyMatrices(const Folded& f, T* to, const T* from, int threads) {
  const size_t rank = f.shape.size();
  if (rank < 2 || f.target[rank - 1] != 1 || f.source[rank - 2] != 1) return false;
  const int64_t rows = f.shape[rank - 2], count = f.shape[rank - 1];
  const int64_t matrices = Product(f.shape, 0, rank - 2);
  constexpr int64_t kRows = 16, kPerThread = 1 << 15;
  const int64_t parts = (rows + kRows - 1) / kRows;
  math::ParallelFor(threads, matrices * parts, 1,
                    std::max<int64_t>(1, kPerThread / (kRows * count)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t row = i % parts * kRows;
                        int64_t rest = i / parts, t = row * f.target[rank - 2], s = row;
                        for (size_t d = rank - 2; d-- > 0;) {
                          t += rest % f.shape[d] * f.target[d];
                          s += rest % f.shape[d] * f.source[d];
                          rest /= f.shape[d];
                        }
                        CopyTransposed(to + t, f.target[rank - 2], from + s, f.source[rank - 1],
                                       std::min(kRows, rows - row), count);
                      }
                    });
  return true;
}

template <typename T>
void CopyTyped(Folded f, const Strided& target, const Strided& source, int threads) {
  if (f.shape.empty()) {
    f.shape.push_back(1);
    f.target.push_back(1);
    f.source.push_back(1);
  }
  const int64_t row = f.shape.back(), target_step = f.target.back(), source_step = f.source.back();
  T* to = reinterpret_cast<T*>(target.data) + target.offset;
  const T* from = reinterpret_cast<const T*>(source.data) + source.offset;
  if (CopyMatrices(f, to, from, threads)) return;
  f.shape.pop_back();
  f.target.pop_back();
  f.source.pop_back();
  constexpr int64_t kPerThread = 1 << 16;
  if (f.shape.empty()) {
    math::ParallelFor(threads, row, 64, kPerThread, [&](int64_t begin, int64_t end) {
      CopyRow(to + begin * target_step, target_step, from + begin * source_step, source_step,
              end - begin);
    });
    return;
  }
  const int64_t outer = f.shape[0];
  const int64_t below = row * Product(f.shape, 1, f.shape.size());
  math::ParallelFor(threads, outer, 1,
                    std::max<int64_t>(1, kPerThread / std::max<int64_t>(1, below)),
                    [&](int64_t begin, int64_t end) {
                      Ints piece(f.shape.begin(), f.shape.end());
                      piece[0] = end - begin;
                      ForEachOffset(piece, begin * f.target[0], f.target, begin * f.source[0],
                                    f.source, [&](int64_t t, int64_t s) {
                                      CopyRow(to + t, target_step, from + s, source_step, row);
                                    });
                    });
}

}  // namespace

Ints DenseStrides(const Shape& shape) {
  Ints strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

Ints StridesOf(const View& view) {
  Ints strides = DenseStrides(view.shape);
  int64_t stride = view.pitch;
  for (size_t d = strides.size(); stride != 0 && d-- > 0;) {
    if (d + 2 >= strides.size()) continue;
    strides[d] = stride;
    stride *= view.shape[d];
  }
  return strides;
}

Ints StridesOf(const View& view, const Shape& out) {
  const Ints own = StridesOf(view);
  Ints strides(out.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    const size_t d = own.size() - 1 - i;
    if (view.shape[d] != 1) strides[out.size() - 1 - i] = own[d];
  }
  return strides;
}

void CopyStrided(int32_t type, absl::Span<const int64_t> shape, const Strided& target,
                 const Strided& source, int threads) {
  if (Product(shape, 0, shape.size()) == 0) return;
  Folded f = Fold(shape, target.strides, source.strides);
  switch (const int bits = ElementBits(type); bits) {
    case 8:
      return CopyTyped<uint8_t>(std::move(f), target, source, threads);
    case 16:
      return CopyTyped<uint16_t>(std::move(f), target, source, threads);
    case 32:
      return CopyTyped<uint32_t>(std::move(f), target, source, threads);
    case 64:
      return CopyTyped<uint64_t>(std::move(f), target, source, threads);
    case 128:
      return CopyTyped<Wide>(std::move(f), target, source, threads);
    default:
      ForEachOffset(f.shape, target.offset, f.target, source.offset, f.source,
                    [&](int64_t t, int64_t s) {
                      SetPacked(target.data, t, bits, GetPacked(source.data, s, bits));
                    });
  }
}

void CopyElements(int32_t type, std::byte* target, int64_t target_index, const std::byte* source,
                  int64_t source_index, int64_t count) {
  const int bits = ElementBits(type);
  if (bits % 8 == 0) {
    const int64_t size = bits / 8;
    if (count > 0) {
      std::memcpy(target + target_index * size, source + source_index * size,
                  static_cast<size_t>(count * size));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    SetPacked(target, target_index + i, bits, GetPacked(source, source_index + i, bits));
  }
}

void FillElements(int32_t type, std::byte* target, int64_t target_index, int64_t count,
                  const std::byte* source, int64_t source_index) {
  const int64_t shape[] = {count};
  const int64_t step[] = {1}, none[] = {0};
  CopyStrided(type, shape, {target, target_index, step},
              {const_cast<std::byte*>(source), source_index, none}, 1);
}

absl::StatusOr<Ints> ReadInts(const KernelContext& context, size_t input) {
  if (const size_t rank = context.inputs[input].shape.size(); rank != 1) {
    return absl::InvalidArgumentError(
        fmt::format("input {} is no vector, but of rank {}", input, rank));
  }
  return ReadIntsOfAnyRank(context, input);
}

absl::StatusOr<Ints> ReadIntsOfAnyRank(const KernelContext& context, size_t input) {
  const View& view = context.inputs[input];
  if (!IsIndexType(view.type)) {
    return absl::InvalidArgumentError(fmt::format("input {} has type {}, int64 or int32 needed",
                                                  input, ElementTypeName(view.type)));
  }
  Ints values(static_cast<size_t>(view.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = IndexAt(view, static_cast<int64_t>(i));
  return values;
}

Ints IntsAttribute(const KernelContext& context, const char* name) {
  const onnx::AttributeProto* attribute = math::FindAttribute(context, name);
  if (attribute == nullptr) return {};
  return Ints(attribute->ints().begin(), attribute->ints().end());
}

absl::StatusOr<Ints> InputOrAttribute(const KernelContext& context, size_t input, const char* name,
                                      bool* given) {
  *given = true;
  if (math::HasInput(context, input)) return ReadInts(context, input);
  *given = math::FindAttribute(context, name) != nullptr;
  return IntsAttribute(context, name);
}

absl::StatusOr<int64_t> NormalizeAxis(const KernelContext&, int64_t axis, int64_t rank) {
  const int64_t normal = math::NormalAxis(axis, rank);
  if (normal < 0) {
    return absl::InvalidArgumentError(fmt::format("axis {} for rank {}", axis, rank));
  }
  return normal;
}

absl::StatusOr<int64_t> Axis(const KernelContext& context, const char* name, int64_t fallback,
                             int64_t rank) {
  return NormalizeAxis(context, math::IntAttribute(context, name, fallback), rank);
}

}  // namespace kvlift::exec::move
