// MatMul (all forms of numpy) and Gemm.
#include "exec/kernels/products/matmul.h"

#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/kernels/products/gemm_product.h"
#include "exec/kernels/products/panel.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// a is [batch..., m, k], b [batch..., k, n], out [batch..., m, n]; operands of rank 1 as in numpy.
struct MatMulPlan {
  int64_t m = 1, n = 1, k = 1;
  Shape batch, batch_a, batch_b, out;
};

absl::StatusOr<MatMulPlan> PlanMatMul(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const Shape& a = context.inputs[0].shape;
  const Shape& b = context.inputs[1].shape;
  if (context.inputs[0].type != context.inputs[1].type) {
    return Invalid(context, "operands differ in type");
  }
  if (a.empty() || b.empty()) return Invalid(context, "a scalar operand");
  MatMulPlan plan;
  plan.k = a.back();
  const int64_t k = b.size() == 1 ? b[0] : b[b.size() - 2];
  if (plan.k != k) {
    return Invalid(context, fmt::format("inner dimensions of {} and {} differ", ShapeString(a),
                                        ShapeString(b)));
  }
  if (a.size() > 1) {
    plan.m = a[a.size() - 2];
    plan.batch_a.assign(a.begin(), a.end() - 2);
  }
  if (b.size() > 1) {
    plan.n = b.back();
    plan.batch_b.assign(b.begin(), b.end() - 2);
  }
  if (!BroadcastShapes(plan.batch_a, plan.batch_b, &plan.batch)) {
    return Invalid(context,
                   fmt::format("batches of {} and {} do not fit", ShapeString(a), ShapeString(b)));
  }
  plan.out = plan.batch;
  if (a.size() > 1) plan.out.push_back(plan.m);
  if (b.size() > 1) plan.out.push_back(plan.n);
  return plan;
}

absl::Status MatMulShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(MatMulPlan plan, PlanMatMul(context));
  SetSpec(context, 0, context.inputs[0].type, std::move(plan.out));
  return absl::OkStatus();
}

// Returns the index of an operand's matrix for a flat batch index.
int64_t MatrixIndex(const Shape& batch, const absl::InlinedVector<int64_t, 6>& strides,
                    int64_t flat) {
  int64_t index = 0;
  for (size_t i = batch.size(); i-- > 0;) {
    index += flat % batch[i] * strides[i];
    flat /= batch[i];
  }
  return index;
}

// Integer products wrap around.
template <typename T>
void MultiplyIntegers(const MatMulPlan& plan, const T* a, const T* b, T* c) {
  for (int64_t i = 0; i < plan.m; ++i) {
    for (int64_t j = 0; j < plan.n; ++j) {
      uint64_t sum = 0;
      for (int64_t p = 0; p < plan.k; ++p) {
        sum += static_cast<uint64_t>(a[i * plan.k + p]) * static_cast<uint64_t>(b[p * plan.n + j]);
      }
      c[i * plan.n + j] = static_cast<T>(sum);
    }
  }
}

template <typename T>
void MatMulTyped(KernelContext& context, MatMulPlan plan) {
  using C = Compute<T>;
  // If b has no batch, the rows of all matrices of a form one matrix.
  if (NumElements(plan.batch_b) == 1 && plan.batch.size() == plan.batch_a.size()) {
    plan.m *= NumElements(plan.batch_a);
    plan.batch.clear();
    plan.batch_a.clear();
    plan.batch_b.clear();
  }
  const T* a = context.inputs[0].as<T>();
  const T* b = context.inputs[1].as<T>();
  T* out = context.outputs[0].as<T>();
  const auto strides_a = BroadcastStrides(plan.batch_a, plan.batch);
  const auto strides_b = BroadcastStrides(plan.batch_b, plan.batch);
  const int64_t count = NumElements(plan.batch);
  const int64_t pitch_b = context.inputs[1].pitch != 0 ? context.inputs[1].pitch : plan.k * plan.n;
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < count; ++i) {
      MultiplyIntegers(plan, a + MatrixIndex(plan.batch, strides_a, i) * plan.m * plan.k,
                       b + MatrixIndex(plan.batch, strides_b, i) * pitch_b,
                       out + i * plan.m * plan.n);
    }
  } else {
    ScratchScope scratch;
    const C* wide_a;
    C* c;
    if constexpr (kIsSmallFloat<T>) {
      const int64_t size = NumElements(plan.batch_a) * plan.m * plan.k;
      C* w = scratch.Get<C>(size);
      WidenArray(a, size, w);
      wide_a = w;
      c = scratch.Get<C>(count * plan.m * plan.n);
    } else {
      wide_a = a;
      c = out;
    }
    const bool spread = count >= context.threads && count > 1;
    ParallelUnits(spread && plan.m * plan.n * plan.k * count > 65536 ? context.threads : 1, count,
                  [&](int64_t i) {
                    Product<C> product;
                    product.m = plan.m;
                    product.n = plan.n;
                    product.k = plan.k;
                    product.a = wide_a + MatrixIndex(plan.batch, strides_a, i) * plan.m * plan.k;
                    product.a_row = plan.k;
                    product.b = b + MatrixIndex(plan.batch, strides_b, i) * pitch_b;
                    product.storage = StorageOf<T>();
                    product.b_k = plan.n;
                    product.c = c + i * plan.m * plan.n;
                    product.c_row = plan.n;
                    Multiply(product, spread ? 1 : context.threads);
                  });
    if constexpr (kIsSmallFloat<T>) NarrowArray(c, count * plan.m * plan.n, out);
  }
}

std::shared_ptr<const Prepacked> MatMulPack(const PackRequest& request) {
  View b = request.inputs[1];
  if (request.transposed) std::swap(b.shape[0], b.shape[1]);  // the shape as it is in memory
  return PackMatrix(b, request.transposed, request.threads);
}

void MatMulPacked(const KernelContext& context, const void* added) {
  const View& a = context.inputs[0];
  PanelProduct product;
  product.b = static_cast<const PackedMatrix*>(context.packed);
  product.m = a.size() / product.b->k();
  product.a = a.data;
  product.c = context.outputs[0].data;
  product.storage = *StorageOfType(a.type);
  product.added = added;
  MultiplyPanels(product, context.threads);
}

absl::Status MatMulCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const MatMulPlan plan, PlanMatMul(context));
  if (context.packed != nullptr) {
    MatMulPacked(context, nullptr);
    return absl::OkStatus();
  }
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    MatMulTyped<typename decltype(tag)::Type>(context, plan);
    return absl::OkStatus();
  });
}

// Y = alpha * A' * B' + beta * C.
struct GemmPlan {
  bool transposed_a = false, transposed_b = false;
  int64_t m = 0, n = 0, k = 0;
};

absl::StatusOr<GemmPlan> PlanGemm(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const Shape& a = context.inputs[0].shape;
  const Shape& b = context.inputs[1].shape;
  if (a.size() != 2 || b.size() != 2) return Invalid(context, "operands must have rank 2");
  if (context.inputs[0].type != context.inputs[1].type) {
    return Invalid(context, "operands differ in type");
  }
  GemmPlan plan;
  plan.transposed_a = IntAttribute(context, "transA", 0) != 0;
  plan.transposed_b = IntAttribute(context, "transB", 0) != 0;
  plan.m = a[plan.transposed_a ? 1 : 0];
  plan.k = a[plan.transposed_a ? 0 : 1];
  plan.n = b[plan.transposed_b ? 0 : 1];
  if (plan.k != b[plan.transposed_b ? 1 : 0]) {
    return Invalid(context, fmt::format("inner dimensions of {} and {} differ", ShapeString(a),
                                        ShapeString(b)));
  }
  if (HasInput(context, 2)) {
    Shape out;
    if (!BroadcastShapes(context.inputs[2].shape, {plan.m, plan.n}, &out) ||
        out != Shape({plan.m, plan.n})) {
      return Invalid(context, fmt::format("C {} does not broadcast to [{}, {}]",
                                          ShapeString(context.inputs[2].shape), plan.m, plan.n));
    }
  }
  return plan;
}

absl::Status GemmShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const GemmPlan plan, PlanGemm(context));
  SetSpec(context, 0, context.inputs[0].type, {plan.m, plan.n});
  return absl::OkStatus();
}

template <typename T>
void GemmFloat(KernelContext& context, const GemmPlan& plan) {
  using C = Compute<T>;
  ScratchScope scratch;
  Product<C> product;
  product.m = plan.m;
  product.n = plan.n;
  product.k = plan.k;
  const View& a = context.inputs[0];
  if constexpr (kIsSmallFloat<T>) {
    C* wide = scratch.Get<C>(a.size());
    WidenArray(a.as<T>(), a.size(), wide);
    product.a = wide;
    product.c = scratch.Get<C>(plan.m * plan.n);
  } else {
    product.a = a.as<T>();
    product.c = context.outputs[0].as<T>();
  }
  product.a_row = plan.transposed_a ? 1 : plan.k;
  product.a_k = plan.transposed_a ? plan.m : 1;
  product.b = context.inputs[1].data;
  product.storage = StorageOf<T>();
  product.b_k = plan.transposed_b ? 1 : plan.n;
  product.b_column = plan.transposed_b ? plan.k : 1;
  product.c_row = plan.n;
  Multiply(product, context.threads);

  const C alpha = FloatAttribute(context, "alpha", 1), beta = FloatAttribute(context, "beta", 1);
  const bool add = HasInput(context, 2) && beta != 0;
  absl::InlinedVector<int64_t, 6> strides(2, 0);
  if (add) strides = BroadcastStrides(context.inputs[2].shape, {plan.m, plan.n});
  const T* bias = add ? context.inputs[2].as<T>() : nullptr;
  T* out = context.outputs[0].as<T>();
  for (int64_t i = 0; i < plan.m; ++i) {
    for (int64_t j = 0; j < plan.n; ++j) {
      C y = product.c[i * plan.n + j];
      if (alpha != 1) y = alpha * y;
      if (add) {
        const C x = Widen(bias[i * strides[0] + j * strides[1]]);
        y = y + (beta != 1 ? beta * x : x);
      }
      out[i * plan.n + j] = Narrow<T>(y);
    }
  }
}

template <typename T>
void GemmInteger(KernelContext& context, const GemmPlan& plan) {
  const T* a = context.inputs[0].as<T>();
  const T* b = context.inputs[1].as<T>();
  const double alpha = FloatAttribute(context, "alpha", 1);
  const double beta = FloatAttribute(context, "beta", 1);
  const bool add = HasInput(context, 2);
  absl::InlinedVector<int64_t, 6> strides(2, 0);
  if (add) strides = BroadcastStrides(context.inputs[2].shape, {plan.m, plan.n});
  T* out = context.outputs[0].as<T>();
  for (int64_t i = 0; i < plan.m; ++i) {
    for (int64_t j = 0; j < plan.n; ++j) {
      uint64_t sum = 0;
      for (int64_t p = 0; p < plan.k; ++p) {
        const T x = a[plan.transposed_a ? p * plan.m + i : i * plan.k + p];
        const T y = b[plan.transposed_b ? j * plan.k + p : p * plan.n + j];
        sum += static_cast<uint64_t>(x) * static_cast<uint64_t>(y);
      }
      T y = static_cast<T>(sum);
      if (alpha != 1) y = static_cast<T>(alpha * static_cast<double>(y));
      if (add) {
        T x = context.inputs[2].as<T>()[i * strides[0] + j * strides[1]];
        if (beta != 1) x = static_cast<T>(beta * static_cast<double>(x));
        y = static_cast<T>(static_cast<uint64_t>(y) + static_cast<uint64_t>(x));
      }
      out[i * plan.n + j] = y;
    }
  }
}

std::shared_ptr<const Prepacked> GemmPack(const PackRequest& request) {
  bool mirrored = request.transposed;
  for (const onnx::AttributeProto& a : request.node.attribute()) {
    if (a.name() == "transA" && a.i() != 0) return nullptr;
    if (a.name() == "transB" && a.i() != 0) mirrored = !mirrored;
  }
  View b = request.inputs[1];
  if (request.transposed) std::swap(b.shape[0], b.shape[1]);
  return PackMatrix(b, mirrored, request.threads);
}

absl::Status GemmPacked(KernelContext& context, const GemmPlan& plan) {
  PanelProduct product;
  product.b = static_cast<const PackedMatrix*>(context.packed);
  product.m = plan.m;
  product.a = context.inputs[0].data;
  product.c = context.outputs[0].data;
  product.storage = *StorageOfType(context.inputs[0].type);
  product.alpha = FloatAttribute(context, "alpha", 1);
  product.beta = FloatAttribute(context, "beta", 1);
  if (HasInput(context, 2) && product.beta != 0) {
    const auto strides = BroadcastStrides(context.inputs[2].shape, {plan.m, plan.n});
    product.bias = context.inputs[2].data;
    product.bias_row = strides[0];
    product.bias_column = strides[1];
  }
  MultiplyPanels(product, context.threads);
  return absl::OkStatus();
}

absl::Status GemmCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const GemmPlan plan, PlanGemm(context));
  if (context.packed != nullptr) return GemmPacked(context, plan);
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_integral_v<T>) {
      GemmInteger<T>(context, plan);
    } else {
      GemmFloat<T>(context, plan);
    }
    return absl::OkStatus();
  });
}

// Returns the shape of the product of a [.., k] and b [k, n].
Shape ProductShape(const KernelContext& context) {
  Shape shape = context.inputs[0].shape;
  shape.back() = context.inputs[1].shape[1];
  return shape;
}

absl::Status FusedProductShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(MatMulShape(context));
  const View& added = context.inputs[2];
  Shape shape;
  if (context.inputs[1].shape.size() != 2 || added.type != context.inputs[0].type ||
      !BroadcastShapes(ProductShape(context), added.shape, &shape)) {
    return Invalid(context, fmt::format("{} does not broadcast", ShapeString(added.shape)));
  }
  SetSpec(context, 0, added.type, std::move(shape));
  return absl::OkStatus();
}

absl::Status FusedProductCompute(KernelContext& context) {
  const View& added = context.inputs[2];
  View result = {added.type, ProductShape(context), context.outputs[0].data};
  const bool whole = added.shape == result.shape && context.packed != nullptr;
  ScratchScope scratch;
  if (!whole) {
    result.data = reinterpret_cast<std::byte*>(scratch.Get<uint8_t>(result.bytes()));
  }
  KernelContext part = context;
  part.inputs = context.inputs.subspan(0, 2);
  part.outputs = {&result, 1};
  if (!whole) {
    KV_RETURN_IF_ERROR(MatMulCompute(part));
    const View operands[] = {result, added};
    part.inputs = operands;
    part.outputs = context.outputs;
    part.packed = nullptr;
    return FindOp("", "Add", 14)->compute(part);
  }
  MatMulPacked(part, added.data);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> MatMulOps() {
  static const OpDef ops[] = {
      {"", "Einsum", 12, EinsumShape, EinsumCompute},
      {"", "Gemm", 7, GemmShape, GemmCompute, ViewKind::kNone, -1, GemmPack, 1, true},
      {"", "MatMul", 1, MatMulShape, MatMulCompute, ViewKind::kNone, -1, MatMulPack, 1, true,
       nullptr, 1 << 1},
      {kFusedDomain, kProduct, 1, FusedProductShape, FusedProductCompute, ViewKind::kNone, -1,
       MatMulPack, 1, true},
  };
  return ops;
}

}  // namespace kvlift::exec
