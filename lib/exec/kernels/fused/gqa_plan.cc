#include "exec/kernels/fused/gqa_plan.h"

#include <algorithm>

#include "base/status.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/fused/fused_attention.h"
#include "exec/kernels/fused/gqa_cache.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {

using namespace math;  // NOLINT

namespace {

absl::Status CheckInputs(const KernelContext& context) {
  if (HasInput(context, kQueryNorm) != HasInput(context, kKeyNorm)) {
    return Invalid(context, "q_norm_weight and k_norm_weight must be given together");
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  const View& query = context.inputs[kQuery];
  p.N = IntAttribute(context, "num_heads", 0);
  p.Nk = IntAttribute(context, "kv_num_heads", 0);
  if (p.N <= 0 || p.Nk <= 0 || p.N % p.Nk != 0) {
    return Invalid(context, "num_heads must be a multiple of kv_num_heads");
  }
  if (query.shape.size() != 3) return Invalid(context, "query must have rank 3");
  p.B = query.shape[0];
  p.S = query.shape[1];
  p.packed = !HasInput(context, kKey);
  if (p.packed == HasInput(context, kValue)) {
    return Invalid(context, "key and value must be given together");
  }
  const int64_t heads = p.packed ? p.N + 2 * p.Nk : p.N;
  p.D = query.shape[2] / heads;
  if (p.D == 0 || query.shape[2] % heads != 0) return Invalid(context, "heads do not fit query");
  for (const size_t i : {size_t{kKey}, size_t{kValue}}) {
    if (!p.packed && (context.inputs[i].shape != Shape({p.B, p.S, p.Nk * p.D}) ||
                      context.inputs[i].type != query.type)) {
      return Invalid(context,
                     fmt::format("{} does not fit query {}", ShapeString(context.inputs[i].shape),
                                 ShapeString(query.shape)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool WantsScores(const KernelContext& context) {
  return context.node.output_size() > 3 && !context.node.output(3).empty();
}

int64_t StoredSize(const GqaPlan& p) {
  return p.cache_type == onnx::TensorProto::UINT8 ? p.D / 2 : p.D;
}

// Reads the type of the cache and, if it is quantised, its scales.
namespace {

absl::Status ReadCacheType(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  const int32_t own = context.inputs[kQuery].type;
  const int64_t bits = IntAttribute(context, "kv_cache_bit_width", 0);
  const auto form = StringAttribute(context, "k_quant_type", "NONE");
  p.cache_type = own;
  if (HasInput(context, kPastKey)) {
    p.cache_type = context.inputs[kPastKey].type;
  } else if (form != "NONE") {
    p.cache_type = bits == 4 ? onnx::TensorProto::UINT8 : onnx::TensorProto::INT8;
  }
  if (p.cache_type == own && form == "NONE") return absl::OkStatus();
  p.quantized = true;
  const bool packed = p.cache_type == onnx::TensorProto::UINT8;
  if ((!packed && p.cache_type != onnx::TensorProto::INT8 &&
       p.cache_type != onnx::TensorProto::FLOAT8E4M3FN) ||
      (bits != 0 && bits != (packed ? 4 : 8)) || (packed && p.D % 2 != 0)) {
    return Unsupported(
        context, fmt::format("a cache of {} with {} bits", ElementTypeName(p.cache_type), bits));
  }
  const char* const names[] = {"k_quant_type", "v_quant_type"};
  for (const size_t i : {size_t{kKeyScale}, size_t{kValueScale}}) {
    const bool single = StringAttribute(context, names[i - kKeyScale], "NONE") == "PER_TENSOR";
    if (!HasInput(context, i) || context.inputs[i].type != onnx::TensorProto::FLOAT ||
        context.inputs[i].size() != (single ? 1 : p.Nk * p.D)) {
      return Invalid(context, "the scales of the quantized cache do not fit");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadCaches(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  if (HasInput(context, kPastKey) != HasInput(context, kPastValue)) {
    return Invalid(context, "past_key and past_value must be given together");
  }
  KV_RETURN_IF_ERROR(ReadCacheType(context, &p));
  if (HasInput(context, kPastKey)) {
    const Shape& shape = context.inputs[kPastKey].shape;
    p.P = shape.size() == 4 ? shape[2] : 0;
    for (const size_t i : {size_t{kPastKey}, size_t{kPastValue}}) {
      if (context.inputs[i].shape != Shape({p.B, p.Nk, p.P, StoredSize(p)})) {
        return Invalid(context,
                       fmt::format("past {} does not fit", ShapeString(context.inputs[i].shape)));
      }
      if (context.inputs[i].type != p.cache_type) {
        return Invalid(context, "past_key and past_value differ in type");
      }
    }
  }
  const View& lengths = context.inputs[kSeqlens];
  if (!move::IsIndexType(lengths.type) || lengths.size() != p.B) {
    return Invalid(context, "seqlens_k must have one integer per batch entry");
  }
  const View& total = context.inputs[kTotal];
  if (!move::IsIndexType(total.type) || total.size() != 1) {
    return Invalid(context, "total_sequence_length must be one integer");
  }
  p.total = move::IndexAt(total, 0);
  p.M = std::max(p.total, p.P);
  p.prompt = p.S == p.total;
  if (IntAttribute(context, "sliding_window_cache", 0) == 1) {
    p.window = IntAttribute(context, "local_window_size", -1);
    p.capacity = p.P;
    if (p.window <= 0 || p.capacity < p.window) {
      return Invalid(context, "sliding_window_cache needs a window within the past's capacity");
    }
  }
  const bool by_position = HasInput(context, kBias) || WantsScores(context);
  for (int64_t b = 0; b < p.B; ++b) {
    const int64_t keys = move::IndexAt(lengths, b) + 1;
    const int64_t past = p.prompt ? 0 : keys - p.S;
    if (keys < 0 || keys > p.M || past < 0 || past + p.S > p.M || (past > p.P && p.window == 0) ||
        (keys > past + p.S && p.window != 0) || (by_position && keys > p.total)) {
      return Invalid(context, fmt::format("seqlens_k[{}] = {} does not fit {} past and {} new "
                                          "tokens",
                                          b, keys - 1, p.P, p.S));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRotary(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  if (IntAttribute(context, "do_rotary", 0) == 0) return absl::OkStatus();
  if (!HasInput(context, kCos) || !HasInput(context, kSin)) {
    return Invalid(context, "do_rotary needs cos_cache and sin_cache");
  }
  const View& cosine = context.inputs[kCos];
  const View& sine = context.inputs[kSin];
  if (cosine.shape.size() != 2 || sine.shape != cosine.shape || 2 * cosine.shape[1] > p.D ||
      cosine.type != context.inputs[kQuery].type || sine.type != cosine.type) {
    return Invalid(context, "cos_cache and sin_cache do not fit");
  }
  p.R = 2 * cosine.shape[1];
  if (HasInput(context, kPositions) &&
      (context.inputs[kPositions].type != onnx::TensorProto::INT64 ||
       context.inputs[kPositions].size() < (p.prompt ? 1 : p.B * p.S))) {
    return Invalid(context, "position_ids do not fit");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GqaPlan> PlanGqa(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  if (!HasInput(context, kSeqlens) || !HasInput(context, kTotal)) {
    return Invalid(context, "seqlens_k or total_sequence_length is missing");
  }
  GqaPlan plan;
  KV_RETURN_IF_ERROR(CheckInputs(context));
  KV_RETURN_IF_ERROR(ReadHeads(context, &plan));
  KV_RETURN_IF_ERROR(ReadCaches(context, &plan));
  KV_RETURN_IF_ERROR(ReadRotary(context, &plan));
  return plan;
}

}  // namespace kvlift::exec
