// Operators on shapes (Reshape and other views, Shape, Size), and operators that make constants.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using math::HasInput;
using math::IntAttribute;
using math::NeedInputs;
using math::SetSpec;
using move::Ints;
using move::InvalidInput;
using onnx::TensorProto;

absl::Status IdentityShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  SetSpec(context, 0, context.inputs[0].type, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status ReshapeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const Ints target, move::ReadInts(context, 1));
  const bool allow_zero = IntAttribute(context, "allowzero", 0) != 0;
  Shape shape(target.begin(), target.end());
  int64_t known = 1, inferred = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && !allow_zero) {
      if (d >= data.shape.size())
        return InvalidInput("shape copies dim {} of {}", d, ShapeString(data.shape));
      shape[d] = data.shape[d];
    }
    if (shape[d] < -1 || (shape[d] == -1 && inferred >= 0)) {
      return InvalidInput("shape {}", ShapeString(shape));
    }
    if (shape[d] == -1) {
      inferred = static_cast<int64_t>(d);
    } else if (__builtin_mul_overflow(known, shape[d], &known)) {
      return InvalidInput("shape {}", ShapeString(shape));
    }
  }
  if (inferred >= 0) {
    if (known == 0 || data.size() % known != 0) {
      return InvalidInput("{} does not fit shape {}", ShapeString(data.shape), ShapeString(shape));
    }
    shape[inferred] = data.size() / known;
  }
  if (NumElements(shape) != data.size()) {
    return InvalidInput("{} does not fit shape {}", ShapeString(data.shape), ShapeString(shape));
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status FlattenShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  const auto rank = static_cast<int64_t>(data.shape.size());
  int64_t axis = IntAttribute(context, "axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return InvalidInput("axis {} for rank {}", axis, rank);
  const auto split = static_cast<size_t>(axis);
  SetSpec(
      context, 0, data.type,
      {move::Product(data.shape, 0, split), move::Product(data.shape, split, data.shape.size())});
  return absl::OkStatus();
}

absl::Status SqueezeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  bool given = false;
  KV_ASSIGN_OR_RETURN(const Ints axes, move::InputOrAttribute(context, 1, "axes", &given));
  absl::InlinedVector<bool, 6> drop(data.shape.size(), false);
  for (const int64_t raw : axes) {
    KV_ASSIGN_OR_RETURN(const int64_t axis,
                        move::NormalizeAxis(context, raw, static_cast<int64_t>(drop.size())));
    if (data.shape[axis] != 1)
      return InvalidInput("dim {} of {} is not 1", axis, ShapeString(data.shape));
    drop[axis] = true;
  }
  Shape shape;
  for (size_t d = 0; d < data.shape.size(); ++d) {
    if (given ? !drop[d] : data.shape[d] != 1) shape.push_back(data.shape[d]);
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status UnsqueezeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  Ints axes = move::IntsAttribute(context, "axes");
  if (math::HasInput(context, 1)) {
    KV_ASSIGN_OR_RETURN(axes, move::ReadIntsOfAnyRank(context, 1));
  } else if (math::FindAttribute(context, "axes") == nullptr) {
    return InvalidInput("no axes");
  }
  const size_t rank = data.shape.size() + axes.size();
  Shape shape(rank, -1);
  for (const int64_t raw : axes) {
    KV_ASSIGN_OR_RETURN(const int64_t axis,
                        move::NormalizeAxis(context, raw, static_cast<int64_t>(rank)));
    if (shape[axis] == 1) return InvalidInput("axis {} twice", axis);
    shape[axis] = 1;
  }
  size_t next = 0;
  for (int64_t& d : shape) {
    if (d < 0) d = data.shape[next++];
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

// At inference Dropout copies the data, and its mask keeps every element.
absl::Status DropoutShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (HasInput(context, i) && context.inputs[i].size() != 1) {
      return absl::InvalidArgumentError("ratio and training_mode must be scalars");
    }
  }
  if (HasInput(context, 2) && context.inputs[2].type == TensorProto::BOOL &&
      *context.inputs[2].as<uint8_t>() != 0) {
    const bool none = HasInput(context, 1) && ElementAsDouble(context.inputs[1], 0) == 0.0;
    if (!none) return absl::UnimplementedError("Dropout in training mode");
  }
  SetSpec(context, 0, context.inputs[0].type, context.inputs[0].shape);
  if (context.specs->size() > 1) {
    // Before opset 10 the mask has the data's type.
    const int32_t mask =
        context.opset < 10 ? context.inputs[0].type : static_cast<int32_t>(TensorProto::BOOL);
    SetSpec(context, 1, mask, context.inputs[0].shape);
  }
  return absl::OkStatus();
}

absl::Status DropoutCompute(KernelContext& context) {
  if (!math::WantsOutput(context, 1)) return absl::OkStatus();
  View& mask = context.outputs[1];
  if (mask.type == TensorProto::BOOL) {
    std::fill_n(mask.as<uint8_t>(), mask.size(), uint8_t{1});
    return absl::OkStatus();
  }
  return math::VisitFloat(mask.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    std::fill_n(mask.as<T>(), mask.size(), math::Narrow<T>(1));
    return absl::OkStatus();
  });
}

absl::Status ShapeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const auto rank = static_cast<int64_t>(context.inputs[0].shape.size());
  int64_t start = IntAttribute(context, "start", 0), end = IntAttribute(context, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = std::clamp<int64_t>(start, 0, rank);
  end = std::clamp<int64_t>(end, 0, rank);
  SetSpec(context, 0, TensorProto::INT64, {std::max<int64_t>(0, end - start)});
  return absl::OkStatus();
}

absl::Status ShapeCompute(KernelContext& context) {
  const Shape& shape = context.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t start = IntAttribute(context, "start", 0);
  if (start < 0) start += rank;
  start = std::clamp<int64_t>(start, 0, rank);
  View& out = context.outputs[0];
  std::copy_n(shape.begin() + start, out.size(), out.as<int64_t>());
  return absl::OkStatus();
}

absl::Status SizeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  SetSpec(context, 0, TensorProto::INT64, {});
  return absl::OkStatus();
}

absl::Status SizeCompute(KernelContext& context) {
  *context.outputs[0].as<int64_t>() = context.inputs[0].size();
  return absl::OkStatus();
}

absl::Status ConstantOfShapeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  KV_ASSIGN_OR_RETURN(const Ints dims, move::ReadInts(context, 0));
  for (const int64_t d : dims) {
    if (d < 0) return InvalidInput("negative dim {}", d);
  }
  const onnx::AttributeProto* value = math::FindAttribute(context, "value");
  SetSpec(context, 0, value != nullptr ? value->t().data_type() : int32_t{TensorProto::FLOAT},
          Shape(dims.begin(), dims.end()));
  return absl::OkStatus();
}

// Returns the element as it is stored in the proto; null if it must be converted.
const std::byte* ElementOf(const onnx::TensorProto& tensor) {
  const auto at = [](const auto& data) { return reinterpret_cast<const std::byte*>(data.data()); };
  const size_t bits = ElementBits(tensor.data_type());
  if (bits % 8 == 0 && tensor.raw_data().size() * 8 == bits) return at(tensor.raw_data());
  if (tensor.data_type() == TensorProto::FLOAT && tensor.float_data_size() == 1) {
    return at(tensor.float_data());
  }
  if (tensor.data_type() == TensorProto::INT64 && tensor.int64_data_size() == 1) {
    return at(tensor.int64_data());
  }
  return nullptr;
}

absl::Status ConstantOfShapeCompute(KernelContext& context) {
  View& out = context.outputs[0];
  if (out.size() == 0) return absl::OkStatus();
  const onnx::AttributeProto* value = math::FindAttribute(context, "value");
  if (value == nullptr) {
    std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
    return absl::OkStatus();
  }
  if (const std::byte* element = ElementOf(value->t())) {
    move::FillElements(out.type, out.data, 0, out.size(), element, 0);
    return absl::OkStatus();
  }
  KV_ASSIGN_OR_RETURN(const Tensor tensor, Tensor::FromProto(value->t(), ""));
  if (tensor.size() != 1) return InvalidInput("value has {} elements", tensor.size());
  move::FillElements(out.type, out.data, 0, out.size(), tensor.data(), 0);
  return absl::OkStatus();
}

template <typename T>
int64_t RangeLength(const KernelContext& context) {
  const auto start = math::Widen(*context.inputs[0].as<T>());
  const auto limit = math::Widen(*context.inputs[1].as<T>());
  const auto delta = math::Widen(*context.inputs[2].as<T>());
  if (delta == 0) return -1;
  if constexpr (std::is_integral_v<T>) {
    if (delta > 0 ? start >= limit : start <= limit) return 0;
    const auto span = static_cast<uint64_t>(limit) - static_cast<uint64_t>(start);
    const uint64_t distance = delta > 0 ? span : uint64_t{0} - span;
    const uint64_t step =
        delta > 0 ? static_cast<uint64_t>(delta) : uint64_t{0} - static_cast<uint64_t>(delta);
    return static_cast<int64_t>((distance - 1) / step + 1);
  } else {
    const double n = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                               static_cast<double>(delta));
    return n > 0 ? (n < 1e15 ? static_cast<int64_t>(n) : -1) : 0;
  }
}

absl::Status RangeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  for (size_t i = 0; i < 3; ++i) {
    if (context.inputs[i].size() != 1 || context.inputs[i].type != context.inputs[0].type) {
      return InvalidInput("start, limit and delta must be scalars of one type");
    }
  }
  return math::VisitNumeric(context.inputs[0].type, [&](auto tag) {
    const int64_t n = RangeLength<typename decltype(tag)::Type>(context);
    if (n < 0) return InvalidInput("delta is zero, or the range is too long");
    SetSpec(context, 0, context.inputs[0].type, {n});
    return absl::OkStatus();
  });
}

absl::Status RangeCompute(KernelContext& context) {
  return math::VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = math::Compute<T>;
    const C start = math::Widen(*context.inputs[0].as<T>());
    const C delta = math::Widen(*context.inputs[2].as<T>());
    View& out = context.outputs[0];
    for (int64_t i = 0; i < out.size(); ++i) {
      out.as<T>()[i] = math::Narrow<T>(static_cast<C>(start + static_cast<C>(i) * delta));
    }
    return absl::OkStatus();
  });
}

// BitCast keeps the bytes, as elements of another type of the same size.
absl::Status BitCastShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const auto to = static_cast<int32_t>(IntAttribute(context, "to", 0));
  if (ElementBits(to) != ElementBits(context.inputs[0].type)) {
    return InvalidInput("{} becomes {}", ElementTypeName(context.inputs[0].type),
                        ElementTypeName(to));
  }
  SetSpec(context, 0, to, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status EyeLikeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  if (data.shape.size() != 2) return InvalidInput("a matrix is needed");
  SetSpec(context, 0, static_cast<int32_t>(IntAttribute(context, "dtype", data.type)), data.shape);
  return absl::OkStatus();
}

absl::Status EyeLikeCompute(KernelContext& context) {
  View& out = context.outputs[0];
  if (out.size() == 0) return absl::OkStatus();
  std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  const int32_t type = out.type == TensorProto::BOOL ? int32_t{TensorProto::UINT8} : out.type;
  const int64_t k = IntAttribute(context, "k", 0);
  return math::VisitNumeric(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t row = 0; row < out.shape[0]; ++row) {
      const int64_t column = row + k;
      if (column < 0 || column >= out.shape[1]) continue;
      out.as<T>()[row * out.shape[1] + column] = math::Narrow<T>(1);
    }
    return absl::OkStatus();
  });
}

// Reached only if the graph does not treat the node as a constant.
absl::Status ConstantShape(KernelContext& context) {
  const onnx::AttributeProto* value = math::FindAttribute(context, "value");
  if (value == nullptr) return absl::UnimplementedError("Constant without a tensor");
  SetSpec(context, 0, value->t().data_type(),
          Shape(value->t().dims().begin(), value->t().dims().end()));
  return absl::OkStatus();
}

absl::Status ConstantCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Tensor tensor,
                      Tensor::FromProto(math::FindAttribute(context, "value")->t(), ""));
  move::CopyElements(tensor.type(), context.outputs[0].data, 0, tensor.data(), 0, tensor.size());
  return absl::OkStatus();
}

constexpr OpDef kShapeOps[] = {
    {"", "BitCast", 26, BitCastShape, nullptr, ViewKind::kWhole},
    {"", "Constant", 1, ConstantShape, ConstantCompute},
    {"", "ConstantOfShape", 9, ConstantOfShapeShape, ConstantOfShapeCompute},
    {"", "Dropout", 7, DropoutShape, DropoutCompute, ViewKind::kWhole},
    {"", "EyeLike", 9, EyeLikeShape, EyeLikeCompute},
    {"", "Flatten", 1, FlattenShape, nullptr, ViewKind::kWhole},
    {"", "Identity", 1, IdentityShape, nullptr, ViewKind::kWhole},
    {"", "Range", 11, RangeShape, RangeCompute},
    {"", "Reshape", 5, ReshapeShape, nullptr, ViewKind::kWhole},
    {.domain = "",
     .op_type = "Shape",
     .since_version = 1,
     .shape = ShapeShape,
     .compute = ShapeCompute,
     .pitched_inputs = 1},
    {.domain = "",
     .op_type = "Size",
     .since_version = 1,
     .shape = SizeShape,
     .compute = SizeCompute,
     .pitched_inputs = 1},
    {"", "Squeeze", 1, SqueezeShape, nullptr, ViewKind::kWhole},
    {"", "Unsqueeze", 1, UnsqueezeShape, nullptr, ViewKind::kWhole},
};

}  // namespace

absl::Span<const OpDef> ShapeOps() { return kShapeOps; }

}  // namespace kvlift::exec
