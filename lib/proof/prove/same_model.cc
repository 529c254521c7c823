#include "proof/prove/same_model.h"

#include <algorithm>

#include "ir/operators/operator_traits.h"

namespace kvlift {
namespace {

bool DrawsNumbers(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
    if (IsRandomOperator(node)) return true;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g() && DrawsNumbers(attribute.g().node())) return true;
      for (const onnx::GraphProto& body : attribute.graphs()) {
        if (DrawsNumbers(body.node())) return true;
      }
    }
    return false;
  });
}

bool DrawsNumbers(const onnx::ModelProto& model) {
  return DrawsNumbers(model.graph().node()) ||
         std::any_of(
             model.functions().begin(), model.functions().end(),
             [](const onnx::FunctionProto& function) { return DrawsNumbers(function.node()); });
}

// Returns true if names and layouts of both sides are the same everywhere.
bool IsIdentity(const Manifest& relation) {
  const auto keeps = [](const ManifestCache& cache) {
    return cache.input == cache.source.input && cache.output == cache.source.output &&
           cache.layout == cache.source.layout && cache.axis == cache.source.axis &&
           cache.grows == cache.source.growing && cache.source.select.empty() && !cache.ring &&
           !cache.quantization;
  };
  const auto is_same = [](const auto& port) {
    return IsCache(port) || NameInSource(port) == port.name;
  };
  const auto is_input = [&](const ManifestInput& input) {
    return is_same(input) && AsControl(input) == nullptr && AsPadded(input) == nullptr;
  };
  return relation.dropped.empty() &&
         std::all_of(relation.caches.begin(), relation.caches.end(), keeps) &&
         std::all_of(relation.inputs.begin(), relation.inputs.end(), is_input) &&
         std::all_of(relation.outputs.begin(), relation.outputs.end(), is_same);
}

// Compares what a runtime reads of two models. Documentation and metadata do not count.
bool AreOne(const onnx::ModelProto& before, const onnx::ModelProto& after) {
  if (&before == &after) return true;
  const auto bytes = [](const onnx::ModelProto& model) {
    onnx::ModelProto rest;
    *rest.mutable_opset_import() = model.opset_import();
    *rest.mutable_functions() = model.functions();
    return rest.SerializeAsString();
  };
  return before.graph().ByteSizeLong() == after.graph().ByteSizeLong() &&
         bytes(before) == bytes(after) &&
         before.graph().SerializeAsString() == after.graph().SerializeAsString();
}

}  // namespace

std::optional<Proof> ProofOfSameModel(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                      const Manifest& relation) {
  if (!IsIdentity(relation) || !AreOne(before, after) || DrawsNumbers(before)) return std::nullopt;
  Proof proof;
  const auto add = [&](const std::string& about) {
    proof.facts.push_back(
        {about, "both models have the same nodes and weights", FactStatus::kProved, {}, {}, ""});
  };
  for (const ManifestCache& cache : relation.caches) add(cache.id);
  for (const ManifestOutput& output : relation.outputs) {
    if (!IsCache(output)) add(output.name);
  }
  return proof;
}

}  // namespace kvlift
