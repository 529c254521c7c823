#include "exec/kernels/elementwise/elementwise_binary.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "exec/kernels/elementwise/elementwise.h"
#include "exec/memory/scratch.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

// Integer arithmetic wraps around.
struct AddFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
struct SubFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    } else {
      return a - b;
    }
  }
};
struct MulFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct DivFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
      if (b == -1) return SubFn()(T{0}, a);
    }
    return static_cast<T>(a / b);
  }
};
// The result has the sign of the divisor.
struct FloorModFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T r = std::fmod(a, b);
      if (r == 0) return std::copysign(r, b);
      return (r < 0) != (b < 0) ? r + b : r;
    } else if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
      const T r = static_cast<T>(a % b);
      return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
    } else {
      return static_cast<T>(a % b);
    }
  }
};
// The result has the sign of the dividend.
struct TruncatedModFn {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    }
  }
};
struct PReluFn {
  template <typename T>
  T operator()(T x, T slope) const {
    return x < 0 ? MulFn()(x, slope) : x;
  }
};
// The result is NaN if either operand is NaN.
struct MaxFn {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct MinFn {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

// A visitor of the type that both operands and the result have.
template <typename F>
struct MapPairs {
  KernelContext& context;

  template <typename T>
  absl::Status operator()(TypeTag<T> /*tag*/) const {
    MapBinary<T, T, T>(context, F());
    return absl::OkStatus();
  }
};

template <typename F>
absl::Status Binary(KernelContext& context) {
  return VisitNumeric(context.inputs[0].type, MapPairs<F>{context});
}

// Returns the unsigned type of as many bits: sums and products that wrap around have the same bits.
int32_t WithoutSign(int32_t type) {
  switch (type) {
    case TensorProto::INT8:
      return TensorProto::UINT8;
    case TensorProto::INT16:
      return TensorProto::UINT16;
    case TensorProto::INT32:
      return TensorProto::UINT32;
    case TensorProto::INT64:
      return TensorProto::UINT64;
    default:
      return type;
  }
}

template <typename Visitor>
absl::Status VisitWrapping(int32_t type, Visitor visit) {
  switch (WithoutSign(type)) {
    case TensorProto::UINT8:
      return visit(TypeTag<uint8_t>());
    case TensorProto::UINT16:
      return visit(TypeTag<uint16_t>());
    case TensorProto::UINT32:
      return visit(TypeTag<uint32_t>());
    case TensorProto::UINT64:
      return visit(TypeTag<uint64_t>());
    default:
      return VisitFloat(type, visit);
  }
}

template <typename F>
absl::Status Wrapping(KernelContext& context) {
  return VisitWrapping(context.inputs[0].type, MapPairs<F>{context});
}

// Returns InvalidArgument if an integer divisor is 0 and used.
absl::Status CheckDivisor(const KernelContext& context) {
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  return VisitNumeric(context.inputs[1].type, [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_integral_v<T>) {
      for (T x : context.inputs[1].span<T>()) {
        if (x == 0) return Invalid(context, "integer division by zero");
      }
    }
    return absl::OkStatus();
  });
}

// Returns base^exponent in the base's type. Integer bases with integer exponents are exact and wrap
// around.
template <typename C, typename E>
C Power(C base, E exponent) {
  if constexpr (std::is_floating_point_v<C>) {
    const C e = static_cast<C>(exponent);
    if (e == 2) return base * base;
    if (e == C(0.5)) return std::sqrt(base);
    if (e == 1) return base;
    if (e == -1) return C{1} / base;
    return static_cast<C>(std::pow(base, e));
  } else if constexpr (std::is_integral_v<E>) {
    if constexpr (std::is_signed_v<E>) {
      if (exponent < 0) {
        if (base == 1) return 1;
        if constexpr (std::is_signed_v<C>) {
          if (base == -1) return exponent % 2 == 0 ? C{1} : static_cast<C>(-1);
        }
        return 0;
      }
    }
    uint64_t result = 1, factor = static_cast<uint64_t>(base);
    for (auto e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
      if (e & 1) result *= factor;
      factor *= factor;
    }
    return static_cast<C>(result);
  } else {
    return static_cast<C>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
}

// Makes float64, uint64 or int64 of exponents of any type, which changes none of them, so that not
// every type of bases is compiled with every type of exponents.
absl::Status WidenExponents(ScratchScope& scratch, View* exponents) {
  const View narrow = *exponents;
  return VisitNumeric(narrow.type, [&](auto tag) {
    using E = typename decltype(tag)::Type;
    using Wide =
        std::conditional_t<!std::is_integral_v<E>, double,
                           std::conditional_t<std::is_same_v<E, uint64_t>, uint64_t, int64_t>>;
    exponents->type = !std::is_integral_v<E>        ? TensorProto::DOUBLE
                      : std::is_same_v<E, uint64_t> ? TensorProto::UINT64
                                                    : TensorProto::INT64;
    if constexpr (!std::is_same_v<E, Wide>) {
      Wide* wide = scratch.Get<Wide>(narrow.size());
      for (const E& e : narrow.span<E>()) *wide++ = static_cast<Wide>(Widen(e));
      exponents->data = reinterpret_cast<std::byte*>(wide - narrow.size());
    }
    return absl::OkStatus();
  });
}

template <typename A, typename E>
absl::Status RaiseTo(KernelContext& context) {
  MapBinary<A, E, A>(context, [](Compute<A> a, Compute<E> e) -> Compute<A> { return Power(a, e); });
  return absl::OkStatus();
}

// Calls f with the range and the strides of all operands, in elements of the output's shape.
using Strides = std::vector<absl::InlinedVector<int64_t, 6>>;
void ForRanges(KernelContext& context,
               absl::FunctionRef<void(int64_t begin, int64_t end, const Strides& strides)> f) {
  const Shape& out = context.outputs[0].shape;
  Strides strides;
  for (const View& input : context.inputs) strides.push_back(BroadcastStrides(input.shape, out));
  ParallelFor(context.threads, context.outputs[0].size(), 64, kMapPerThread,
              [&](int64_t begin, int64_t end) { f(begin, end, strides); });
}

int64_t OffsetOf(int64_t flat, const Shape& shape, const Strides::value_type& strides) {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0;) {
    offset += flat % shape[d] * strides[d];
    flat /= shape[d];
  }
  return offset;
}

// Folds all operands at once with `fold`, in the compute type, then applies `finish`.
template <typename T, typename Fold, typename Finish>
void MapAll(KernelContext& context, Fold fold, Finish finish) {
  const Shape& out = context.outputs[0].shape;
  const auto inputs = context.inputs;
  T* y = context.outputs[0].as<T>();
  ForRanges(context, [&](int64_t begin, int64_t end, const Strides& strides) {
    for (int64_t flat = begin; flat < end; ++flat) {
      Compute<T> acc{};
      for (size_t k = 0; k < inputs.size(); ++k) {
        const Compute<T> x = Widen(inputs[k].as<T>()[OffsetOf(flat, out, strides[k])]);
        acc = k == 0 ? x : fold(acc, x);
      }
      y[flat] = Narrow<T>(finish(acc));
    }
  });
}

template <typename F>
absl::Status Variadic(KernelContext& context) {
  if (context.inputs.size() == 2) return Binary<F>(context);
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapAll<T>(context, F(), [](auto x) { return x; });
    return absl::OkStatus();
  });
}

absl::Status SumAll(KernelContext& context) {
  return VisitWrapping(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapAll<T>(context, AddFn(), [](auto x) { return x; });
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status AddKernel(KernelContext& context) { return Wrapping<AddFn>(context); }
absl::Status SubKernel(KernelContext& context) { return Wrapping<SubFn>(context); }
absl::Status MulKernel(KernelContext& context) { return Wrapping<MulFn>(context); }
absl::Status PReluKernel(KernelContext& context) { return Binary<PReluFn>(context); }
absl::Status MaxKernel(KernelContext& context) { return Variadic<MaxFn>(context); }
absl::Status MinKernel(KernelContext& context) { return Variadic<MinFn>(context); }
absl::Status SumKernel(KernelContext& context) {
  return context.inputs.size() == 2 ? AddKernel(context) : SumAll(context);
}

absl::Status MeanKernel(KernelContext& context) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto count = static_cast<Compute<T>>(context.inputs.size());
    MapAll<T>(context, AddFn(), [count](Compute<T> x) { return x / count; });
    return absl::OkStatus();
  });
}

absl::Status DivKernel(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckDivisor(context));
  return Binary<DivFn>(context);
}

absl::Status ModKernel(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckDivisor(context));
  return IntAttribute(context, "fmod", 0) != 0 ? Binary<TruncatedModFn>(context)
                                               : Binary<FloorModFn>(context);
}

float PowerOf(float base, float exponent) { return Power(base, exponent); }

absl::Status PowKernel(KernelContext& context) {
  ScratchScope scratch;
  View exponents = context.inputs[1];
  if (exponents.type != context.inputs[0].type) {
    KV_RETURN_IF_ERROR(WidenExponents(scratch, &exponents));
  }
  const View inputs[] = {context.inputs[0], exponents};
  KernelContext widened = context;
  widened.inputs = inputs;
  return VisitNumeric(inputs[0].type, [&](auto base) {
    using A = typename decltype(base)::Type;
    if (exponents.type == inputs[0].type) return RaiseTo<A, A>(widened);
    if (exponents.type == TensorProto::DOUBLE) return RaiseTo<A, double>(widened);
    return exponents.type == TensorProto::UINT64 ? RaiseTo<A, uint64_t>(widened)
                                                 : RaiseTo<A, int64_t>(widened);
  });
}

}  // namespace kvlift::exec
