#include "ir/types.h"

#include "fmt/format.h"

namespace kvlift {
namespace {

struct ElementInfo {
  int32_t elem_type;
  const char* name;
  int bits;
  char kind;  // f float, i integer, - neither
};

constexpr ElementInfo kElements[] = {
    {onnx::TensorProto::FLOAT, "float32", 32, 'f'},
    {onnx::TensorProto::UINT8, "uint8", 8, 'i'},
    {onnx::TensorProto::INT8, "int8", 8, 'i'},
    {onnx::TensorProto::UINT16, "uint16", 16, 'i'},
    {onnx::TensorProto::INT16, "int16", 16, 'i'},
    {onnx::TensorProto::INT32, "int32", 32, 'i'},
    {onnx::TensorProto::INT64, "int64", 64, 'i'},
    {onnx::TensorProto::STRING, "string", 0, '-'},
    {onnx::TensorProto::BOOL, "bool", 8, '-'},
    {onnx::TensorProto::FLOAT16, "float16", 16, 'f'},
    {onnx::TensorProto::DOUBLE, "float64", 64, 'f'},
    {onnx::TensorProto::UINT32, "uint32", 32, 'i'},
    {onnx::TensorProto::UINT64, "uint64", 64, 'i'},
    {onnx::TensorProto::COMPLEX64, "complex64", 64, '-'},
    {onnx::TensorProto::COMPLEX128, "complex128", 128, '-'},
    {onnx::TensorProto::BFLOAT16, "bfloat16", 16, 'f'},
    {onnx::TensorProto::FLOAT8E4M3FN, "float8e4m3fn", 8, 'f'},
    {onnx::TensorProto::FLOAT8E4M3FNUZ, "float8e4m3fnuz", 8, 'f'},
    {onnx::TensorProto::FLOAT8E5M2, "float8e5m2", 8, 'f'},
    {onnx::TensorProto::FLOAT8E5M2FNUZ, "float8e5m2fnuz", 8, 'f'},
    {onnx::TensorProto::UINT4, "uint4", 4, 'i'},
    {onnx::TensorProto::INT4, "int4", 4, 'i'},
    {onnx::TensorProto::FLOAT4E2M1, "float4e2m1", 4, 'f'},
    {onnx::TensorProto::FLOAT8E8M0, "float8e8m0", 8, 'f'},
    {onnx::TensorProto::UINT2, "uint2", 2, 'i'},
    {onnx::TensorProto::INT2, "int2", 2, 'i'},
    {onnx::TensorProto::FLOAT6E2M3, "float6e2m3", 6, 'f'},
    {onnx::TensorProto::FLOAT6E3M2, "float6e3m2", 6, 'f'},
};

const ElementInfo* FindElement(int32_t elem_type) {
  for (const ElementInfo& info : kElements) {
    if (info.elem_type == elem_type) return &info;
  }
  return nullptr;
}

}  // namespace

TensorType TensorType::From(const onnx::TypeProto& type) {
  TensorType result;
  if (!type.has_tensor_type()) return result;
  result.elem_type = type.tensor_type().elem_type();
  if (!type.tensor_type().has_shape()) return result;
  result.shape.emplace();
  for (const auto& dim : type.tensor_type().shape().dim()) {
    Dim& out = result.shape->emplace_back();
    // Exporters write a negative value for "unknown".
    if (dim.has_dim_value() && dim.dim_value() >= 0) out.value = dim.dim_value();
    if (dim.has_dim_param()) out.param = dim.dim_param();
  }
  return result;
}

onnx::ValueInfoProto Declaration(const std::string& name, const TensorType& type) {
  onnx::ValueInfoProto value;
  value.set_name(name);
  auto* tensor = value.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type.elem_type);
  if (!type.shape) return value;
  auto* shape = tensor->mutable_shape();
  for (const Dim& dim : *type.shape) {
    auto* next = shape->add_dim();
    if (dim.value) next->set_dim_value(*dim.value);
    if (!dim.value && !dim.param.empty()) next->set_dim_param(dim.param);
  }
  return value;
}

std::string ElementTypeName(int32_t elem_type) {
  if (elem_type == onnx::TensorProto::UNDEFINED) return "undefined";
  const ElementInfo* info = FindElement(elem_type);
  return info != nullptr ? info->name : fmt::format("type{}", elem_type);
}

bool IsFloatType(int32_t elem_type) {
  const ElementInfo* info = FindElement(elem_type);
  return info != nullptr && info->kind == 'f';
}

bool IsHalfType(int32_t elem_type) {
  return elem_type == onnx::TensorProto::FLOAT16 || elem_type == onnx::TensorProto::BFLOAT16;
}

bool IsIntegerType(int32_t elem_type) {
  const ElementInfo* info = FindElement(elem_type);
  return info != nullptr && info->kind == 'i';
}

int ElementBits(int32_t elem_type) {
  const ElementInfo* info = FindElement(elem_type);
  return info != nullptr ? info->bits : 0;
}

}  // namespace kvlift
