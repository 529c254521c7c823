// com.microsoft FusedGemm and FusedConv: Gemm or Conv of ONNX, then an activation on the result.
#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

constexpr int64_t kOpset = 21;  // the version whose kernels are used

absl::StatusOr<const OpDef*> Find(const KernelContext& context, std::string_view op) {
  const OpDef* def = FindOp("", op, kOpset);
  if (def == nullptr || def->compute == nullptr) {
    return Unsupported(context, fmt::format("operator {} is not known", op));
  }
  return def;
}

// Sets the activation's attributes alpha and beta from those of the fused node.
void BindParameters(const KernelContext& context, onnx::NodeProto* node) {
  const auto set = [&](const char* name, float value) {
    onnx::AttributeProto* a = node->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(value);
  };
  for (const onnx::AttributeProto& a : context.node.attribute()) {
    if (a.name() == "activation_alpha") set("alpha", a.f());
    if (a.name() == "activation_beta") set("beta", a.f());
    if (a.name() != "activation_params") continue;
    const bool clip = node->op_type() == "Clip";
    if (a.floats_size() > 0) set(clip ? "min" : "alpha", a.floats(0));
    if (a.floats_size() > 1) set(clip ? "max" : "beta", a.floats(1));
  }
}

absl::Status Activate(KernelContext& context) {
  const std::string_view name = StringAttribute(context, "activation", "");
  if (name.empty()) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(const OpDef* def, Find(context, name));
  if (def->inplace_input != 0) return Unsupported(context, fmt::format("activation {}", name));
  onnx::NodeProto node;
  node.set_op_type(std::string(name));
  BindParameters(context, &node);
  View output = context.outputs[0];
  const View input = output;
  KernelContext inner{node, kOpset, {&input, 1}, {&output, 1}, nullptr};
  inner.threads = context.threads;
  return def->compute(inner);
}

template <bool kConv>
absl::Status FusedShape(KernelContext& context) {
  if (kConv && HasInput(context, 3)) return Unsupported(context, "input Z is not supported");
  KV_ASSIGN_OR_RETURN(const OpDef* def, Find(context, kConv ? "Conv" : "Gemm"));
  return def->shape(context);
}

template <bool kConv>
absl::Status FusedCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const OpDef* def, Find(context, kConv ? "Conv" : "Gemm"));
  KV_RETURN_IF_ERROR(def->compute(context));
  return Activate(context);
}

}  // namespace

absl::Span<const OpDef> FusedOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "FusedConv", 1, FusedShape<true>, FusedCompute<true>},
      {"com.microsoft", "FusedGemm", 1, FusedShape<false>, FusedCompute<false>},
  };
  return ops;
}

}  // namespace kvlift::exec
