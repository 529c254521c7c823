#include "exec/kernels/fused/fused_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/kernels/products/gemm_product.h"

namespace kvlift::exec {
namespace {

// Turns x[0, n) into probabilities. Scores of keys that the query may not see are -inf.
template <typename C>
void Softmax(C* x, int64_t n, const C* sink) {
  const VectorOps<C>& ops = Vectors<C>();
  C highest = ops.max(x, n);
  if (sink != nullptr) highest = std::max(highest, *sink);
  if (highest == -std::numeric_limits<C>::infinity()) {
    std::fill(x, x + n, C{0});
    return;
  }
  C sum = ops.exp_sum(x, n, highest, x);
  if (sink != nullptr) sum += std::exp(*sink - highest);
  ops.divide(x, n, sum, x);
}

// Copies x in the range to y, shifted by `first`; the rest of y[0, n) becomes 0.
template <typename C>
void CopyVisible(const C* x, const KeyRange& range, int64_t first, int64_t n, C* y) {
  std::fill(y, y + n, C{0});
  std::copy(x + range.begin, x + range.end, y + first + range.begin);
}

template <typename C>
void RunHead(const FusedHeads<C>& p, int64_t b, int64_t h) {
  constexpr C kMasked = -std::numeric_limits<C>::infinity();
  const int64_t first = p.first == nullptr ? 0 : p.first[b];
  const int64_t n = p.keys[b], kv = b * p.Nk + h / (p.N / p.Nk);
  ScratchScope scratch;
  C* scores = scratch.Get<C>(p.S * n);
  C* out = scratch.Get<C>(p.S * p.Dv);
  Product<C> product;
  product.m = p.S;
  product.n = n;
  product.k = p.D;
  product.a = p.q + (b * p.N + h) * p.S * p.D;
  product.a_row = p.D;
  product.b = p.k + kv * p.M * p.D;
  product.b_k = 1;
  product.b_column = p.D;
  product.c = scores;
  product.c_row = n;
  Multiply(product, 1);
  for (int64_t s = 0; s < p.S; ++s) {
    C* x = scores + s * n;
    const KeyRange range = VisibleSlots(p, b, s);
    std::fill(x, x + range.begin, kMasked);
    std::fill(x + range.end, x + n, kMasked);
    const C* bias = p.bias == nullptr
                        ? nullptr
                        : p.bias + b * p.bias_b + h * p.bias_h + s * p.bias_keys + first;
    const C* mask = p.mask == nullptr ? nullptr : p.mask + b * p.mask_b + s * p.mask_s;
    for (int64_t t = range.begin; t < range.end; ++t) {
      x[t] *= static_cast<C>(p.scale);
      if (p.softcap != 0) {
        x[t] = std::tanh(x[t] / static_cast<C>(p.softcap)) * static_cast<C>(p.softcap);
      }
      if (bias != nullptr) x[t] += bias[t];
      if (mask != nullptr) x[t] += mask[t];
    }
    C* seen = p.scores == nullptr ? nullptr : p.scores + ((b * p.N + h) * p.S + s) * p.scores_keys;
    if (seen != nullptr && !p.probabilities) CopyVisible(x, range, first, p.scores_keys, seen);
    Softmax(x, n, p.sink == nullptr ? nullptr : p.sink + h);
    if (seen != nullptr && p.probabilities) CopyVisible(x, range, first, p.scores_keys, seen);
  }
  product.n = p.Dv;
  product.k = n;
  product.a = scores;
  product.a_row = n;
  product.b = p.v + kv * p.M * p.Dv;
  product.b_k = p.Dv;
  product.b_column = 1;
  product.c = out;
  product.c_row = p.Dv;
  Multiply(product, 1);
  for (int64_t s = 0; s < p.S; ++s) {
    std::copy_n(out + s * p.Dv, p.Dv, p.y + ((b * p.S + s) * p.N + h) * p.Dv);
  }
}

}  // namespace

template <typename C>
void RunFusedHeads(const FusedHeads<C>& heads, int threads) {
  const bool small = heads.B * heads.N * heads.S * heads.M * heads.D < (1 << 14);
  math::ParallelUnits(small ? 1 : threads, heads.B * heads.N,
                      [&](int64_t i) { RunHead(heads, i / heads.N, i % heads.N); });
}

template void RunFusedHeads<float>(const FusedHeads<float>&, int);
template void RunFusedHeads<double>(const FusedHeads<double>&, int);

}  // namespace kvlift::exec
