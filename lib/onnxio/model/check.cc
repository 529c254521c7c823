// ONNX's checker, shape inference and inliner.

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/memory_cap.h"
#include "base/status.h"
#include "ir/spans.h"
#include "onnx/checker.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/files/guard.h"
#include "onnxio/model/functions.h"
#include "onnxio/model/model.h"
#include "onnxio/model/operators.h"
#include "onnxio/model/schemas.h"

namespace kvlift {
namespace {

// The checker looks for the files of external data, unless their location starts with '#'.
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

// ONNX's data propagation makes a dimension of every element of a vector of known length, even if
// the elements are unknown. For constants it does so only if they are integers.
constexpr int64_t kLongVector = 1 << 16;

bool IsLong(const onnx::TypeProto& type) {
  const auto& shape = type.tensor_type().shape();
  return shape.dim_size() == 1 && shape.dim(0).dim_value() > kLongVector;
}

bool HasLongVectors(const onnx::ModelProto& model) {
  std::vector<const onnx::GraphProto*> graphs = {&model.graph()};
  bool found = false;
  while (!graphs.empty() && !found) {
    const onnx::GraphProto& graph = *graphs.back();
    graphs.pop_back();
    absl::flat_hash_set<std::string_view> constants;
    for (const auto& tensor : graph.initializer()) constants.insert(tensor.name());
    for (const auto* values : {&graph.input(), &graph.value_info(), &graph.output()}) {
      for (const auto& value : *values) {
        found = found || (IsLong(value.type()) && !constants.contains(value.name()));
      }
    }
    for (const auto& tensor : graph.initializer()) {
      found = found || (tensor.dims_size() == 1 && tensor.dims(0) > kLongVector &&
                        (tensor.data_type() == onnx::TensorProto::INT64 ||
                         tensor.data_type() == onnx::TensorProto::INT32));
    }
    for (const auto& node : graph.node()) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) graphs.push_back(&attribute.g());
        for (const auto& body : attribute.graphs()) graphs.push_back(&body);
      }
    }
  }
  return found;
}

absl::StatusOr<onnx::ModelProto> InferStrictly(const onnx::ModelProto& model, bool propagate_data) {
  onnx::ModelProto inferred = model;
  const onnx::ShapeInferenceOptions strict(/*check_type_val=*/true, /*strict_mode_val=*/1,
                                           propagate_data);
  // Vectors may turn out to be long during inference, so memory is limited as well.
  const MemoryCap cap((uint64_t{512} << 20) + 16 * model.ByteSizeLong());
  KV_RETURN_IF_ERROR(Guard("shape inference", [&] {
    onnx::shape_inference::InferShapes(inferred, &SafeSchemas(), strict);
  }));
  return inferred;
}

}  // namespace

absl::Status CheckModel(const onnx::ModelProto& model) {
  RegisterOperators();
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
  // ONNX's data propagation fails on valid models whose If branches use the same names, so an error
  // counts only if it also occurs without propagation.
  if (!HasLongVectors(model)) {
    auto inferred = InferStrictly(model, /*propagate_data=*/true);
    if (inferred.ok()) return inferred;
  }
  return InferStrictly(model, /*propagate_data=*/false);
}

absl::StatusOr<onnx::ModelProto> InlineFunctions(const onnx::ModelProto& model) {
  onnx::ModelProto inlined = model;
  const auto& functions = model.functions();
  if (std::all_of(functions.begin(), functions.end(), IsBodyOfOperator)) return inlined;
  inlined.clear_functions();
  google::protobuf::RepeatedPtrField<onnx::FunctionProto> kept;
  for (const onnx::FunctionProto& function : functions) {
    *(IsBodyOfOperator(function) ? kept.Add() : inlined.add_functions()) = function;
  }
  AddDefaultAttributes(&inlined);
  KV_RETURN_IF_ERROR(Guard("inlining model-local functions", [&] {
    onnx::checker::check_function_call_cycles(inlined);
    onnx::inliner::InlineLocalFunctions(inlined, /*convert_version=*/false);
  }));
  if (!inlined.functions().empty()) {
    return absl::InvalidArgumentError(
        "inlining model-local functions: a function uses an operator set version other than the "
        "model's");
  }
  *inlined.mutable_functions() = std::move(kept);
  return inlined;
}

}  // namespace kvlift
