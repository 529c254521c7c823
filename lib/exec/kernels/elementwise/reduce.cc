// Reductions over any axes (attribute or input). Sums along contiguous rows have the lane order of
// gemm_isa.h, all others the order of the reduced index.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

struct ReducePlan {
  bool identity = false;  // no axes and noop_with_empty_axes
  Shape out;              // as the node returns it
  // Kept and reduced dimensions with their strides in the input, outermost first, merged.
  Shape kept, reduced;
  absl::InlinedVector<int64_t, 6> kept_strides, reduced_strides;
  int64_t count = 1;  // elements of one reduction
};

void PushDim(Shape* dims, absl::InlinedVector<int64_t, 6>* strides, int64_t dim, int64_t stride) {
  if (dim == 1) return;
  if (!dims->empty() && strides->back() == dim * stride) {
    dims->back() *= dim;
    strides->back() = stride;
    return;
  }
  dims->push_back(dim);
  strides->push_back(stride);
}

// The reduction over all axes from 2 on, which are kept: GlobalAveragePool and GlobalMaxPool.
absl::StatusOr<ReducePlan> PlanPool(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const Shape& shape = context.inputs[0].shape;
  if (shape.size() < 3) return Invalid(context, fmt::format("rank {}", shape.size()));
  ReducePlan plan;
  for (size_t i = 2; i < shape.size(); ++i) plan.count *= shape[i];
  PushDim(&plan.reduced, &plan.reduced_strides, plan.count, 1);
  PushDim(&plan.kept, &plan.kept_strides, shape[0] * shape[1], plan.count);
  plan.out.assign(shape.size(), 1);
  std::copy_n(shape.begin(), 2, plan.out.begin());
  return plan;
}

absl::StatusOr<ReducePlan> PlanReduce(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const Shape& shape = context.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  absl::InlinedVector<int64_t, 6> axes;
  if (HasInput(context, 1)) {
    const View& view = context.inputs[1];
    if (view.type != onnx::TensorProto::INT64 || view.shape.size() != 1) {
      return Invalid(context, "axes must be a vector of int64");
    }
    if (!context.inputs_have_data) return Unsupported(context, "axes are not known");
    axes.assign(view.as<int64_t>(), view.as<int64_t>() + view.size());
  } else if (const onnx::AttributeProto* a = FindAttribute(context, "axes")) {
    axes.assign(a->ints().begin(), a->ints().end());
  }
  ReducePlan plan;
  plan.identity = axes.empty() && IntAttribute(context, "noop_with_empty_axes", 0) != 0;
  absl::InlinedVector<bool, 6> reduced(static_cast<size_t>(rank), axes.empty() && !plan.identity);
  for (int64_t axis : axes) {
    const int64_t normal = NormalAxis(axis, rank);
    if (normal < 0) return Invalid(context, fmt::format("axis {} of rank {}", axis, rank));
    reduced[static_cast<size_t>(normal)] = true;
  }
  const bool keep = IntAttribute(context, "keepdims", 1) != 0;
  absl::InlinedVector<int64_t, 6> strides(static_cast<size_t>(rank), 1);
  for (int64_t i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  for (int64_t i = 0; i < rank; ++i) {
    if (reduced[i]) {
      plan.count *= shape[i];
      PushDim(&plan.reduced, &plan.reduced_strides, shape[i], strides[i]);
      if (keep) plan.out.push_back(1);
    } else {
      PushDim(&plan.kept, &plan.kept_strides, shape[i], strides[i]);
      plan.out.push_back(shape[i]);
    }
  }
  return plan;
}

absl::Status ReduceShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(ReducePlan plan, PlanReduce(context));
  SetSpec(context, 0, context.inputs[0].type, std::move(plan.out));
  return absl::OkStatus();
}

absl::Status PoolShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(ReducePlan plan, PlanPool(context));
  SetSpec(context, 0, context.inputs[0].type, std::move(plan.out));
  return absl::OkStatus();
}

int64_t Offset(const Shape& dims, const absl::InlinedVector<int64_t, 6>& strides, int64_t flat) {
  int64_t offset = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    offset += flat % dims[i] * strides[i];
    flat /= dims[i];
  }
  return offset;
}

// Converts to an integer as Cast does: truncated and clamped; NaN becomes 0.
template <typename C>
C FromReal(double v) {
  using Limits = std::numeric_limits<C>;
  if (!(v > static_cast<double>(Limits::lowest()))) return std::isnan(v) ? 0 : Limits::lowest();
  return v >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<C>(v);
}

// Each reduction maps x[n] to a value; n may be 0.
struct SumOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      return Vectors<C>().sum(x, n);
    } else {
      uint64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(x[i]);
      return static_cast<C>(sum);
    }
  }
};
struct MeanOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_integral_v<C>) {
      if (n == 0) return 0;
    }
    return static_cast<C>(SumOf::Run(x, n) / static_cast<C>(n));
  }
};
struct SumSquareOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      return Vectors<C>().sum_squares(x, n);
    } else {
      uint64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<uint64_t>(x[i]) * static_cast<uint64_t>(x[i]);
      }
      return static_cast<C>(sum);
    }
  }
};
struct L2Of {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_integral_v<C>) {
      return FromReal<C>(std::sqrt(SumSquareOf::Run(x, n)));
    } else {
      return std::sqrt(SumSquareOf::Run(x, n));
    }
  }
};
struct L1Of {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      ScratchScope scratch;
      C* y = scratch.Get<C>(n);
      for (int64_t i = 0; i < n; ++i) y[i] = std::fabs(x[i]);
      return Vectors<C>().sum(y, n);
    } else {
      uint64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const auto v = static_cast<uint64_t>(x[i]);
        sum += x[i] < 0 ? 0 - v : v;
      }
      return static_cast<C>(sum);
    }
  }
};
struct LogSumOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_integral_v<C>) {
      return FromReal<C>(std::log(SumOf::Run(x, n)));
    } else {
      return std::log(SumOf::Run(x, n));
    }
  }
};
struct LogSumExpOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      const C highest = Vectors<C>().max(x, n);
      if (std::isinf(highest)) return highest;
      ScratchScope scratch;
      return highest + std::log(Vectors<C>().exp_sum(x, n, highest, scratch.Get<C>(n)));
    } else {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]));
      return FromReal<C>(std::log(sum));
    }
  }
};
struct ProdOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      C product = 1;
      for (int64_t i = 0; i < n; ++i) product *= x[i];
      return product;
    } else {
      uint64_t product = 1;
      for (int64_t i = 0; i < n; ++i) product *= static_cast<uint64_t>(x[i]);
      return static_cast<C>(product);
    }
  }
};
// The maximum of no elements is the lowest value of the type, the minimum the highest.
struct MaxOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    if constexpr (std::is_floating_point_v<C>) {
      return Vectors<C>().max(x, n);
    } else {
      C best = std::numeric_limits<C>::lowest();
      for (int64_t i = 0; i < n; ++i) best = std::max(best, x[i]);
      return best;
    }
  }
};
struct MinOf {
  template <typename C>
  static C Run(const C* x, int64_t n) {
    using Limits = std::numeric_limits<C>;
    C best = Limits::has_infinity ? Limits::infinity() : Limits::max();
    for (int64_t i = 0; i < n; ++i) {
      if (x[i] != x[i]) return x[i];
      best = x[i] < best ? x[i] : best;
    }
    return best;
  }
};

// `reduce` is called by address, so that these loops are compiled once for each type.
template <typename T>
void ReduceTyped(KernelContext& context, const ReducePlan& plan,
                 Compute<T> (*reduce)(const Compute<T>*, int64_t)) {
  using C = Compute<T>;
  const T* x = context.inputs[0].as<T>();
  T* y = context.outputs[0].as<T>();
  const bool contiguous =
      plan.reduced.empty() || (plan.reduced.size() == 1 && plan.reduced_strides[0] == 1);
  ParallelFor(context.threads, NumElements(plan.kept), 1,
              std::max<int64_t>(1, 32768 / (plan.count + 1)), [&](int64_t begin, int64_t end) {
                ScratchScope scratch;
                constexpr bool kCopy = kIsSmallFloat<T>;
                C* row = scratch.Get<C>(contiguous && !kCopy ? 1 : plan.count);
                for (int64_t i = begin; i < end; ++i) {
                  const T* in =  // an empty tensor has no data to point into
                      plan.count == 0 ? x : x + Offset(plan.kept, plan.kept_strides, i);
                  if (contiguous) {
                    if constexpr (kCopy) {
                      WidenArray(in, plan.count, row);
                      y[i] = Narrow<T>(reduce(row, plan.count));
                    } else {
                      y[i] = reduce(in, plan.count);
                    }
                    continue;
                  }
                  for (int64_t j = 0; j < plan.count; ++j) {
                    row[j] = Widen(in[Offset(plan.reduced, plan.reduced_strides, j)]);
                  }
                  y[i] = Narrow<T>(reduce(row, plan.count));
                }
              });
}

template <typename F>
absl::Status Reduce(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(ReducePlan plan, PlanReduce(context));
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  if (context.inputs[0].type == onnx::TensorProto::BOOL) {
    if constexpr (std::is_same_v<F, MaxOf> || std::is_same_v<F, MinOf>) {
      ReduceTyped<uint8_t>(context, plan, &F::template Run<uint8_t>);
      // The maximum of no elements is false, the minimum true.
      for (uint8_t& b : context.outputs[0].span<uint8_t>()) b = b != 0;
      return absl::OkStatus();
    }
  }
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (plan.identity &&
        (std::is_same_v<F, SumOf> || std::is_same_v<F, MeanOf> || std::is_same_v<F, ProdOf> ||
         std::is_same_v<F, MaxOf> || std::is_same_v<F, MinOf>)) {
      std::copy_n(context.inputs[0].as<T>(), context.inputs[0].size(), context.outputs[0].as<T>());
    } else {
      ReduceTyped<T>(context, plan, &F::template Run<Compute<T>>);
    }
    return absl::OkStatus();
  });
}

template <typename F>
absl::Status Pool(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const ReducePlan plan, PlanPool(context));
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ReduceTyped<T>(context, plan, &F::template Run<Compute<T>>);
    return absl::OkStatus();
  });
}

template <typename F>
constexpr OpDef Reduction(std::string_view name) {
  return {"", name, 1, ReduceShape, Reduce<F>};
}

}  // namespace

absl::Span<const OpDef> ReduceOps() {
  static const OpDef ops[] = {
      Reduction<L1Of>("ReduceL1"),
      Reduction<L2Of>("ReduceL2"),
      Reduction<LogSumOf>("ReduceLogSum"),
      Reduction<LogSumExpOf>("ReduceLogSumExp"),
      Reduction<MaxOf>("ReduceMax"),
      Reduction<MeanOf>("ReduceMean"),
      Reduction<MinOf>("ReduceMin"),
      Reduction<ProdOf>("ReduceProd"),
      Reduction<SumOf>("ReduceSum"),
      Reduction<SumSquareOf>("ReduceSumSquare"),
      {"", "GlobalAveragePool", 1, PoolShape, Pool<MeanOf>},
      {"", "GlobalMaxPool", 1, PoolShape, Pool<MaxOf>},
  };
  return ops;
}

}  // namespace kvlift::exec
