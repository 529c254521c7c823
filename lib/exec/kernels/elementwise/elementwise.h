// Loops over tensors for the elementwise and activation kernels.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/functional/function_ref.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec::math {

inline constexpr int64_t kMapPerThread = 1 << 15;  // fewest elements per thread

// Sets y[i] to f(a[i * step_a], b[i * step_b]), i < n; steps are 0 or 1. 16-bit floats are
// converted many at a time.
template <typename A, typename B, typename T, typename F>
void MapRow(const A* a, int64_t step_a, const B* b, int64_t step_b, T* y, int64_t n, const F& f) {
  if constexpr (kIsSmallFloat<T> && std::is_same_v<A, T> && std::is_same_v<B, T>) {
    constexpr int64_t kPiece = 256;
    float wide_a[kPiece], wide_b[kPiece];
    const float one_a = Widen(*a), one_b = Widen(*b);
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t count = std::min(kPiece, n - i);
      if (step_a != 0) WidenArray(a + i, count, wide_a);
      if (step_b != 0) WidenArray(b + i, count, wide_b);
      if (step_a == 0) {
        for (int64_t j = 0; j < count; ++j) wide_a[j] = f(one_a, step_b != 0 ? wide_b[j] : one_b);
      } else if (step_b == 0) {
        for (int64_t j = 0; j < count; ++j) wide_a[j] = f(wide_a[j], one_b);
      } else {
        for (int64_t j = 0; j < count; ++j) wide_a[j] = f(wide_a[j], wide_b[j]);
      }
      NarrowArray(wide_a, count, y + i);
    }
  } else if (step_a == 1 && step_b == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<T>(f(Widen(a[i]), Widen(b[i])));
  } else if (step_a == 1) {
    const auto c = Widen(b[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<T>(f(Widen(a[i]), c));
  } else {
    const auto c = Widen(a[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<T>(f(c, Widen(b[i * step_b])));
  }
}

// Calls f(x, n, y) on pieces of input 0 and output 0, which have elements of so many bytes. The
// pieces are divided among threads here and not in the templates below, which are compiled for many
// types.
void MapPieces(KernelContext& context, int64_t bytes,
               absl::FunctionRef<void(const std::byte* x, int64_t n, std::byte* y)> f);

// Sets out[i] to f(x[i]), computed in the compute type of T.
template <typename T, typename F>
void MapUnary(KernelContext& context, F f) {
  MapPieces(context, sizeof(T), [&](const std::byte* from, int64_t size, std::byte* to) {
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    if constexpr (kIsSmallFloat<T>) {
      constexpr int64_t kPiece = 256;
      float wide[kPiece];
      for (int64_t i = 0; i < size; i += kPiece) {
        const int64_t n = std::min(kPiece, size - i);
        WidenArray(x + i, n, wide);
        for (int64_t j = 0; j < n; ++j) wide[j] = f(wide[j]);
        NarrowArray(wide, n, y + i);
      }
    } else {
      for (int64_t i = 0; i < size; ++i) y[i] = Narrow<T>(f(Widen(x[i])));
    }
  });
}

// Calls f(x, n, y) on pieces of input 0 and output 0 in the compute type of T; y may be x.
template <typename T, typename F>
void MapArrays(KernelContext& context, F f) {
  using C = Compute<T>;
  MapPieces(context, sizeof(T), [&](const std::byte* from, int64_t size, std::byte* to) {
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    if constexpr (!kIsSmallFloat<T>) {
      f(x, size, y);
    } else {
      constexpr int64_t kPiece = 1024;
      C piece[kPiece];
      for (int64_t i = 0; i < size; i += kPiece) {
        const int64_t n = std::min(kPiece, size - i);
        WidenArray(x + i, n, piece);
        f(piece, n, piece);
        NarrowArray(piece, n, y + i);
      }
    }
  });
}

// Bytes of an element of input 0, of input 1 and of output 0.
struct ElementBytes {
  int64_t a, b, y;
};
// Calls f(a, step_a, b, step_b, y, n) on rows of the inputs and of output 0, with numpy
// broadcasting; the steps are as for MapRow.
void MapRows(KernelContext& context, const ElementBytes& bytes,
             absl::FunctionRef<void(const std::byte* a, int64_t step_a, const std::byte* b,
                                    int64_t step_b, std::byte* y, int64_t n)>
                 f);

// Sets out to f(a, b) with numpy broadcasting; A and B may differ (Pow).
template <typename A, typename B, typename T, typename F>
void MapBinary(KernelContext& context, F f) {
  MapRows(context, {sizeof(A), sizeof(B), sizeof(T)},
          [&](const std::byte* a, int64_t step_a, const std::byte* b, int64_t step_b, std::byte* y,
              int64_t n) {
            MapRow(reinterpret_cast<const A*>(a), step_a, reinterpret_cast<const B*>(b), step_b,
                   reinterpret_cast<T*>(y), n, f);
          });
}

// Shape functions: output 0 has the type of input 0 and the broadcast shape of the inputs. Return
// InvalidArgument if the shapes do not broadcast or, in BroadcastInputs, if the types differ.
absl::Status BroadcastInputs(KernelContext& context);
absl::Status BroadcastMixed(KernelContext& context);

}  // namespace kvlift::exec::math
