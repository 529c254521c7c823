#include "pipeline/checks.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/coded.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "lint/lint.h"
#include "maintenance/slots.h"
#include "onnxio/bytes/contents.h"

namespace kvlift {

namespace {

std::vector<CheckOutcome> CheckModelAndLint(const Model& result, const Manifest* manifest) {
  std::vector<CheckOutcome> outcomes;
  outcomes.push_back({"ONNX checker", CheckModel(*result.proto), {}});
  if (!outcomes.back().status.ok()) return outcomes;
  outcomes.push_back({"shape inference", InferShapes(*result.proto).status(), {}});
  if (!outcomes.back().status.ok()) return outcomes;
  auto lints = LintModel(result, manifest);
  outcomes.push_back({"lint", lints.status(), {}});
  if (!lints.ok()) return outcomes;
  if (const Finding* error = FirstError(*lints)) {
    outcomes.back().status = absl::InternalError(fmt::format("{} {}", error->code, error->text));
  }
  outcomes.back().lints = *std::move(lints);
  return outcomes;
}

// Returns the name of the source's node that makes a value, or the value's name if the node has
// none. Empty if no node makes it.
std::vector<std::string> MakerOf(const onnx::ModelProto& source, const std::string& value) {
  for (const onnx::NodeProto& node : source.graph().node()) {
    if (std::find(node.output().begin(), node.output().end(), value) == node.output().end())
      continue;
    return {node.name().empty() ? value : node.name()};
  }
  return {};
}

}  // namespace

std::vector<CheckOutcome> CheckEach(const Model& source, const Model& result,
                                    const Manifest* manifest) {
  std::vector<CheckOutcome> outcomes = CheckModelAndLint(result, manifest);
  if (!outcomes.back().status.ok()) return outcomes;
  outcomes.push_back({"node names", absl::OkStatus(), {}});
  if (CheckNodeNames(*source.proto).ok()) outcomes.back().status = CheckNodeNames(*result.proto);
  return outcomes;
}

absl::Status StatusOf(const std::vector<CheckOutcome>& outcomes) { return outcomes.back().status; }

absl::Status CheckResult(const Model& result, const Manifest& manifest) {
  return StatusOf(CheckModelAndLint(result, &manifest));
}

namespace {

using Declarations = google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>;

onnx::TensorShapeProto* ShapeOf(const std::string& name, Declarations* all) {
  for (onnx::ValueInfoProto& value : *all) {
    if (value.name() == name && value.type().tensor_type().has_shape()) {
      return value.mutable_type()->mutable_tensor_type()->mutable_shape();
    }
  }
  return nullptr;
}

// Removes the sizes that the result declares exactly as the source does.
void ForgetSizes(const Declarations& source, Declarations* result) {
  for (const onnx::ValueInfoProto& value : source) {
    const auto& theirs = value.type().tensor_type().shape();
    onnx::TensorShapeProto* mine = ShapeOf(value.name(), result);
    if (mine == nullptr || mine->dim_size() != theirs.dim_size()) continue;
    for (int k = 0; k < theirs.dim_size(); ++k) {
      onnx::TensorShapeProto::Dimension* dim = mine->mutable_dim(k);
      if (dim->SerializeAsString() == theirs.dim(k).SerializeAsString()) dim->Clear();
    }
  }
}

bool HoldsWithoutDeclaredSizes(const onnx::ModelProto& source, onnx::ModelProto result) {
  onnx::GraphProto* graph = result.mutable_graph();
  ForgetSizes(source.graph().input(), graph->mutable_input());
  ForgetSizes(source.graph().output(), graph->mutable_output());
  graph->clear_value_info();
  return InferShapes(result).ok();
}

}  // namespace

absl::Status BlameFor(const Model& source, const Model& result, const absl::Status& status,
                      const onnx::ModelProto* lowered) {
  const auto lints = LintModel(source, nullptr);
  if (!lints.ok()) return lints.status();
  if (const Finding* error = FirstError(*lints)) {
    return Coded(error->code, absl::InvalidArgumentError(error->text));
  }
  const auto contradiction = [&](std::string_view of) {
    return Coded("KV031",
                 absl::InvalidArgumentError(fmt::format("the sizes {} contradict its operators: {}",
                                                        of, std::string(status.message()))));
  };
  if (!InferShapes(*result.proto).ok()) {
    if (HoldsWithoutDeclaredSizes(*source.proto, *result.proto)) {
      return contradiction("that the model declares");
    }
    if (lowered != nullptr && !InferShapes(*lowered).ok()) return contradiction("of the model");
  }
  return absl::InternalError(
      fmt::format("internal error: the result is not valid: {}", std::string(status.message())));
}

void RefuseAll(const Finding& reason, const onnx::ModelProto& source, Conversion* conversion) {
  conversion->status = ConvertStatus::kRefused;
  const bool has_place = !reason.nodes.empty() || !reason.values.empty();
  for (CacheReport& cache : conversion->inspection.caches) {
    cache.converted = false;
    if (cache.reason) continue;
    cache.reason = reason;
    if (has_place) continue;
    cache.reason->nodes = MakerOf(source, cache.output);
    cache.reason->values = {cache.input, cache.output};
  }
  for (AttentionReport& attention : conversion->inspection.attention) {
    attention.converted = false;
    if (attention.reason) continue;
    attention.reason = reason;
    if (!has_place) attention.reason->nodes = attention.nodes;
  }
}

void RefuseTree(const onnx::ModelProto& source, Conversion* conversion) {
  if (!conversion->model) return;
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*conversion->model));
  if (!graph.ok()) return;  // CheckResult reports it
  const SlotReading slots = ReadSlots(*graph, conversion->manifest);
  if (!slots.refusal) return;
  conversion->model.reset();
  Finding reason = *slots.refusal;
  reason.code = "KV235";
  RefuseAll(reason, source, conversion);
}

}  // namespace kvlift
