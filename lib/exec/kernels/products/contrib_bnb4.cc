// com.microsoft MatMulBnb4: products with weights of four bits that bitsandbytes rounds to sixteen
// numbers, FP4 or NF4. Sources: com.microsoft MatMulBnb4 (ContribOperators.md); the order of the
// codes in a byte and the numbers themselves as ONNX Runtime 1.31.1 computes them.
#include <array>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/products/dequantized_product.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

using Numbers = std::array<float, 16>;

constexpr Numbers kFp4 = {
    0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
constexpr Numbers kNf4 = {-1.0f,
                          -0.6961928009986877f,
                          -0.5250730514526367f,
                          -0.39491748809814453f,
                          -0.28444138169288635f,
                          -0.18477343022823334f,
                          -0.09105003625154495f,
                          0.0f,
                          0.07958029955625534f,
                          0.16093020141124725f,
                          0.24611230194568634f,
                          0.33791524171829224f,
                          0.44070982933044434f,
                          0.5626170039176941f,
                          0.7229568362236023f,
                          1.0f};

// The weights are [N, K], and each block of consecutive weights, also across rows, has a scale. A
// byte holds two codes, the first in the higher bits.
struct Bnb4Plan {
  int64_t m = 0, N = 0, K = 0, block = 0;
  const Numbers* numbers = nullptr;
};

absl::StatusOr<Bnb4Plan> PlanBnb4(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  Bnb4Plan p;
  p.N = IntAttribute(context, "N", 0);
  p.K = IntAttribute(context, "K", 0);
  p.block = IntAttribute(context, "block_size", 0);
  const int64_t type = IntAttribute(context, "quant_type", -1);
  if (IntAttribute(context, "transB", 1) != 1 || (type != 0 && type != 1)) {
    return Unsupported(context, "this form of the weights is not supported");
  }
  p.numbers = type == 0 ? &kFp4 : &kNf4;
  const View &a = context.inputs[0], &codes = context.inputs[1], &scales = context.inputs[2];
  if (p.N <= 0 || p.K <= 0 || p.block <= 0 || a.shape.empty() || a.shape.back() != p.K) {
    return Invalid(context, "N, K or block_size do not fit A");
  }
  p.m = a.size() / p.K;
  if (codes.type != onnx::TensorProto::UINT8 || codes.size() != (p.N * p.K + 1) / 2 ||
      scales.type != a.type || scales.size() != (p.N * p.K + p.block - 1) / p.block) {
    return Invalid(context, "the weights or their scales do not fit");
  }
  return p;
}

absl::Status Bnb4Shape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Bnb4Plan p, PlanBnb4(context));
  SetShapeOfProduct(context, p.N);
  return absl::OkStatus();
}

absl::Status Bnb4Compute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Bnb4Plan p, PlanBnb4(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const uint8_t* codes = context.inputs[1].as<uint8_t>();
    const T* scales = context.inputs[2].as<T>();
    MultiplyDequantized<T>(context, p.m, p.N, p.K, nullptr, [&](int64_t n, Compute<T>* row) {
      for (int64_t k = 0; k < p.K; ++k) {
        const int64_t at = n * p.K + k;
        const int code = at % 2 == 0 ? codes[at / 2] >> 4 : codes[at / 2] & 15;
        row[k] = static_cast<Compute<T>>((*p.numbers)[code]) * Widen(scales[at / p.block]);
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> Bnb4Ops() {
  static const OpDef ops[] = {{"com.microsoft", "MatMulBnb4", 1, Bnb4Shape, Bnb4Compute}};
  return ops;
}

}  // namespace kvlift::exec
