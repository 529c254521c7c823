#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/status.h"
#include "exec/kernels/attention/attention.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {

namespace {

using namespace math;  // NOLINT

enum Input { kQ, kK, kV, kMask, kPastKeys, kPastValues, kNonpad };

absl::Status ReadSizes(const KernelContext& context, AttentionPlan* plan) {
  const Shape& q = context.inputs[kQ].shape;
  const Shape& k = context.inputs[kK].shape;
  const Shape& v = context.inputs[kV].shape;
  const auto misfit = [&](std::string_view why) {
    return Invalid(context, fmt::format("Q {}, K {}, V {}: {}", ShapeString(q), ShapeString(k),
                                        ShapeString(v), why));
  };
  if (q.size() != k.size() || q.size() != v.size() || (q.size() != 3 && q.size() != 4)) {
    return misfit("must all have rank 3 or all rank 4");
  }
  AttentionPlan& p = *plan;
  p.rank3 = q.size() == 3;
  p.B = q[0];
  if (k[0] != p.B || v[0] != p.B) return misfit("batch sizes differ");
  int64_t value_heads = 0;
  if (p.rank3) {
    p.N = IntAttribute(context, "q_num_heads", 0);
    p.Nk = value_heads = IntAttribute(context, "kv_num_heads", 0);
    if (p.N <= 0 || p.Nk <= 0) return misfit("rank 3 needs q_num_heads and kv_num_heads");
    if (q[2] % p.N != 0 || k[2] % p.Nk != 0 || v[2] % p.Nk != 0) {
      return misfit("hidden sizes are no multiples of the numbers of heads");
    }
    p.S = q[1];
    p.new_keys = k[1];
    p.D = q[2] / p.N;
    p.Dv = v[2] / p.Nk;
    if (k[2] / p.Nk != p.D) return misfit("head sizes of Q and K differ");
    if (v[1] != p.new_keys) return misfit("numbers of keys and values differ");
    p.q = {p.S * q[2], p.D, q[2]};
    p.k = {p.new_keys * k[2], p.D, k[2]};
    p.v = {p.new_keys * v[2], p.Dv, v[2]};
    p.y = {p.S * p.N * p.Dv, p.Dv, p.N * p.Dv};
  } else {
    p.N = q[1];
    p.Nk = k[1];
    value_heads = v[1];
    if (IntAttribute(context, "q_num_heads", p.N) != p.N ||
        IntAttribute(context, "kv_num_heads", p.Nk) != p.Nk) {
      return misfit("q_num_heads and kv_num_heads are for rank 3, or those of the operands");
    }
    p.S = q[2];
    p.new_keys = k[2];
    p.D = q[3];
    p.Dv = v[3];
    if (k[3] != p.D) return misfit("head sizes of Q and K differ");
    if (v[2] != p.new_keys) return misfit("numbers of keys and values differ");
    p.q = {p.N * p.S * p.D, p.S * p.D, p.D};
    p.k = {p.Nk * p.new_keys * p.D, p.new_keys * p.D, p.D};
    p.v = {p.Nk * p.new_keys * p.Dv, p.new_keys * p.Dv, p.Dv};
    p.y = {p.N * p.S * p.Dv, p.S * p.Dv, p.Dv};
  }
  // With a pitch the operand is a part of a longer cache: the pitch separates heads (batch entries
  // in rank 3).
  for (const auto& [view, layout] : {std::pair(kK, &p.k), std::pair(kV, &p.v)}) {
    const int64_t pitch = context.inputs[view].pitch;
    if (pitch == 0) continue;
    layout->batch = p.rank3 ? pitch : p.Nk * pitch;
    if (!p.rank3) layout->head = pitch;
  }
  if (p.Nk != value_heads) return misfit("numbers of key and value heads differ");
  if (p.Nk == 0 ? p.N != 0 : p.N % p.Nk != 0) {
    return misfit("query heads are no multiple of the key heads");
  }
  p.G = p.Nk == 0 ? 1 : p.N / p.Nk;
  return absl::OkStatus();
}

absl::Status ReadPast(const KernelContext& context, AttentionPlan* plan) {
  AttentionPlan& p = *plan;
  if (HasInput(context, kPastKeys) != HasInput(context, kPastValues)) {
    return Invalid(context, "past_key and past_value must be given together");
  }
  if (HasInput(context, kPastKeys)) {
    if (HasInput(context, kNonpad)) {
      return Invalid(context, "nonpad_kv_seqlen cannot be combined with past_key");
    }
    const View& key = context.inputs[kPastKeys];
    const View& value = context.inputs[kPastValues];
    if (key.shape.size() != 4) return Invalid(context, "past_key must have rank 4");
    p.P = key.shape[2];
    if (key.shape != Shape({p.B, p.Nk, p.P, p.D}) || value.shape != Shape({p.B, p.Nk, p.P, p.Dv}) ||
        key.type != context.inputs[kK].type || value.type != context.inputs[kV].type) {
      return Invalid(context, fmt::format("past_key {} and past_value {} do not fit K and V",
                                          ShapeString(key.shape), ShapeString(value.shape)));
    }
  }
  p.T = p.P + p.new_keys;
  if (HasInput(context, kNonpad)) {
    const View& nonpad = context.inputs[kNonpad];
    if (nonpad.type != onnx::TensorProto::INT64 || nonpad.shape != Shape({p.B})) {
      return Invalid(context, fmt::format("nonpad_kv_seqlen must be int64 [{}], is {}", p.B,
                                          ShapeString(nonpad.shape)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMask(const KernelContext& context, AttentionPlan* plan) {
  AttentionPlan& p = *plan;
  p.has_mask = HasInput(context, kMask);
  if (!p.has_mask) return absl::OkStatus();
  const Shape& shape = context.inputs[kMask].shape;
  const int64_t full[4] = {p.B, p.N, p.S, p.T};
  int64_t* strides[4] = {&p.mask_b, &p.mask_h, &p.mask_s, &p.mask_t};
  bool fits = !shape.empty() && shape.size() <= 4;
  int64_t stride = 1;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const size_t d = 3 - i;
    const int64_t size = shape[shape.size() - 1 - i];
    *strides[d] = size == 1 ? 0 : stride;
    stride *= size;
    if (d == 3) {
      // A shorter mask is extended with "masked"; before opset 24 a single column is broadcast.
      const bool broadcast = size == 1 && context.opset < 24;
      p.mask_keys = broadcast ? p.T : size;
      fits = broadcast || size <= p.T;
    } else {
      fits = size == 1 || size == full[d];
    }
  }
  if (!fits) {
    return Invalid(context, fmt::format("attn_mask {} does not broadcast to [{}, {}, {}, {}]",
                                        ShapeString(shape), p.B, p.N, p.S, p.T));
  }
  return absl::OkStatus();
}

}  // namespace

KeyRange VisibleKeys(const AttentionPlan& plan, int64_t s, int64_t valid, bool has_valid) {
  KeyRange range = {0, valid};
  const int64_t position = s + (has_valid ? valid - plan.S : plan.P);
  if (plan.causal) range.end = std::min(range.end, position + 1);
  if (plan.right_window >= 0 && plan.right_window < plan.T) {
    range.end = std::min(range.end, position + plan.right_window + 1);
  }
  if (plan.left_window >= 0 && plan.left_window < plan.T + plan.S) {
    range.begin = std::max<int64_t>(0, position - plan.left_window);
  }
  if (plan.has_mask) range.end = std::min(range.end, plan.mask_keys);
  if (range.begin >= range.end) range = {0, 0};
  return range;
}

absl::Status CheckValidLengths(const KernelContext& context, const AttentionPlan& plan) {
  if (!HasInput(context, kNonpad)) return absl::OkStatus();
  for (int64_t b = 0; b < plan.B; ++b) {
    const int64_t valid = context.inputs[kNonpad].as<int64_t>()[b];
    if (valid < 0 || valid > plan.T) {
      return Invalid(context,
                     fmt::format("nonpad_kv_seqlen[{}] = {} is outside [0, {}]", b, valid, plan.T));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionPlan> PlanAttention(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  if (context.inputs[kQ].type != context.inputs[kK].type) {
    return Invalid(context, "Q and K differ in type");
  }
  return PlanAttentionOfAnyType(context);
}

absl::StatusOr<AttentionPlan> PlanAttentionOfAnyType(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  AttentionPlan plan;
  KV_RETURN_IF_ERROR(ReadSizes(context, &plan));
  KV_RETURN_IF_ERROR(ReadPast(context, &plan));
  KV_RETURN_IF_ERROR(ReadMask(context, &plan));
  plan.scale = FindAttribute(context, "scale") != nullptr
                   ? FloatAttribute(context, "scale", 1)
                   : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, plan.D)));
  plan.softcap = FloatAttribute(context, "softcap", 0);
  plan.causal = IntAttribute(context, "is_causal", 0) != 0;
  plan.softmax_type = static_cast<int32_t>(IntAttribute(context, "softmax_precision", 0));
  plan.qk_mode = IntAttribute(context, "qk_matmul_output_mode", 0);
  if (plan.qk_mode < 0 || plan.qk_mode > 3) {
    return Invalid(context, "qk_matmul_output_mode must be 0, 1, 2 or 3");
  }
  plan.left_window = IntAttribute(context, "left_window_size", -1);
  plan.right_window = IntAttribute(context, "right_window_size", -1);
  if (plan.left_window < -1 || plan.right_window < -1) {
    return Invalid(context, "a window size must be -1 or not negative");
  }
  return plan;
}

absl::Status AttentionShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const AttentionPlan p, PlanAttention(context));
  const int32_t type = context.inputs[kQ].type, value_type = context.inputs[kV].type;
  SetSpec(context, 0, type, p.rank3 ? Shape({p.B, p.S, p.N * p.Dv}) : Shape({p.B, p.N, p.S, p.Dv}));
  SetSpec(context, 1, type, {p.B, p.Nk, p.T, p.D});
  SetSpec(context, 2, value_type, {p.B, p.Nk, p.T, p.Dv});
  SetSpec(context, 3, type, {p.B, p.N, p.S, p.T});
  context.specs->resize(static_cast<size_t>(std::max(1, context.node.output_size())));
  return absl::OkStatus();
}

}  // namespace kvlift::exec
