// Loops over tensors for the elementwise and activation kernels.
#pragma once

#include <utility>

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

// Sets out[i] to f(x[i]), computed in the compute type of T.
template <typename T, typename F>
void MapUnary(KernelContext& context, F f) {
  const T* x = context.inputs[0].as<T>();
  T* y = context.outputs[0].as<T>();
  ParallelFor(context.threads, context.inputs[0].size(), 64, kMapPerThread,
              [&](int64_t begin, int64_t end) {
                if constexpr (kIsSmallFloat<T>) {
                  constexpr int64_t kPiece = 256;
                  float wide[kPiece];
                  for (int64_t i = begin; i < end; i += kPiece) {
                    const int64_t n = std::min(kPiece, end - i);
                    WidenArray(x + i, n, wide);
                    for (int64_t j = 0; j < n; ++j) wide[j] = f(wide[j]);
                    NarrowArray(wide, n, y + i);
                  }
                } else {
                  for (int64_t i = begin; i < end; ++i) y[i] = Narrow<T>(f(Widen(x[i])));
                }
              });
}

// Calls f(x, n, y) on pieces of input 0 and output 0 in the compute type of T; y may be x.
template <typename T, typename F>
void MapArrays(KernelContext& context, F f) {
  using C = Compute<T>;
  const T* x = context.inputs[0].as<T>();
  T* y = context.outputs[0].as<T>();
  ParallelFor(context.threads, context.inputs[0].size(), 64, kMapPerThread,
              [&](int64_t begin, int64_t end) {
                if constexpr (!kIsSmallFloat<T>) {
                  f(x + begin, end - begin, y + begin);
                } else {
                  constexpr int64_t kPiece = 1024;
                  C piece[kPiece];
                  for (int64_t i = begin; i < end; i += kPiece) {
                    const int64_t n = std::min(kPiece, end - i);
                    WidenArray(x + i, n, piece);
                    f(piece, n, piece);
                    NarrowArray(piece, n, y + i);
                  }
                }
              });
}

// Iterates over the rows of `out` (its last dimension) with the element offsets of two operands
// that broadcast to it.
class BroadcastRows {
 public:
  BroadcastRows(const Shape& a, const Shape& b, const Shape& out);
  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  // Steps of the operands along a row: 0 or 1.
  int64_t step_a() const { return step_a_; }
  int64_t step_b() const { return step_b_; }
  // Returns the element offsets of a and b at the start of a row.
  std::pair<int64_t, int64_t> Offsets(int64_t row) const;

 private:
  int64_t rows_ = 1, length_ = 1, step_a_ = 0, step_b_ = 0;
  Shape dims_;  // outer dimensions, merged where both operands allow it
  absl::InlinedVector<int64_t, 6> strides_a_, strides_b_;
};

// Sets out to f(a, b) with numpy broadcasting; A and B may differ (Pow).
template <typename A, typename B, typename T, typename F>
void MapBinary(KernelContext& context, F f) {
  const View& va = context.inputs[0];
  const View& vb = context.inputs[1];
  const A* a = va.as<A>();
  const B* b = vb.as<B>();
  T* y = context.outputs[0].as<T>();
  const BroadcastRows rows(va.shape, vb.shape, context.outputs[0].shape);
  const int64_t n = rows.length(), step_a = rows.step_a(), step_b = rows.step_b();
  if (n == 0) return;
  // Threads divide the only row, or the rows. MapRow stands once, since it is compiled for many
  // types.
  const bool alone = rows.rows() == 1;
  ParallelFor(context.threads, alone ? n : rows.rows(), alone ? 64 : 1,
              alone ? kMapPerThread : std::max<int64_t>(1, kMapPerThread / n),
              [&](int64_t begin, int64_t end) {
                const int64_t first = alone ? begin : 0, count = alone ? end - begin : n;
                const int64_t last_row = alone ? 1 : end;
                for (int64_t row = alone ? 0 : begin; row < last_row; ++row) {
                  const auto [offset_a, offset_b] = rows.Offsets(row);
                  MapRow(a + offset_a + first * step_a, step_a, b + offset_b + first * step_b,
                         step_b, y + row * n + first, count, f);
                }
              });
}

// Shape functions: output 0 has the type of input 0 and the broadcast shape of the inputs. Return
// InvalidArgument if the shapes do not broadcast or, in BroadcastInputs, if the types differ.
absl::Status BroadcastInputs(KernelContext& context);
absl::Status BroadcastMixed(KernelContext& context);

}  // namespace kvlift::exec::math
