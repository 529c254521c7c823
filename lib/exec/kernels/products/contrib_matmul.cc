// com.microsoft FusedMatMul: scaled products of transposed operands.
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/products/gemm_product.h"
#include "exec/kernels/products/panel.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// One operand of a product as [batch..., rows, columns] with the strides of its elements.
struct Operand {
  Shape batch;
  move::Ints batch_strides;
  int64_t rows = 1, columns = 1, row_stride = 0, column_stride = 0;
};

// Reads a shape as an operand. `batch_first`: the first dimension belongs in front of the last two,
// not to the batch. A vector is a row on the left and a column on the right.
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

// Returns the element offset of matrix `flat` of the broadcast batch.
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

std::shared_ptr<const Prepacked> FusedPack(const PackRequest& request) {
  bool mirrored = request.transposed;
  for (const onnx::AttributeProto& a : request.node.attribute()) {
    if (a.name() == "transB" && a.i() != 0) mirrored = !mirrored;
    if (a.i() != 0 && (a.name() == "transA" || a.name() == "transBatchA")) return nullptr;
  }
  View b = request.inputs[1];
  if (request.transposed) std::swap(b.shape[0], b.shape[1]);
  return PackMatrix(b, mirrored, request.threads);
}

absl::Status FusedCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const FusedPlan plan, PlanFused(context));
  if (context.packed != nullptr) {
    PanelProduct product;
    product.b = static_cast<const PackedMatrix*>(context.packed);
    product.m = context.inputs[0].size() / product.b->k();
    product.a = context.inputs[0].data;
    product.c = context.outputs[0].data;
    product.storage = *StorageOfType(context.inputs[0].type);
    product.alpha = FloatAttribute(context, "alpha", 1);
    MultiplyPanels(product, context.threads);
    return absl::OkStatus();
  }
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

}  // namespace

absl::Span<const OpDef> ContribMatMulOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "FusedMatMul", 1, FusedShape, FusedCompute, ViewKind::kNone, -1, FusedPack,
       1, true},
      {"com.microsoft", "TransposeMatMul", 1, FusedShape, FusedCompute, ViewKind::kNone, -1,
       FusedPack, 1, true},
  };
  return ops;
}

}  // namespace kvlift::exec
