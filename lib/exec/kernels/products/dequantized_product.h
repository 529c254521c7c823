// Products of rows with weights that are dequantised for each call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/kernels/common/math_util.h"
#include "exec/kernels/products/gemm_product.h"

namespace kvlift::exec {

// Sets output 0 to the type of input 0, A [.., K], and to its shape with N in place of K.
inline void SetShapeOfProduct(KernelContext& context, int64_t N) {
  Shape shape = context.inputs[0].shape;
  shape.back() = N;
  math::SetSpec(context, 0, context.inputs[0].type, std::move(shape));
}

// Computes Y [m, N] = A [m, K] x W, where A is input 0 of the kernel, Y its output 0, and
// dequantize(n, row) writes the K weights of output column n to `row`. `bias`: N numbers that are
// added to each row of Y; null: none. T: the type of A, Y and the bias in memory.
template <typename T, typename Dequantize>
void MultiplyDequantized(KernelContext& context, int64_t m, int64_t N, int64_t K, const T* bias,
                         const Dequantize& dequantize) {
  using C = math::Compute<T>;
  constexpr int64_t kOutputs = 64;  // output columns whose weights are dequantised together
  constexpr int64_t kSmall = 256;
  ScratchScope scratch;
  C* a = scratch.Get<C>(m * K);
  math::WidenArray(context.inputs[0].as<T>(), m * K, a);
  C* weights = scratch.Get<C>(std::min(kOutputs, N) * K);
  C* c = scratch.Get<C>(m * N);
  for (int64_t n = 0; n < N; n += kOutputs) {
    const int64_t count = std::min(kOutputs, N - n);
    math::ParallelUnits(K < kSmall ? 1 : context.threads, count,
                        [&](int64_t i) { dequantize(n + i, weights + i * K); });
    Product<C> product;
    product.m = m;
    product.n = count;
    product.k = K;
    product.a = a;
    product.a_row = K;
    product.b = weights;
    product.b_k = 1;
    product.b_column = K;
    product.c = c + n;
    product.c_row = N;
    Multiply(product, context.threads);
  }
  for (int64_t i = 0; bias != nullptr && i < m * N; ++i) c[i] += math::Widen(bias[i % N]);
  math::NarrowArray(c, m * N, context.outputs[0].as<T>());
}

}  // namespace kvlift::exec
