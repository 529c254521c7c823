// CausalConvWithState and LinearAttention of ONNX and com.microsoft, and LinearAttentionGate:
// layers of hybrid decoders whose state has a fixed size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

absl::Status NoWindow(const KernelContext& context) {
  for (const char* name : {"state_window", "channels_last"}) {
    if (IntAttribute(context, name, 0) != 0) {
      return Unsupported(context, fmt::format("{} is not supported", name));
    }
  }
  return absl::OkStatus();
}

// X is [B, channels, S], the filters are [channels, 1, taps], the state is [B, channels, past].
struct CausalPlan {
  int64_t B = 0, channels = 0, S = 0, taps = 0, dilation = 1, past = 0;
  bool silu = false;
};

absl::StatusOr<CausalPlan> PlanCausal(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_RETURN_IF_ERROR(NoWindow(context));
  if (IntAttribute(context, "ndim", 1) != 1) {
    return Unsupported(context, "more than one spatial dim is not supported");
  }
  const Shape& x = context.inputs[0].shape;
  const Shape& w = context.inputs[1].shape;
  if (x.size() != 3 || w.size() != 3 || w[0] != x[1] || w[1] != 1 || w[2] < 1) {
    return Invalid(
        context, fmt::format("input {} and weight {} do not fit", ShapeString(x), ShapeString(w)));
  }
  CausalPlan p;
  p.B = x[0];
  p.channels = x[1];
  p.S = x[2];
  p.taps = w[2];
  p.dilation = IntAttribute(context, "dilation", 1);
  if (p.dilation < 1) return Invalid(context, "dilation is below 1");
  p.past = (p.taps - 1) * p.dilation;
  const std::string_view activation = StringAttribute(context, "activation", "none");
  p.silu = activation == "silu" || activation == "swish";
  if (!p.silu && activation != "none" && !activation.empty()) {
    return Invalid(context, fmt::format("activation \"{}\"", activation));
  }
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    if (HasInput(context, i) && context.inputs[i].type != context.inputs[0].type) {
      return Invalid(context, "inputs differ in type");
    }
  }
  if (HasInput(context, 2) && context.inputs[2].shape != Shape({p.channels})) {
    return Invalid(context, "the bias does not fit");
  }
  if (HasInput(context, 3) && context.inputs[3].shape != Shape({p.B, p.channels, p.past})) {
    return Invalid(context, "the state does not fit");
  }
  return p;
}

absl::Status CausalShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const CausalPlan p, PlanCausal(context));
  const int32_t type = context.inputs[0].type;
  SetSpec(context, 0, type, context.inputs[0].shape);
  if (context.node.output_size() > 1) SetSpec(context, 1, type, {p.B, p.channels, p.past});
  return absl::OkStatus();
}

template <typename T>
void CausalTyped(KernelContext& context, const CausalPlan& p) {
  using C = Compute<T>;
  ScratchScope scratch;
  C* line = scratch.Get<C>(p.past + p.S);  // state and input of one channel
  C* taps = scratch.Get<C>(p.taps);
  for (int64_t i = 0; i < p.B * p.channels; ++i) {
    const int64_t channel = i % p.channels;
    if (HasInput(context, 3)) {
      WidenArray(context.inputs[3].as<T>() + i * p.past, p.past, line);
    } else {
      std::fill(line, line + p.past, C{0});
    }
    WidenArray(context.inputs[0].as<T>() + i * p.S, p.S, line + p.past);
    WidenArray(context.inputs[1].as<T>() + channel * p.taps, p.taps, taps);
    T* y = context.outputs[0].as<T>() + i * p.S;
    for (int64_t s = 0; s < p.S; ++s) {
      C sum = HasInput(context, 2) ? Widen(context.inputs[2].as<T>()[channel]) : C{0};
      for (int64_t k = 0; k < p.taps; ++k) sum += taps[k] * line[s + k * p.dilation];
      if (p.silu) sum = sum / (C{1} + std::exp(-sum));
      y[s] = Narrow<T>(sum);
    }
    if (WantsOutput(context, 1)) {
      NarrowArray(line + p.S, p.past, context.outputs[1].as<T>() + i * p.past);
    }
  }
}

absl::Status CausalCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const CausalPlan plan, PlanCausal(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    CausalTyped<typename decltype(tag)::Type>(context, plan);
    return absl::OkStatus();
  });
}

// LinearAttention. Q is [B, S, N * D], K [B, S, Nq * D], V [B, S, Nk * Dv], the state [B, Nk, D,
// Dv]. Nk heads of the state serve N heads of Q, or N heads of Q serve Nk heads.

enum LinearInput { kQ, kK, kV, kState, kDecay, kBeta };

struct LinearPlan {
  int64_t B = 0, S = 0, N = 0, Nk = 0, keys = 0, D = 0, Dv = 0, out = 0;
  bool decay = false, delta = false;
};

absl::StatusOr<LinearPlan> PlanLinear(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  KV_RETURN_IF_ERROR(NoWindow(context));
  LinearPlan p;
  const Shape& q = context.inputs[kQ].shape;
  const Shape& k = context.inputs[kK].shape;
  const Shape& v = context.inputs[kV].shape;
  p.N = IntAttribute(context, "q_num_heads", 0);
  p.Nk = IntAttribute(context, "kv_num_heads", 0);
  if (p.N < 1 || p.Nk < 1 || q.size() != 3 || k.size() != 3 || v.size() != 3 || q[2] % p.N != 0 ||
      v[2] % p.Nk != 0 || std::max(p.N, p.Nk) % std::min(p.N, p.Nk) != 0) {
    return Invalid(context, "heads do not fit");
  }
  p.B = q[0];
  p.S = q[1];
  p.D = q[2] / p.N;
  p.Dv = v[2] / p.Nk;
  p.out = std::max(p.N, p.Nk);
  p.keys = p.D == 0 ? 0 : k[2] / p.D;
  const std::string_view rule = StringAttribute(context, "update_rule", "gated_delta");
  p.decay = rule == "gated" || rule == "gated_delta";
  p.delta = rule == "delta" || rule == "gated_delta";
  if (!p.decay && !p.delta && rule != "linear") {
    return Invalid(context, fmt::format("update_rule \"{}\"", rule));
  }
  bool fits = p.keys > 0 && k == Shape({p.B, p.S, p.keys * p.D}) && p.Nk % p.keys == 0 &&
              v == Shape({p.B, p.S, p.Nk * p.Dv});
  if (p.decay) {
    fits = fits && HasInput(context, kDecay) &&
           (context.inputs[kDecay].shape == Shape({p.B, p.S, p.Nk}) ||
            context.inputs[kDecay].shape == Shape({p.B, p.S, p.Nk * p.D}));
  }
  if (p.delta) {
    fits = fits && HasInput(context, kBeta) &&
           (context.inputs[kBeta].shape == Shape({p.B, p.S, p.Nk}) ||
            context.inputs[kBeta].shape == Shape({p.B, p.S, 1}));
  }
  if (HasInput(context, kState)) {
    fits = fits && context.inputs[kState].shape == Shape({p.B, p.Nk, p.D, p.Dv});
  }
  if (!fits) return Invalid(context, "the inputs do not fit");
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    if (HasInput(context, i) && i != kState && context.inputs[i].type != context.inputs[kQ].type) {
      return Invalid(context, "inputs differ in type");
    }
  }
  return p;
}

absl::Status LinearShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const LinearPlan p, PlanLinear(context));
  const int32_t type = context.inputs[kQ].type;
  SetSpec(context, 0, type, {p.B, p.S, p.out * p.Dv});
  if (context.node.output_size() > 1) {
    SetSpec(context, 1, HasInput(context, kState) ? context.inputs[kState].type : type,
            {p.B, p.Nk, p.D, p.Dv});
  }
  return absl::OkStatus();
}

template <typename T>
class LinearRun {
 public:
  using C = Compute<T>;

  LinearRun(KernelContext& context, const LinearPlan& plan) : context_(context), p_(plan) {
    const float scale = FloatAttribute(context, "scale", 0);
    scale_ = scale != 0 ? static_cast<C>(scale) : 1 / std::sqrt(static_cast<C>(p_.D));
  }

  // Updates the state of head h of batch entry b, token by token.
  void Head(int64_t b, int64_t h, C* state) {
    ScratchScope scratch;
    C* change = scratch.Get<C>(p_.Dv);
    for (int64_t s = 0; s < p_.S; ++s) {
      const int64_t token = b * p_.S + s;
      const int64_t key_head = h * p_.keys / p_.Nk;
      const T* k = context_.inputs[kK].as<T>() + (token * p_.keys + key_head) * p_.D;
      const T* v = context_.inputs[kV].as<T>() + (token * p_.Nk + h) * p_.Dv;
      if (p_.decay) Decay(token, h, state);
      for (int64_t j = 0; j < p_.Dv; ++j) change[j] = Widen(v[j]);
      if (p_.delta) {
        for (int64_t j = 0; j < p_.Dv; ++j) {
          C seen = 0;
          for (int64_t d = 0; d < p_.D; ++d) seen += state[d * p_.Dv + j] * Widen(k[d]);
          change[j] = Beta(token, h) * (change[j] - seen);
        }
      }
      for (int64_t d = 0; d < p_.D; ++d) {
        for (int64_t j = 0; j < p_.Dv; ++j) state[d * p_.Dv + j] += Widen(k[d]) * change[j];
      }
      const int64_t group = std::max<int64_t>(1, p_.N / p_.Nk);
      for (int64_t g = 0; g < group; ++g) Read(token, h, g, state);
    }
  }

 private:
  void Decay(int64_t token, int64_t h, C* state) const {
    const View& decay = context_.inputs[kDecay];
    const bool per_key = decay.shape[2] != p_.Nk || p_.D == 1;
    for (int64_t d = 0; d < p_.D; ++d) {
      const int64_t at = per_key ? (token * p_.Nk + h) * p_.D + d : token * p_.Nk + h;
      const C factor = std::exp(Widen(decay.as<T>()[at]));
      for (int64_t j = 0; j < p_.Dv; ++j) state[d * p_.Dv + j] *= factor;
    }
  }
  C Beta(int64_t token, int64_t h) const {
    const View& beta = context_.inputs[kBeta];
    return Widen(beta.as<T>()[beta.shape[2] == 1 ? token : token * p_.Nk + h]);
  }
  // Computes the output of query head g of the state head's group.
  void Read(int64_t token, int64_t h, int64_t g, const C* state) {
    const int64_t query = p_.N >= p_.Nk ? h * (p_.N / p_.Nk) + g : h * p_.N / p_.Nk;
    const int64_t to = p_.N >= p_.Nk ? query : h;
    const T* q = context_.inputs[kQ].as<T>() + (token * p_.N + query) * p_.D;
    T* y = context_.outputs[0].as<T>() + (token * p_.out + to) * p_.Dv;
    for (int64_t j = 0; j < p_.Dv; ++j) {
      C sum = 0;
      for (int64_t d = 0; d < p_.D; ++d) sum += state[d * p_.Dv + j] * Widen(q[d]);
      y[j] = Narrow<T>(scale_ * sum);
    }
  }

  KernelContext& context_;
  const LinearPlan& p_;
  C scale_;
};

// T is the type of the inputs, S that of the state.
template <typename T, typename S>
void LinearTyped(KernelContext& context, const LinearPlan& p) {
  using C = Compute<T>;
  ScratchScope scratch;
  const int64_t size = p.D * p.Dv;
  C* state = scratch.Get<C>(size);
  LinearRun<T> run(context, p);
  for (int64_t i = 0; i < p.B * p.Nk; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      state[j] = HasInput(context, kState)
                     ? static_cast<C>(Widen(context.inputs[kState].as<S>()[i * size + j]))
                     : C{0};
    }
    run.Head(i / p.Nk, i % p.Nk, state);
    for (int64_t j = 0; WantsOutput(context, 1) && j < size; ++j) {
      context.outputs[1].as<S>()[i * size + j] = Narrow<S>(static_cast<Compute<S>>(state[j]));
    }
  }
}

absl::Status LinearCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const LinearPlan plan, PlanLinear(context));
  return VisitFloat(context.inputs[kQ].type, [&](auto tag) {
    const int32_t type =
        HasInput(context, kState) ? context.inputs[kState].type : context.inputs[kQ].type;
    return VisitFloat(type, [&](auto state) {
      LinearTyped<typename decltype(tag)::Type, typename decltype(state)::Type>(context, plan);
      return absl::OkStatus();
    });
  });
}

// LinearAttentionGate: decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b), with a and b
// [B, S, H] and one number per head, [H], in float32.
enum GateInput { kDecayGate, kGateBias, kDecayScale, kRateGate };

absl::Status GateShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View& a = context.inputs[kDecayGate];
  if (a.shape.size() != 3) return Invalid(context, "a must have rank 3");
  for (const GateInput heads : {kGateBias, kDecayScale}) {
    if (context.inputs[heads].type != onnx::TensorProto::FLOAT ||
        context.inputs[heads].shape != Shape({a.shape[2]})) {
      return Invalid(context, "dt_bias and decay_scale must be float32, one number per head");
    }
  }
  SetSpec(context, 0, a.type, a.shape);
  if (context.node.output_size() < 2) return absl::OkStatus();
  if (!HasInput(context, kRateGate) || context.inputs[kRateGate].type != a.type ||
      context.inputs[kRateGate].shape != a.shape) {
    return Invalid(context, "b does not fit a");
  }
  SetSpec(context, 1, a.type, a.shape);
  return absl::OkStatus();
}

absl::Status GateCompute(KernelContext& context) {
  const View& a = context.inputs[kDecayGate];
  const auto* bias = context.inputs[kGateBias].as<float>();
  const auto* scale = context.inputs[kDecayScale].as<float>();
  return VisitFloat(a.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t i = 0; i < a.size(); ++i) {
      const int64_t head = i % a.shape[2];
      const float x = static_cast<float>(Widen(a.as<T>()[i])) + bias[head];
      const float softplus = std::max(x, 0.0F) + std::log1p(std::exp(-std::fabs(x)));
      context.outputs[0].as<T>()[i] = Narrow<T>(static_cast<Compute<T>>(scale[head] * softplus));
      if (!WantsOutput(context, 1)) continue;
      const auto b = static_cast<float>(Widen(context.inputs[kRateGate].as<T>()[i]));
      context.outputs[1].as<T>()[i] = Narrow<T>(static_cast<Compute<T>>(1 / (1 + std::exp(-b))));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> StateOps() {
  static const OpDef ops[] = {
      {"", "CausalConvWithState", 27, CausalShape, CausalCompute},
      {"", "LinearAttention", 27, LinearShape, LinearCompute},
      {"com.microsoft", "CausalConvWithState", 1, CausalShape, CausalCompute},
      {"com.microsoft", "LinearAttention", 1, LinearShape, LinearCompute},
      {"com.microsoft", "LinearAttentionGate", 1, GateShape, GateCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
