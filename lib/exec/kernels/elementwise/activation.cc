// Activation functions, Relu and Clip, and the com.microsoft variants of Gelu.
#include <cmath>
#include <limits>

#include "base/status.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/elementwise.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

template <typename MakeFn>
absl::Status FloatMap(KernelContext& context, MakeFn make) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapUnary<T>(context, make(Compute<T>{}));
    return absl::OkStatus();
  });
}

absl::Status Relu(KernelContext& context) {
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    MapUnary<T>(context, [](C x) { return x > C{0} || x != x ? x : C{0}; });
    return absl::OkStatus();
  });
}

absl::Status ClipShape(KernelContext& context) {
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (HasInput(context, i) &&
        (context.inputs[i].type != context.inputs[0].type || context.inputs[i].size() != 1)) {
      return Invalid(context, "a bound must be a scalar of the input's type");
    }
  }
  return SameAsInput(context);
}

// The bounds are inputs since opset 11, attributes before.
absl::Status Clip(KernelContext& context) {
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    using Limits = std::numeric_limits<C>;
    C low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    C high = Limits::has_infinity ? Limits::infinity() : Limits::max();
    if (FindAttribute(context, "min") != nullptr) {
      low = static_cast<C>(FloatAttribute(context, "min", 0));
    }
    if (FindAttribute(context, "max") != nullptr) {
      high = static_cast<C>(FloatAttribute(context, "max", 0));
    }
    if (HasInput(context, 1)) low = Widen(context.inputs[1].as<T>()[0]);
    if (HasInput(context, 2)) high = Widen(context.inputs[2].as<T>()[0]);
    MapUnary<T>(context, [low, high](C x) {
      x = x < low ? low : x;
      return x > high ? high : x;
    });
    return absl::OkStatus();
  });
}

absl::Status Gelu(KernelContext& context) {
  const bool tanh = StringAttribute(context, "approximate", "none") == "tanh";
  return FloatMap(context, [tanh](auto zero) {
    using C = decltype(zero);
    return [tanh](C x) {
      if (!tanh) return C(0.5) * (x * (C{1} + std::erf(x / C(1.4142135623730951))));
      const C inner = C(0.7978845608028654) * (x + C(0.044715) * (x * x * x));
      return C(0.5) * (x * (C{1} + std::tanh(inner)));
    };
  });
}

// Gelu of x + bias: by tanh (FastGelu) or by erf (BiasGelu).
template <bool kTanh>
absl::Status GeluOfSum(KernelContext& context) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    const T* x = context.inputs[0].as<T>();
    T* y = context.outputs[0].as<T>();
    const T* bias = HasInput(context, 1) ? context.inputs[1].as<T>() : nullptr;
    const int64_t width = bias != nullptr ? context.inputs[1].size() : 1;
    for (int64_t i = 0; i < context.inputs[0].size(); ++i) {
      const C v = Widen(x[i]) + (bias != nullptr ? Widen(bias[i % width]) : C{0});
      const C inner = C(0.7978845608028654) * (v + C(0.044715) * (v * v * v));
      const C half = kTanh ? std::tanh(inner) : std::erf(v / C(1.4142135623730951));
      y[i] = Narrow<T>(C(0.5) * (v * (C{1} + half)));
    }
    return absl::OkStatus();
  });
}

absl::Status GeluOfSumShape(KernelContext& context) {
  if (HasInput(context, 1) && (context.inputs[0].shape.empty() || context.inputs[1].size() == 0 ||
                               context.inputs[1].type != context.inputs[0].type ||
                               context.inputs[1].size() != context.inputs[0].shape.back())) {
    return Invalid(context, "bias does not fit the last dimension");
  }
  return SameAsInput(context);
}

// x * sigmoid(alpha x). Product and sigmoid are rounded as by Mul and Sigmoid in float.
absl::Status SwishWith(KernelContext& context, float alpha) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    MapArrays<T>(context, [alpha](const C* x, int64_t n, C* y) {
      constexpr int64_t kPiece = 512;
      C gate[kPiece];
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t m = std::min(kPiece, n - i);
        for (int64_t j = 0; j < m; ++j) gate[j] = static_cast<C>(alpha) * x[i + j];
        Vectors<C>().sigmoid(gate, m, gate);
        for (int64_t j = 0; j < m; ++j) y[i + j] = x[i + j] * gate[j];
      }
    });
    return absl::OkStatus();
  });
}

absl::Status Swish(KernelContext& context) {
  return SwishWith(context, FloatAttribute(context, "alpha", 1));
}
absl::Status QuickGelu(KernelContext& context) {
  return SwishWith(context, FloatAttribute(context, "alpha", 1.702f));
}

// Returns log(1 + exp(x)) without overflow.
template <typename C>
C SoftplusOf(C x) {
  return std::max(x, C{0}) + std::log1p(std::exp(-std::fabs(x)));
}

absl::Status Softplus(KernelContext& context) {
  return FloatMap(context, [](auto zero) {
    using C = decltype(zero);
    return [](C x) { return std::isnan(x) ? x : SoftplusOf(x); };
  });
}

absl::Status Mish(KernelContext& context) {
  return FloatMap(context, [](auto zero) {
    using C = decltype(zero);
    return [](C x) { return x * std::tanh(SoftplusOf(x)); };
  });
}

absl::Status Softsign(KernelContext& context) {
  return FloatMap(context, [](auto zero) {
    using C = decltype(zero);
    return [](C x) { return x / (C{1} + std::fabs(x)); };
  });
}

template <typename C>
C HardSigmoidOf(C x, C alpha, C beta) {
  return std::max(C{0}, std::min(C{1}, alpha * x + beta));
}

absl::Status HardSigmoid(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 0.2f);
  const float beta = FloatAttribute(context, "beta", 0.5f);
  return FloatMap(context, [alpha, beta](auto zero) {
    using C = decltype(zero);
    return [alpha, beta](C x) { return HardSigmoidOf<C>(x, alpha, beta); };
  });
}

absl::Status HardSwish(KernelContext& context) {
  return FloatMap(context, [](auto zero) {
    using C = decltype(zero);
    return [](C x) { return x * HardSigmoidOf<C>(x, C(1) / C(6), C(0.5)); };
  });
}

// Maps x to `negative`(x) if x is negative, else to x.
template <typename Negative>
absl::Status Halves(KernelContext& context, Negative negative) {
  return FloatMap(context, [negative](auto zero) {
    using C = decltype(zero);
    return [negative](C x) { return x < C{0} ? negative(x) : x; };
  });
}

absl::Status LeakyRelu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 0.01f);
  return Halves(context, [alpha](auto x) { return static_cast<decltype(x)>(alpha) * x; });
}

absl::Status Elu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 1);
  return Halves(context,
                [alpha](auto x) { return static_cast<decltype(x)>(alpha) * std::expm1(x); });
}

absl::Status Celu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 1);
  return Halves(context, [alpha](auto x) {
    const auto a = static_cast<decltype(x)>(alpha);
    return a * std::expm1(x / a);
  });
}

absl::Status Selu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 1.67326319217681884765625f);
  const float gamma = FloatAttribute(context, "gamma", 1.05070102214813232421875f);
  return FloatMap(context, [alpha, gamma](auto zero) {
    using C = decltype(zero);
    return [alpha, gamma](C x) {
      return static_cast<C>(gamma) * (x > 0 ? x : static_cast<C>(alpha) * std::expm1(x));
    };
  });
}

absl::Status Shrink(KernelContext& context) {
  const float bias = FloatAttribute(context, "bias", 0);
  const float lambda = FloatAttribute(context, "lambd", 0.5f);
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    MapUnary<T>(context, [bias, lambda](C x) {
      const auto wide = static_cast<double>(x);
      if (wide < -lambda) return static_cast<C>(wide + bias);
      return wide > lambda ? static_cast<C>(wide - bias) : C{0};
    });
    return absl::OkStatus();
  });
}

absl::Status ThresholdedRelu(KernelContext& context) {
  const float alpha = FloatAttribute(context, "alpha", 1);
  return FloatMap(context, [alpha](auto zero) {
    using C = decltype(zero);
    return [alpha](C x) { return x > static_cast<C>(alpha) ? x : C{0}; };
  });
}

constexpr OpDef Map(std::string_view name, int version, KernelFn compute,
                    std::string_view domain = "") {
  return {domain, name, version, SameAsInput, compute, ViewKind::kNone, 0};
}

}  // namespace

absl::Span<const OpDef> ActivationOps() {
  static const OpDef ops[] = {
      Map("Celu", 12, Celu),
      {"", "Clip", 6, ClipShape, Clip, ViewKind::kNone, 0},
      Map("Elu", 6, Elu),
      Map("Gelu", 20, Gelu),
      Map("HardSigmoid", 6, HardSigmoid),
      Map("HardSwish", 14, HardSwish),
      Map("LeakyRelu", 6, LeakyRelu),
      Map("Mish", 18, Mish),
      Map("Relu", 6, Relu),
      Map("Selu", 6, Selu),
      Map("Shrink", 9, Shrink),
      Map("Softplus", 1, Softplus),
      Map("Softsign", 1, Softsign),
      Map("Swish", 24, Swish),
      Map("ThresholdedRelu", 10, ThresholdedRelu),
      {"com.microsoft", "BiasGelu", 1, GeluOfSumShape, GeluOfSum<false>, ViewKind::kNone, 0},
      {"com.microsoft", "FastGelu", 1, GeluOfSumShape, GeluOfSum<true>, ViewKind::kNone, 0},
      Map("Gelu", 1, Gelu, "com.microsoft"),
      Map("QuickGelu", 1, QuickGelu, "com.microsoft"),
  };
  return ops;
}

}  // namespace kvlift::exec
