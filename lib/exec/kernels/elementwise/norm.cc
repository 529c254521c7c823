// LayerNormalization, RMSNormalization, SimplifiedLayerNormalization and their variants of
// com.microsoft. A row of float16 or bfloat16 is computed in float and rounded once.
#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

struct NormPlan {
  int64_t rows = 1, width = 1;
  Shape statistics;  // shape of the optional Mean and InvStdDev outputs
};

absl::StatusOr<NormPlan> PlanNorm(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const Shape& shape = context.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t axis = NormalAxis(IntAttribute(context, "axis", -1), rank);
  if (axis < 0) return Invalid(context, "axis is out of range");
  NormPlan plan;
  for (int64_t i = 0; i < rank; ++i) {
    (i < axis ? plan.rows : plan.width) *= shape[i];
    plan.statistics.push_back(i < axis ? shape[i] : 1);
  }
  for (size_t i = 1; i < context.inputs.size() && i < 3; ++i) {
    if (!HasInput(context, i)) continue;
    Shape out;
    if (!BroadcastShapes(context.inputs[i].shape, shape, &out) || out != shape) {
      return Invalid(context,
                     fmt::format("input {} {} does not broadcast to {}", i,
                                 ShapeString(context.inputs[i].shape), ShapeString(shape)));
    }
  }
  return plan;
}

absl::Status NormShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const NormPlan plan, PlanNorm(context));
  SetSpec(context, 0, context.inputs[1].type, context.inputs[0].shape);
  const int32_t statistics = context.inputs[0].type == onnx::TensorProto::DOUBLE
                                 ? onnx::TensorProto::DOUBLE
                                 : onnx::TensorProto::FLOAT;
  for (int i = 1; i < context.node.output_size(); ++i) {
    SetSpec(context, static_cast<size_t>(i), statistics, plan.statistics);
  }
  return absl::OkStatus();
}

// The elements of scale or bias for each element of a row, in the compute type; usually one fixed
// row.
template <typename T>
class RowOperand {
 public:
  using C = Compute<T>;
  RowOperand(const View& view, const View& x, int64_t width, ScratchScope& scratch)
      : view_(view), x_(x), width_(width), row_(scratch.Get<C>(width)) {
    fixed_ = NumElements(view.shape) == width || NumElements(view.shape) == 1;
    if (fixed_) Load(0);
  }
  const C* Row(int64_t row) {
    if (!fixed_) Load(row);
    return row_;
  }

 private:
  void Load(int64_t row) {
    const auto strides = BroadcastStrides(view_.shape, x_.shape);
    for (int64_t i = 0; i < width_; ++i) {
      int64_t rest = row * width_ + i, offset = 0;
      for (size_t d = x_.shape.size(); d-- > 0;) {
        offset += rest % x_.shape[d] * strides[d];
        rest /= x_.shape[d];
      }
      row_[i] = Widen(view_.as<T>()[offset]);
    }
  }
  const View& view_;
  const View& x_;
  int64_t width_;
  C* row_;
  bool fixed_;
};

template <typename C>
void StoreStatistic(KernelContext& context, size_t output, int64_t row, C value) {
  if (!WantsOutput(context, output)) return;
  const View& view = context.outputs[output];
  if (view.type == onnx::TensorProto::DOUBLE) {
    view.as<double>()[row] = value;
  } else {
    view.as<float>()[row] = static_cast<float>(value);
  }
}

// T is the type of X, S that of scale, bias and Y. Sums are those of ReduceMean over the row.
template <typename T, typename S>
void NormTyped(KernelContext& context, const NormPlan& plan, bool center) {
  using C = Compute<T>;
  const T* x = context.inputs[0].as<T>();
  S* y = context.outputs[0].as<S>();
  const C epsilon = FloatAttribute(context, "epsilon", 1e-5f);
  const C width = static_cast<C>(plan.width);
  const VectorOps<C>& ops = Vectors<C>();
  ParallelFor(context.threads, plan.rows, 1, std::max<int64_t>(1, 16384 / (plan.width + 1)),
              [&](int64_t begin, int64_t end) {
                ScratchScope scratch;
                RowOperand<S> scale(context.inputs[1], context.inputs[0], plan.width, scratch);
                const bool has_bias = HasInput(context, 2);
                RowOperand<S> bias(context.inputs[has_bias ? 2 : 1], context.inputs[0], plan.width,
                                   scratch);
                C* row = scratch.Get<C>(plan.width);
                Compute<S>* result = scratch.Get<Compute<S>>(plan.width);
                for (int64_t r = begin; r < end; ++r) {
                  WidenArray(x + r * plan.width, plan.width, row);
                  C mean = 0, variance;
                  if (center) {
                    mean = ops.sum(row, plan.width) / width;
                    variance = ops.sum_centered_squares(row, plan.width, mean) / width;
                  } else {
                    variance = ops.sum_squares(row, plan.width) / width;
                  }
                  const C deviation = std::sqrt(variance + epsilon);
                  const auto* g = scale.Row(r);
                  const auto* b = has_bias ? bias.Row(r) : nullptr;
                  for (int64_t i = 0; i < plan.width; ++i) {
                    const C normal = (row[i] - mean) / deviation;
                    result[i] = static_cast<Compute<S>>(normal) * g[i];
                    if (b != nullptr) result[i] += b[i];
                  }
                  NarrowArray(result, plan.width, y + r * plan.width);
                  if (center) StoreStatistic(context, 1, r, mean);
                  StoreStatistic(context, center ? 2 : 1, r, C{1} / deviation);
                }
              });
}

absl::Status ComputeNorm(KernelContext& context, bool center) {
  KV_ASSIGN_OR_RETURN(const NormPlan plan, PlanNorm(context));
  if (plan.rows * plan.width == 0) return absl::OkStatus();
  return VisitFloat(context.inputs[0].type, [&](auto x) {
    return VisitFloat(context.inputs[1].type, [&](auto scale) {
      NormTyped<typename decltype(x)::Type, typename decltype(scale)::Type>(context, plan, center);
      return absl::OkStatus();
    });
  });
}

absl::Status LayerNorm(KernelContext& context) { return ComputeNorm(context, true); }
absl::Status RmsNorm(KernelContext& context) { return ComputeNorm(context, false); }

// com.microsoft: inputs are input, skip, gamma, [beta if centred], [bias]; outputs are Y, the mean,
// the inverse deviation, and the sum of input, skip and bias.
template <bool kCenter>
absl::Status SkipShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View& x = context.inputs[0];
  const View& skip = context.inputs[1];
  if (x.shape.empty() || skip.type != x.type || context.inputs[2].type != x.type ||
      context.inputs[2].size() != x.shape.back()) {
    return Invalid(context, "gamma does not fit the last dimension");
  }
  for (const size_t i : {3, 4}) {
    if (HasInput(context, i) && (context.inputs[i].type != x.type || (!kCenter && i == 4) ||
                                 context.inputs[i].size() != x.shape.back())) {
      return Invalid(context, "beta or bias does not fit the last dimension");
    }
  }
  Shape out;
  if (!BroadcastShapes(skip.shape, x.shape, &out) || out != x.shape) {
    return Invalid(context, "skip does not broadcast to the input");
  }
  SetSpec(context, 0, x.type, x.shape);
  for (int i = 1; i < context.node.output_size(); ++i) {
    if (i == 3) {
      SetSpec(context, 3, x.type, x.shape);
    } else {
      Shape statistics = x.shape;
      statistics.back() = 1;
      SetSpec(context, static_cast<size_t>(i), onnx::TensorProto::FLOAT, statistics);
    }
  }
  return absl::OkStatus();
}

template <bool kCenter>
absl::Status SkipNorm(KernelContext& context) {
  constexpr size_t kBias = kCenter ? 4 : 3;
  const View& x = context.inputs[0];
  const int64_t width = x.shape.back(), rows = width == 0 ? 0 : x.size() / width;
  return VisitFloat(x.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    const C epsilon = FloatAttribute(context, "epsilon", kCenter ? 1e-12f : 1e-5f);
    const auto strides = BroadcastStrides(context.inputs[1].shape, x.shape);
    const T* gamma = context.inputs[2].as<T>();
    const T* beta = kCenter && HasInput(context, 3) ? context.inputs[3].as<T>() : nullptr;
    const T* bias = HasInput(context, kBias) ? context.inputs[kBias].as<T>() : nullptr;
    ScratchScope scratch;
    C* sum = scratch.Get<C>(width);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        int64_t rest = r * width + i, offset = 0;
        for (size_t d = x.shape.size(); d-- > 0;) {
          offset += rest % x.shape[d] * strides[d];
          rest /= x.shape[d];
        }
        sum[i] = Widen(x.as<T>()[r * width + i]) + Widen(context.inputs[1].as<T>()[offset]);
        if (bias != nullptr) sum[i] += Widen(bias[i]);
      }
      if (WantsOutput(context, 3)) NarrowArray(sum, width, context.outputs[3].as<T>() + r * width);
      const C size = static_cast<C>(width);
      const C mean = kCenter ? Vectors<C>().sum(sum, width) / size : C{0};
      const C squares = kCenter ? Vectors<C>().sum_centered_squares(sum, width, mean)
                                : Vectors<C>().sum_squares(sum, width);
      const C deviation = std::sqrt(squares / size + epsilon);
      for (int64_t i = 0; i < width; ++i) {
        C y = (sum[i] - mean) / deviation * Widen(gamma[i]);
        if (beta != nullptr) y += Widen(beta[i]);
        context.outputs[0].as<T>()[r * width + i] = Narrow<T>(y);
      }
      if (kCenter) StoreStatistic(context, 1, r, mean);
      StoreStatistic(context, 2, r, C{1} / deviation);
    }
    return absl::OkStatus();
  });
}

// GatedRMSNorm: X * scale / rms(X) * g, where g is z * sigmoid(z) or sigmoid(z) of the gate z. The
// mean of squares is that of each group of C elements, the size of scale.
absl::Status GatedShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View &x = context.inputs[0], &scale = context.inputs[1], &gate = context.inputs[2];
  if (gate.shape != x.shape || gate.type != x.type || scale.shape.size() != 1 ||
      scale.shape[0] < 1 || x.shape.empty() || x.shape.back() % scale.shape[0] != 0) {
    return Invalid(context, "scale or gate does not fit X");
  }
  SetSpec(context, 0, x.type, x.shape);
  return absl::OkStatus();
}

template <typename S>
void GatedNorm(KernelContext& context, bool silu) {
  const View &x = context.inputs[0], &gate = context.inputs[2];
  const S* scale = context.inputs[1].as<S>();
  const int64_t width = context.inputs[1].shape[0];
  const float epsilon = FloatAttribute(context, "epsilon", 1e-5f);
  VisitFloat(x.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t row = 0; row < x.size(); row += width) {
      float squares = 0;
      for (int64_t i = row; i < row + width; ++i) {
        const auto value = static_cast<float>(Widen(x.as<T>()[i]));
        squares += value * value;
      }
      const float deviation = std::sqrt(squares / static_cast<float>(width) + epsilon);
      for (int64_t i = row; i < row + width; ++i) {
        const auto z = static_cast<float>(Widen(gate.as<T>()[i]));
        const float open = 1 / (1 + std::exp(-z));
        const float y = static_cast<float>(Widen(x.as<T>()[i])) / deviation *
                        static_cast<float>(Widen(scale[i - row]));
        context.outputs[0].as<T>()[i] =
            Narrow<T>(static_cast<Compute<T>>(y * (silu ? z * open : open)));
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status GatedCompute(KernelContext& context) {
  const std::string_view activation = StringAttribute(context, "activation", "silu");
  const bool silu = activation == "silu" || activation == "swish";
  if (!silu && activation != "sigmoid") {
    return Invalid(context, fmt::format("activation \"{}\"", activation));
  }
  return VisitFloat(context.inputs[1].type, [&](auto tag) {
    GatedNorm<typename decltype(tag)::Type>(context, silu);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> NormOps() {
  static const OpDef ops[] = {
      {"", "LayerNormalization", 1, NormShape, LayerNorm},  // ONNX Runtime has it before 17 too
      {"", "RMSNormalization", 23, NormShape, RmsNorm},
      {"", "SimplifiedLayerNormalization", 1, NormShape, RmsNorm},
      {"com.microsoft", "SimplifiedLayerNormalization", 1, NormShape, RmsNorm},
      {"com.microsoft", "GatedRMSNorm", 1, GatedShape, GatedCompute},
      {"com.microsoft", "SkipLayerNormalization", 1, SkipShape<true>, SkipNorm<true>},
      {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, SkipShape<false>, SkipNorm<false>},
  };
  return ops;
}

}  // namespace kvlift::exec
