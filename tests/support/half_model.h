// Converts a float32 model to float16 or bfloat16: all of its float32 values and weights.
#pragma once

#include <cstdint>

#include "exec/memory/tensor.h"
#include "ir/tensor_data.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

inline void MakeHalf(onnx::TensorProto* tensor, int32_t type) {
  if (tensor->data_type() != onnx::TensorProto::FLOAT) return;
  const auto numbers = ReadFloats(*tensor);
  if (!numbers.ok()) return;
  onnx::TensorProto half;
  half.set_name(tensor->name());
  *half.mutable_dims() = tensor->dims();
  half.set_data_type(type);
  for (const double number : *numbers) {
    const auto value = static_cast<float>(number);
    const uint16_t bits =
        type == onnx::TensorProto::FLOAT16 ? exec::FloatToHalf(value) : exec::FloatToBfloat(value);
    half.mutable_raw_data()->push_back(static_cast<char>(bits & 0xff));
    half.mutable_raw_data()->push_back(static_cast<char>(bits >> 8));
  }
  *tensor = std::move(half);
}

inline onnx::ModelProto InHalf(onnx::ModelProto model, int32_t type) {
  onnx::GraphProto& graph = *model.mutable_graph();
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (auto& value : *list) {
      auto* tensor = value.mutable_type()->mutable_tensor_type();
      if (tensor->elem_type() == onnx::TensorProto::FLOAT) tensor->set_elem_type(type);
    }
  }
  for (auto& tensor : *graph.mutable_initializer()) MakeHalf(&tensor, type);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) MakeHalf(attribute.mutable_t(), type);
      if (attribute.name() == "to" && attribute.i() == onnx::TensorProto::FLOAT)
        attribute.set_i(type);
    }
  }
  return model;
}

}  // namespace kvlift
