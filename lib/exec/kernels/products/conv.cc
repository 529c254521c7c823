// Conv with any number of spatial dimensions, as the product of the filters and gathered patches.
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/products/gemm_product.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// X is [B, groups * channels, in...], W [groups * filters, channels, kernel...].
struct ConvPlan {
  int64_t B = 0, groups = 1, channels = 0, filters = 0;
  Shape in, kernel, out;
  // One number per spatial dimension. `before`: elements of padding in front.
  move::Ints strides, dilations, before;
};

absl::StatusOr<move::Ints> SpatialAttribute(const KernelContext& context, const char* name,
                                            size_t count, int64_t fallback) {
  move::Ints values = move::IntsAttribute(context, name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) return Invalid(context, fmt::format("{} does not fit", name));
  return values;
}

absl::Status PlanSpatial(const KernelContext& context, ConvPlan* plan) {
  ConvPlan& p = *plan;
  const size_t dims = p.in.size();
  KV_ASSIGN_OR_RETURN(p.strides, SpatialAttribute(context, "strides", dims, 1));
  KV_ASSIGN_OR_RETURN(p.dilations, SpatialAttribute(context, "dilations", dims, 1));
  KV_ASSIGN_OR_RETURN(const move::Ints pads, SpatialAttribute(context, "pads", 2 * dims, 0));
  const std::string_view automatic = StringAttribute(context, "auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID") {
    return Invalid(context, fmt::format("auto_pad \"{}\"", automatic));
  }
  for (size_t d = 0; d < dims; ++d) {
    if (p.strides[d] < 1 || p.dilations[d] < 1) return Invalid(context, "strides below 1");
    const int64_t reach = (p.kernel[d] - 1) * p.dilations[d] + 1;
    int64_t before = automatic == "NOTSET" ? pads[d] : 0;
    int64_t after = automatic == "NOTSET" ? pads[d + dims] : 0;
    if (same) {
      const int64_t wanted = (p.in[d] + p.strides[d] - 1) / p.strides[d];
      const int64_t all = std::max<int64_t>(0, (wanted - 1) * p.strides[d] + reach - p.in[d]);
      before = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      after = all - before;
    }
    const int64_t rest = p.in[d] + before + after - reach;
    if (rest < 0) return Invalid(context, "the kernel is larger than the padded input");
    p.before.push_back(before);
    p.out.push_back(rest / p.strides[d] + 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<ConvPlan> PlanConv(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const Shape& x = context.inputs[0].shape;
  const Shape& w = context.inputs[1].shape;
  ConvPlan p;
  p.groups = IntAttribute(context, "group", 1);
  if (x.size() < 3 || w.size() != x.size() || p.groups < 1 || x[1] != w[1] * p.groups ||
      w[0] % p.groups != 0 || context.inputs[0].type != context.inputs[1].type) {
    return Invalid(context,
                   fmt::format("X {} and W {} do not fit", ShapeString(x), ShapeString(w)));
  }
  if (HasInput(context, 2) && (context.inputs[2].shape != Shape({w[0]}) ||
                               context.inputs[2].type != context.inputs[0].type)) {
    return Invalid(context, "the bias does not fit");
  }
  p.B = x[0];
  p.channels = w[1];
  p.filters = w[0] / p.groups;
  p.in.assign(x.begin() + 2, x.end());
  p.kernel.assign(w.begin() + 2, w.end());
  const move::Ints kernel = move::IntsAttribute(context, "kernel_shape");
  if (!kernel.empty() && Shape(kernel.begin(), kernel.end()) != p.kernel) {
    return Invalid(context, "kernel_shape does not fit W");
  }
  KV_RETURN_IF_ERROR(PlanSpatial(context, &p));
  return p;
}

absl::Status ConvShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const ConvPlan p, PlanConv(context));
  Shape shape = {p.B, p.groups * p.filters};
  shape.insert(shape.end(), p.out.begin(), p.out.end());
  SetSpec(context, 0, context.inputs[0].type, std::move(shape));
  return absl::OkStatus();
}

// Returns the index in one channel for an output position and a kernel position; -1 in the padding.
int64_t SourceIndex(const ConvPlan& p, int64_t position, int64_t tap) {
  int64_t index = 0, stride = 1;
  for (size_t d = p.in.size(); d-- > 0;) {
    const int64_t at =
        position % p.out[d] * p.strides[d] + tap % p.kernel[d] * p.dilations[d] - p.before[d];
    if (at < 0 || at >= p.in[d]) return -1;
    index += at * stride;
    stride *= p.in[d];
    position /= p.out[d];
    tap /= p.kernel[d];
  }
  return index;
}

template <typename T>
void ConvTyped(KernelContext& context, const ConvPlan& p) {
  using C = Compute<T>;
  const int64_t in = NumElements(p.in), taps = NumElements(p.kernel), out = NumElements(p.out);
  const int64_t depth = p.channels * taps;
  ScratchScope scratch;
  C* patches = scratch.Get<C>(depth * out);  // [channels, taps, out]
  C* filters = scratch.Get<C>(p.filters * depth);
  C* result = scratch.Get<C>(p.filters * out);
  for (int64_t unit = 0; unit < p.B * p.groups; ++unit) {
    const int64_t group = unit % p.groups;
    const T* x = context.inputs[0].as<T>() + unit * p.channels * in;
    for (int64_t i = 0; i < taps * out; ++i) {
      const int64_t from = SourceIndex(p, i % out, i / out);
      for (int64_t c = 0; c < p.channels; ++c) {
        patches[c * taps * out + i] = from < 0 ? C{0} : Widen(x[c * in + from]);
      }
    }
    WidenArray(context.inputs[1].as<T>() + group * p.filters * depth, p.filters * depth, filters);
    Product<C> product;
    product.m = p.filters;
    product.n = product.b_k = product.c_row = out;
    product.k = product.a_row = depth;
    product.a = filters;
    product.b = patches;
    product.c = result;
    Multiply(product, context.threads);
    for (int64_t i = 0; HasInput(context, 2) && i < p.filters * out; ++i) {
      result[i] += Widen(context.inputs[2].as<T>()[group * p.filters + i / out]);
    }
    NarrowArray(result, p.filters * out, context.outputs[0].as<T>() + unit * p.filters * out);
  }
}

absl::Status ConvCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(context));
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    ConvTyped<typename decltype(tag)::Type>(context, plan);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> ConvOps() {
  static const OpDef ops[] = {
      {"", "Conv", 1, ConvShape, ConvCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
