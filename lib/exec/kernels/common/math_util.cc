#include "exec/kernels/common/math_util.h"

#include <fmt/format.h>

namespace kvlift::exec::math {

namespace {

std::string Where(const KernelContext& context) {
  const onnx::NodeProto& node = context.node;
  return node.name().empty() ? fmt::format("{}", node.op_type())
                             : fmt::format("{} \"{}\"", node.op_type(), node.name());
}

}  // namespace

absl::Status Invalid(const KernelContext& context, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", Where(context), what));
}

absl::Status Unsupported(const KernelContext& context, std::string_view what) {
  return absl::UnimplementedError(fmt::format("{}: {}", Where(context), what));
}

const onnx::AttributeProto* FindInNode(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

absl::Status NeedInputs(const KernelContext& context, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!HasInput(context, i)) return Invalid(context, fmt::format("input {} is missing", i));
  }
  return absl::OkStatus();
}

void SetSpec(KernelContext& context, size_t output, int32_t type, Shape shape) {
  if (context.specs->size() <= output) context.specs->resize(output + 1);
  (*context.specs)[output] = {type, std::move(shape)};
}

absl::Status SameAsInput(KernelContext& context) {
  if (absl::Status s = NeedInputs(context, 1); !s.ok()) return s;
  SetSpec(context, 0, context.inputs[0].type, context.inputs[0].shape);
  return absl::OkStatus();
}

bool BroadcastShapes(const Shape& a, const Shape& b, Shape* out) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const int64_t y = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (x != y && x != 1 && y != 1) return false;
    result[i] = x == 1 ? y : x;
  }
  *out = std::move(result);
  return true;
}

absl::InlinedVector<int64_t, 6> BroadcastStrides(const Shape& shape, const Shape& out) {
  absl::InlinedVector<int64_t, 6> strides(out.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t dim = shape[shape.size() - 1 - i];
    if (dim != 1) strides[out.size() - 1 - i] = stride;
    stride *= dim;
  }
  return strides;
}

}  // namespace kvlift::exec::math
