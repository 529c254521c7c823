// TensorScatter-24: writes `update` [B, ..., S, ...] into `past_cache` [B, ..., M, ...] at
// write_indices [B] (zeros if omitted) along `axis`.
#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// The cache as [batch, outer, capacity] rows of `row_bits` bits.
struct Plan {
  int64_t batch = 1, outer = 1, capacity = 1, length = 0, row_bits = 0;
  bool circular = false;
};

absl::StatusOr<Plan> MakePlan(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const View& past = context.inputs[0];
  const View& update = context.inputs[1];
  if (past.type != update.type) return Invalid(context, "past_cache and update differ in type");
  const auto rank = static_cast<int64_t>(past.shape.size());
  if (static_cast<int64_t>(update.shape.size()) != rank) {
    return Invalid(context, "past_cache and update differ in rank");
  }
  const int64_t axis = NormalAxis(IntAttribute(context, "axis", -2), rank);
  if (axis <= 0) return Invalid(context, "axis must name a dimension other than the batch");
  Plan plan;
  const std::string_view mode = StringAttribute(context, "mode", "linear");
  if (mode != "linear" && mode != "circular") return Invalid(context, "unknown mode");
  plan.circular = mode == "circular";
  const int64_t bits = ElementBits(past.type);
  if (bits == 0 || bits % 4 != 0) return Unsupported(context, "elements of this type");
  int64_t row = 1;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != axis && past.shape[i] != update.shape[i]) {
      return Invalid(context, fmt::format("past_cache is {} but update is {}",
                                          ShapeString(past.shape), ShapeString(update.shape)));
    }
    if (i > 0 && i < axis) plan.outer *= past.shape[i];
    if (i > axis) row *= past.shape[i];
  }
  plan.batch = past.shape[0];
  plan.capacity = past.shape[axis];
  plan.length = update.shape[axis];
  plan.row_bits = row * bits;
  if (plan.length > plan.capacity) {
    return Invalid(context, fmt::format("update of length {} exceeds the capacity {}", plan.length,
                                        plan.capacity));
  }
  if (HasInput(context, 2)) {
    const View& indices = context.inputs[2];
    if (indices.type != onnx::TensorProto::INT64 && indices.type != onnx::TensorProto::INT32) {
      return Invalid(context, "write_indices must be int64");
    }
    if (indices.shape.size() != 1 || indices.shape[0] != plan.batch) {
      return Invalid(context, fmt::format("write_indices is {} but the batch is {}",
                                          ShapeString(indices.shape), plan.batch));
    }
  }
  return plan;
}

int64_t WriteIndex(const KernelContext& context, int64_t b) {
  if (!HasInput(context, 2)) return 0;
  const View& indices = context.inputs[2];
  return indices.type == onnx::TensorProto::INT64 ? indices.as<int64_t>()[b]
                                                  : indices.as<int32_t>()[b];
}

absl::Status ValidateIndices(const KernelContext& context, const Plan& plan) {
  for (int64_t b = 0; b < plan.batch; ++b) {
    const int64_t w = WriteIndex(context, b);
    if (w < 0) return Invalid(context, fmt::format("write_indices[{}] = {} is negative", b, w));
    if (!plan.circular && w > plan.capacity - plan.length) {
      return Invalid(context,
                     fmt::format("write_indices[{}] = {} and {} new rows exceed the capacity {}", b,
                                 w, plan.length, plan.capacity));
    }
  }
  return absl::OkStatus();
}

// Copies `bits` bits from src to dst at bit offsets: whole bytes by memcpy, nibbles one by one.
void CopyBits(const std::byte* src, int64_t src_bit, std::byte* dst, int64_t dst_bit,
              int64_t bits) {
  if (((src_bit | dst_bit | bits) & 7) == 0) {
    std::memcpy(dst + dst_bit / 8, src + src_bit / 8, static_cast<size_t>(bits / 8));
    return;
  }
  for (int64_t i = 0; i < bits; i += 4) {
    const int from = static_cast<int>((src_bit + i) & 4), to = static_cast<int>((dst_bit + i) & 4);
    const std::byte nibble = (src[(src_bit + i) / 8] >> from) & std::byte{15};
    std::byte& cell = dst[(dst_bit + i) / 8];
    cell = (cell & ~(std::byte{15} << to)) | (nibble << to);
  }
}

// Copies units [begin, end) of one batch entry, written from row `slot` on.
void CopyRows(const Plan& plan, int64_t begin, int64_t end, int64_t slot, const std::byte* update,
              std::byte* out) {
  if (plan.circular) slot %= plan.capacity;
  const int64_t head = std::min(plan.length, plan.capacity - slot) * plan.row_bits;
  const int64_t all = plan.length * plan.row_bits, cache = plan.capacity * plan.row_bits;
  for (int64_t unit = begin; unit < end; ++unit) {
    CopyBits(update, unit * all, out, unit * cache + slot * plan.row_bits, head);
    if (head < all) CopyBits(update, unit * all + head, out, unit * cache, all - head);
  }
}

absl::Status ScatterShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context));
  (void)plan;
  SetSpec(context, 0, context.inputs[0].type, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status ScatterCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context));
  KV_RETURN_IF_ERROR(ValidateIndices(context, plan));
  const View& past = context.inputs[0];
  const std::byte* update = context.inputs[1].data;
  std::byte* out = context.outputs[0].data;
  // Packed elements of two heads may share a byte, so one thread writes them.
  const bool packed = plan.row_bits % 8 != 0;
  if (out != past.data) {
    const int64_t bytes = past.bytes();
    ParallelFor(context.threads, bytes, 4096, int64_t{1} << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(out + begin, past.data + begin, static_cast<size_t>(end - begin));
    });
  }
  if (plan.length == 0 || plan.row_bits == 0) return absl::OkStatus();
  const int64_t units = plan.batch * plan.outer;
  const int64_t unit_bytes = std::max<int64_t>(1, plan.length * plan.row_bits / 8);
  ParallelFor(packed ? 1 : context.threads, units, 1,
              std::max<int64_t>(1, (int64_t{1} << 18) / unit_bytes),
              [&](int64_t begin, int64_t end) {
                while (begin < end) {
                  const int64_t b = begin / plan.outer;
                  const int64_t stop = std::min(end, (b + 1) * plan.outer);
                  CopyRows(plan, begin, stop, WriteIndex(context, b), update, out);
                  begin = stop;
                }
              });
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> TensorScatterOps() {
  static const OpDef ops[] = {
      {"", "TensorScatter", 24, ScatterShape, ScatterCompute, ViewKind::kNone, 0},
  };
  return ops;
}

}  // namespace kvlift::exec
