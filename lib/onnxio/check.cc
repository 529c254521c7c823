// ONNX's checker, shape inference and inliner.

#include <utility>

#include "base/status.h"
#include "ir/spans.h"
#include "onnx/checker.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "onnxio/guard.h"
#include "onnxio/model.h"
#include "onnxio/tensors.h"

namespace kvlift {
namespace {

// The checker looks for the files of external data, except at locations that start with '#'.
constexpr char kNoFile[] = "#kvlift-data-of-external-tensors-is-not-checked";

void HideLocation(onnx::TensorProto& tensor) {
  for (auto& entry : *tensor.mutable_external_data()) {
    if (entry.key() == "location" && !entry.value().empty()) entry.set_value(kNoFile);
  }
}

bool HasExternalData(const onnx::ModelProto& model) {
  bool found = false;
  ForEachTensor(model,
                [&](const onnx::TensorProto& tensor) { found = found || IsElsewhere(tensor); });
  return found;
}

absl::StatusOr<onnx::ModelProto> InferStrictly(const onnx::ModelProto& model, bool propagate_data) {
  onnx::ModelProto inferred = model;
  const onnx::ShapeInferenceOptions strict(/*check_type_val=*/true, /*strict_mode_val=*/1,
                                           propagate_data);
  KV_RETURN_IF_ERROR(Guard("shape inference", [&] {
    onnx::shape_inference::InferShapes(inferred, onnx::OpSchemaRegistry::Instance(), strict);
  }));
  return inferred;
}

}  // namespace

absl::Status CheckModel(const onnx::ModelProto& model) {
  if (HasExternalData(model)) {
    onnx::ModelProto copy = model;
    ForEachMutableTensor(copy, HideLocation);
    KV_RETURN_IF_ERROR(Guard("ONNX checker", [&] { onnx::checker::check_model(copy); }));
  } else {
    KV_RETURN_IF_ERROR(Guard("ONNX checker", [&] { onnx::checker::check_model(model); }));
  }
  return InferStrictly(model, /*propagate_data=*/false).status();
}

absl::StatusOr<onnx::ModelProto> InferShapes(const onnx::ModelProto& model) {
  // ONNX's data propagation fails on valid models whose If branches use the same names, so an
  // error counts only if it is there without it too.
  auto inferred = InferStrictly(model, /*propagate_data=*/true);
  return inferred.ok() ? std::move(inferred) : InferStrictly(model, /*propagate_data=*/false);
}

absl::StatusOr<onnx::ModelProto> InlineFunctions(const onnx::ModelProto& model) {
  onnx::ModelProto inlined = model;
  if (model.functions().empty()) return inlined;
  KV_RETURN_IF_ERROR(Guard("inlining model-local functions", [&] {
    onnx::checker::check_function_call_cycles(inlined);
    onnx::inliner::InlineLocalFunctions(inlined, /*convert_version=*/false);
  }));
  if (!inlined.functions().empty()) {
    return absl::InvalidArgumentError(
        "inlining model-local functions: a function uses an operator set version other than the "
        "model's");
  }
  return inlined;
}

}  // namespace kvlift
