// BitShift and the bitwise operators on integers.
#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/elementwise.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

template <typename F>
absl::Status VisitIntegers(const KernelContext& context, const F& f) {
  return VisitNumeric(context.inputs[0].type, [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_integral_v<T>) {
      f(tag);
      return absl::OkStatus();
    } else {
      return Invalid(context, "operands must be integers");
    }
  });
}

struct AndFn {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct OrFn {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct XorFn {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
// A shift by the width of the type or more leaves 0 (or the sign).
template <bool kLeft>
struct ShiftFn {
  template <typename T>
  T operator()(T a, T b) const {
    const auto by = static_cast<uint64_t>(b);
    if (by >= 8 * sizeof(T)) return !kLeft && a < T{0} ? static_cast<T>(-1) : T{0};
    return kLeft ? static_cast<T>(static_cast<uint64_t>(a) << by) : static_cast<T>(a >> by);
  }
};

template <typename F>
absl::Status BinaryInteger(KernelContext& context) {
  return VisitIntegers(context, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapBinary<T, T, T>(context, F());
  });
}

absl::Status Shift(KernelContext& context) {
  const std::string_view direction = StringAttribute(context, "direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return Invalid(context, fmt::format("direction \"{}\"", direction));
  }
  return direction == "LEFT" ? BinaryInteger<ShiftFn<true>>(context)
                             : BinaryInteger<ShiftFn<false>>(context);
}

absl::Status BitwiseNot(KernelContext& context) {
  return VisitIntegers(context, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapUnary<T>(context, [](T x) { return static_cast<T>(~x); });
  });
}

}  // namespace

absl::Span<const OpDef> BitwiseOps() {
  static const OpDef ops[] = {
      {"", "BitShift", 11, BroadcastInputs, Shift, ViewKind::kNone, 0},
      {"", "BitwiseAnd", 18, BroadcastInputs, BinaryInteger<AndFn>, ViewKind::kNone, 0},
      {"", "BitwiseNot", 18, SameAsInput, BitwiseNot, ViewKind::kNone, 0},
      {"", "BitwiseOr", 18, BroadcastInputs, BinaryInteger<OrFn>, ViewKind::kNone, 0},
      {"", "BitwiseXor", 18, BroadcastInputs, BinaryInteger<XorFn>, ViewKind::kNone, 0},
  };
  return ops;
}

}  // namespace kvlift::exec
