// com.microsoft FusedMatMul (products of transposed operands, scaled) and MatMulNBits (weights of
// few bits, scaled by blocks).
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "exec/kernels/gemm_product.h"
#include "exec/kernels/math_util.h"
#include "exec/kernels/move_util.h"
#include "exec/kernels/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// One operand of a product as [batch..., rows, columns] with the strides of its elements.
struct Operand {
  Shape batch;
  move::Ints batch_strides;
  int64_t rows = 1, columns = 1, row_stride = 0, column_stride = 0;
};

// `batch_first`: the first dim belongs in front of the last two, not in the batch. A vector is a
// row on the left, a column on the right.
Operand MakeOperand(const Shape& shape, bool transposed, bool batch_first, bool left) {
  const move::Ints strides = move::DenseStrides(shape);
  Operand x;
  const size_t rank = shape.size();
  if (rank == 1) {
    (left ? x.columns : x.rows) = shape[0];
    (left ? x.column_stride : x.row_stride) = 1;
    return x;
  }
  absl::InlinedVector<size_t, 6> order;
  for (size_t d = 0; d < rank; ++d) order.push_back(d);
  if (batch_first && rank > 2) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (transposed) std::swap(order[rank - 1], order[rank - 2]);
  for (size_t d = 0; d + 2 < rank; ++d) {
    x.batch.push_back(shape[order[d]]);
    x.batch_strides.push_back(strides[order[d]]);
  }
  x.rows = shape[order[rank - 2]];
  x.row_stride = strides[order[rank - 2]];
  x.columns = shape[order[rank - 1]];
  x.column_stride = strides[order[rank - 1]];
  return x;
}

// Element offset of matrix `flat` of the broadcast batch.
int64_t MatrixOffset(const Operand& x, const Shape& batch, int64_t flat) {
  int64_t offset = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t at = flat % batch[batch.size() - 1 - i];
    flat /= batch[batch.size() - 1 - i];
    if (i >= x.batch.size()) continue;
    const size_t d = x.batch.size() - 1 - i;
    if (x.batch[d] != 1) offset += at * x.batch_strides[d];
  }
  return offset;
}

struct FusedPlan {
  Operand a, b;
  Shape batch, out;
};

absl::StatusOr<FusedPlan> PlanFused(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const Shape& a = context.inputs[0].shape;
  const Shape& b = context.inputs[1].shape;
  if (a.empty() || b.empty() || context.inputs[0].type != context.inputs[1].type) {
    return Invalid(context, "operands must be matrices of one type");
  }
  const auto flag = [&](const char* name) { return IntAttribute(context, name, 0) != 0; };
  FusedPlan plan;
  plan.a = MakeOperand(a, flag("transA"), flag("transBatchA"), true);
  plan.b = MakeOperand(b, flag("transB"), flag("transBatchB"), false);
  if (plan.a.columns != plan.b.rows || !BroadcastShapes(plan.a.batch, plan.b.batch, &plan.batch)) {
    return Invalid(context, fmt::format("{} and {} do not fit", ShapeString(a), ShapeString(b)));
  }
  plan.out = plan.batch;
  if (a.size() > 1) plan.out.push_back(plan.a.rows);
  if (b.size() > 1) plan.out.push_back(plan.b.columns);
  return plan;
}

absl::Status FusedShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(FusedPlan plan, PlanFused(context));
  SetSpec(context, 0, context.inputs[0].type, std::move(plan.out));
  return absl::OkStatus();
}

absl::Status FusedCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const FusedPlan plan, PlanFused(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    ScratchScope scratch;
    const View& a = context.inputs[0];
    C* wide = scratch.Get<C>(a.size());
    WidenArray(a.as<T>(), a.size(), wide);
    const C alpha = FloatAttribute(context, "alpha", 1);
    const int64_t size = plan.a.rows * plan.b.columns;
    C* c = scratch.Get<C>(size);
    for (int64_t i = 0; i < NumElements(plan.batch); ++i) {
      Product<C> product;
      product.m = plan.a.rows;
      product.n = plan.b.columns;
      product.k = plan.a.columns;
      product.a = wide + MatrixOffset(plan.a, plan.batch, i);
      product.a_row = plan.a.row_stride;
      product.a_k = plan.a.column_stride;
      product.b = context.inputs[1].as<T>() + MatrixOffset(plan.b, plan.batch, i);
      product.storage = StorageOf<T>();
      product.b_k = plan.b.row_stride;
      product.b_column = plan.b.column_stride;
      product.c = c;
      product.c_row = product.n;
      Multiply(product, context.threads);
      for (int64_t j = 0; j < size; ++j) c[j] *= alpha;
      NarrowArray(c, size, context.outputs[0].as<T>() + i * size);
    }
    return absl::OkStatus();
  });
}

// MatMulNBits. B is [N, blocks, bytes of a block], the first value in the lowest bits.
struct BitsPlan {
  int64_t m = 0, N = 0, K = 0, block = 0, blocks = 0, bits = 0;
};

absl::StatusOr<BitsPlan> PlanBits(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  BitsPlan p;
  p.N = IntAttribute(context, "N", 0);
  p.K = IntAttribute(context, "K", 0);
  p.bits = IntAttribute(context, "bits", 4);
  p.block = IntAttribute(context, "block_size", 0);
  if (IntAttribute(context, "weight_prepacked", 0) != 0 ||
      (p.bits != 2 && p.bits != 4 && p.bits != 8)) {
    return Unsupported(context, "this form of the weights is not supported");
  }
  const View& a = context.inputs[0];
  const View& scales = context.inputs[2];
  if (p.N <= 0 || p.K <= 0 || p.block <= 0 || p.block * p.bits % 8 != 0 || a.shape.empty() ||
      a.shape.back() != p.K) {
    return Invalid(context, "N, K or block_size do not fit A");
  }
  p.m = a.size() / p.K;
  p.blocks = (p.K + p.block - 1) / p.block;
  if (context.inputs[1].type != onnx::TensorProto::UINT8 ||
      context.inputs[1].size() != p.N * p.blocks * (p.block * p.bits / 8) ||
      scales.type != a.type || scales.size() != p.N * p.blocks) {
    return Invalid(context, "the weights or their scales do not fit");
  }
  if (HasInput(context, 3)) {
    const View& zero = context.inputs[3];
    const int64_t packed = p.N * ((p.blocks * p.bits + 7) / 8);
    if (zero.type == onnx::TensorProto::UINT8
            ? zero.size() != packed
            : zero.type != a.type || zero.size() != scales.size()) {
      return Invalid(context, "the zero points do not fit");
    }
  }
  if (HasInput(context, 4) &&
      (context.inputs[4].type != onnx::TensorProto::INT32 || context.inputs[4].size() < p.K)) {
    return Invalid(context, "g_idx does not fit");
  }
  if (HasInput(context, 5) &&
      (context.inputs[5].size() != p.N || context.inputs[5].type != a.type)) {
    return Invalid(context, "the bias does not fit");
  }
  return p;
}

absl::Status BitsShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BitsPlan p, PlanBits(context));
  Shape shape = context.inputs[0].shape;
  shape.back() = p.N;
  SetSpec(context, 0, context.inputs[0].type, std::move(shape));
  return absl::OkStatus();
}

int64_t BitsAt(const uint8_t* data, int64_t index, int64_t bits) {
  const int64_t first = index * bits;
  return (data[first / 8] >> (first % 8)) & ((1 << bits) - 1);
}

template <typename T>
Compute<T> ZeroPoint(const KernelContext& context, const BitsPlan& p, int64_t n, int64_t block) {
  using C = Compute<T>;
  if (!HasInput(context, 3)) return static_cast<C>(int64_t{1} << (p.bits - 1));
  const View& zero = context.inputs[3];
  if (zero.type != onnx::TensorProto::UINT8) return Widen(zero.as<T>()[n * p.blocks + block]);
  const int64_t row = (p.blocks * p.bits + 7) / 8;
  return static_cast<C>(BitsAt(zero.as<uint8_t>() + n * row, block, p.bits));
}

// The weights of output n.
template <typename T>
absl::Status Dequantize(const KernelContext& context, const BitsPlan& p, int64_t n,
                        Compute<T>* row) {
  using C = Compute<T>;
  const int64_t bytes = p.block * p.bits / 8;
  const uint8_t* data = context.inputs[1].as<uint8_t>() + n * p.blocks * bytes;
  const T* scales = context.inputs[2].as<T>() + n * p.blocks;
  for (int64_t k = 0; k < p.K; ++k) {
    const int64_t block = HasInput(context, 4) ? context.inputs[4].as<int32_t>()[k] : k / p.block;
    if (block < 0 || block >= p.blocks) return Invalid(context, "g_idx is out of range");
    const auto value = static_cast<C>(BitsAt(data + k / p.block * bytes, k % p.block, p.bits));
    row[k] = (value - ZeroPoint<T>(context, p, n, block)) * Widen(scales[block]);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status BitsTyped(KernelContext& context, const BitsPlan& p) {
  using C = Compute<T>;
  constexpr int64_t kOutputs = 64;  // outputs whose weights are unpacked at once
  ScratchScope scratch;
  C* a = scratch.Get<C>(p.m * p.K);
  WidenArray(context.inputs[0].as<T>(), p.m * p.K, a);
  C* weights = scratch.Get<C>(std::min(kOutputs, p.N) * p.K);
  C* c = scratch.Get<C>(p.m * p.N);
  for (int64_t n = 0; n < p.N; n += kOutputs) {
    const int64_t count = std::min(kOutputs, p.N - n);
    for (int64_t i = 0; i < count; ++i) {
      KV_RETURN_IF_ERROR(Dequantize<T>(context, p, n + i, weights + i * p.K));
    }
    Product<C> product;
    product.m = p.m;
    product.n = count;
    product.k = p.K;
    product.a = a;
    product.a_row = p.K;
    product.b = weights;
    product.b_k = 1;
    product.b_column = p.K;
    product.c = c + n;
    product.c_row = p.N;
    Multiply(product, context.threads);
  }
  for (int64_t i = 0; HasInput(context, 5) && i < p.m * p.N; ++i) {
    c[i] += Widen(context.inputs[5].as<T>()[i % p.N]);
  }
  NarrowArray(c, p.m * p.N, context.outputs[0].as<T>());
  return absl::OkStatus();
}

absl::Status BitsCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BitsPlan plan, PlanBits(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    return BitsTyped<typename decltype(tag)::Type>(context, plan);
  });
}

}  // namespace

absl::Span<const OpDef> ContribMatMulOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "FusedMatMul", 1, FusedShape, FusedCompute},
      {"com.microsoft", "MatMulNBits", 1, BitsShape, BitsCompute},
      {"com.microsoft", "TransposeMatMul", 1, FusedShape, FusedCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
