// Attention by the grouped kernels of the fast order.
#include "exec/kernels/attention/attention_fast.h"

#include "exec/kernels/attention/attention_grouped.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

Storage StorageOfRows(int32_t type) {
  switch (type) {
    case onnx::TensorProto::FLOAT16:
      return Storage::kHalf;
    case onnx::TensorProto::BFLOAT16:
      return Storage::kBfloat;
    default:
      return Storage::kNative;
  }
}

class InputMask : public KeyMask {
 public:
  InputMask(const KernelContext& context, const AttentionPlan& plan)
      : plan_(plan),
        mask_(plan.has_mask ? &context.inputs[3] : nullptr),
        lengths_(HasInput(context, 6) ? context.inputs[6].as<int64_t>() : nullptr) {}

  KeyRange Visible(int64_t b, int64_t s) const override {
    return VisibleKeys(plan_, s, lengths_ != nullptr ? lengths_[b] : plan_.T, lengths_ != nullptr);
  }

  void Apply(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end, float* x) const override {
    if (mask_ == nullptr) return;
    const int64_t n = end - begin, step = plan_.mask_t;
    const int64_t at = b * plan_.mask_b + h * plan_.mask_h + s * plan_.mask_s + begin * step;
    const AttentionKernels& ops = AttentionIsa();
    if (mask_->type == onnx::TensorProto::BOOL && step == 1) {
      return ops.keep(mask_->as<uint8_t>() + at, n, x);
    }
    if (mask_->type == onnx::TensorProto::FLOAT && step == 1) {
      return ops.add_bias(mask_->as<float>() + at, n, x);
    }
    ScratchScope scratch;
    float* bias = scratch.Get<float>(n);
    if (mask_->type == onnx::TensorProto::FLOAT16 && step == 1) {
      WidenArray(mask_->as<Half>() + at, n, bias);
    } else {
      const bool keep = mask_->type == onnx::TensorProto::BOOL;
      for (int64_t t = 0; t < n; ++t) {
        const double value = ElementAsDouble(*mask_, at + t * step);
        bias[t] = static_cast<float>(!keep ? value : value != 0 ? 0 : -INFINITY);
      }
    }
    ops.add_bias(bias, n, x);
  }

 private:
  const AttentionPlan& plan_;
  const View* mask_;
  const int64_t* lengths_;
};

bool IsFloat32OrSmaller(int32_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::FLOAT16 ||
         type == onnx::TensorProto::BFLOAT16;
}

}  // namespace

bool CanAttendFast(const KernelContext& context, const AttentionPlan& plan) {
  return !context.canonical && IsFloat32OrSmaller(context.inputs[0].type) &&
         IsFloat32OrSmaller(context.inputs[2].type) && !WantsOutput(context, 3) &&
         (plan.softmax_type == 0 || plan.softmax_type == onnx::TensorProto::FLOAT);
}

void AttendFast(const KernelContext& context, const AttentionPlan& plan, const KeyRows& keys,
                const KeyRows& values) {
  const InputMask mask(context, plan);
  GroupedHeads heads;
  heads.B = plan.B;
  heads.N = plan.N;
  heads.Nk = plan.Nk;
  heads.S = plan.S;
  heads.D = plan.D;
  heads.Dv = plan.Dv;
  const Storage storage = StorageOfRows(context.inputs[0].type);
  heads.q = {context.inputs[0].data, storage, plan.q};
  heads.k = {keys.data, storage, keys.layout, keys.scales, keys.scale_layout, keys.group};
  heads.v = {values.data,         StorageOfRows(context.inputs[2].type),
             values.layout,       values.scales,
             values.scale_layout, values.group};
  heads.y = context.outputs[0].data;
  heads.y_storage = storage;
  heads.y_layout = plan.y;
  heads.scale = plan.scale;
  heads.softcap = plan.softcap;
  heads.mask = &mask;
  RunGrouped(heads, context.threads);
}

}  // namespace kvlift::exec
