// Element types and symbolic shapes as the model declares them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

// One declared dimension: a value, a name ("P + S" is kept as written), or neither.
struct Dim {
  std::optional<int64_t> value;
  std::string param;

  bool known() const { return value.has_value() || !param.empty(); }
  friend bool operator==(const Dim&, const Dim&) = default;
};

// A declared tensor type. elem_type is an onnx::TensorProto::DataType, 0 if undeclared.
struct TensorType {
  int32_t elem_type = 0;
  std::optional<std::vector<Dim>> shape;  // absent: rank unknown

  static TensorType From(const onnx::TypeProto& type);
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Returns the declaration of a value with this type. The shape is left out if the rank is unknown,
// and so is the size of each unknown dimension.
onnx::ValueInfoProto Declaration(const std::string& name, const TensorType& type);

// Returns the name of an element type as numpy and the manifest spell it: "float32", "int64";
// "undefined" for 0, "typeN" for an unknown number N.
std::string ElementTypeName(int32_t elem_type);
bool IsFloatType(int32_t elem_type);    // float4* to float64, bfloat16
bool IsHalfType(int32_t elem_type);     // float16, bfloat16
bool IsIntegerType(int32_t elem_type);  // signed and unsigned of 2 to 64 bits; not bool
// Returns the bits per element; 0 for strings and unknown types.
int ElementBits(int32_t elem_type);

}  // namespace kvlift
