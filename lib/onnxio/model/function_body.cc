#include "onnxio/model/function_body.h"

#include "base/status.h"
#include "onnxio/files/guard.h"

namespace kvlift {

absl::StatusOr<std::optional<onnx::FunctionProto>> FunctionBody(
    const onnx::OpSchema& schema, const onnx::NodeProto& node, int version,
    const std::vector<int32_t>& input_types) {
  if (const onnx::FunctionProto* body = schema.GetFunction(version); body != nullptr) {
    return std::optional<onnx::FunctionProto>(*body);
  }
  if (!schema.HasContextDependentFunction()) return std::optional<onnx::FunctionProto>();
  std::vector<onnx::TypeProto> types;
  for (int i = 0; i < node.input_size(); ++i) {
    const int32_t type = static_cast<size_t>(i) < input_types.size() ? input_types[i] : 0;
    if (type == 0 && !node.input(i).empty()) {
      return absl::FailedPreconditionError("the body depends on a type that is not known yet");
    }
    if (type == kSequenceInput) {
      types.emplace_back().mutable_sequence_type();
    } else {
      types.emplace_back().mutable_tensor_type()->set_elem_type(type);
    }
  }
  onnx::FunctionProto body;
  bool built = false;
  KV_RETURN_IF_ERROR(Guard("function body", [&] {
    const onnx::FunctionBodyBuildContextImpl context(node, types);
    built = schema.BuildContextDependentFunction(context, body, version);
  }));
  if (!built) return std::optional<onnx::FunctionProto>();
  return std::optional<onnx::FunctionProto>(std::move(body));
}

}  // namespace kvlift
