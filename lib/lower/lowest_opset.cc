#include "lower/lowest_opset.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/graph.h"
#include "ir/operators/operator_changes.h"
#include "onnx/defs/data_type_utils.h"
#include "onnx/defs/schema.h"
#include "onnxio/model/model.h"

namespace kvlift::lower {
namespace {

using onnx::NodeProto;
using onnx::OpSchema;
using Types = absl::flat_hash_map<std::string, onnx::TypeProto>;

const OpSchema* SchemaOf(const std::string& op_type, int64_t version) {
  return onnx::OpSchemaRegistry::Schema(op_type, static_cast<int>(version), "");
}

void CollectTypes(const onnx::GraphProto& graph, Types* types) {
  for (const auto* infos : {&graph.input(), &graph.value_info(), &graph.output()}) {
    for (const auto& info : *infos) types->try_emplace(info.name(), info.type());
  }
  for (const auto& tensor : graph.initializer()) {
    onnx::TypeProto type;
    type.mutable_tensor_type()->set_elem_type(tensor.data_type());
    types->try_emplace(tensor.name(), type);
  }
}

// Returns true if the schema takes values of these types as operands. Types that are not known
// pass: shape inference of the result checks them.
bool Takes(const NodeProto& node, const OpSchema& schema, const Types& types) {
  if (node.input_size() > schema.max_input() || node.output_size() > schema.max_output()) {
    return false;
  }
  const auto& formals = schema.inputs();
  for (int k = 0; k < node.input_size() && !formals.empty(); ++k) {
    const auto it = types.find(node.input(k));
    if (it == types.end() || !it->second.has_tensor_type()) continue;
    if (it->second.tensor_type().elem_type() == 0) continue;
    const auto& formal = formals[std::min<size_t>(k, formals.size() - 1)];
    const auto word = onnx::Utils::DataTypeUtils::ToType(it->second);
    if (!formal.GetTypes().empty() && formal.GetTypes().count(word) == 0) return false;
  }
  return true;
}

bool SameDefaults(const NodeProto& node, const OpSchema& older, const OpSchema& newer) {
  return std::all_of(older.attributes().begin(), older.attributes().end(), [&](const auto& entry) {
    const auto it = newer.attributes().find(entry.first);
    if (it == newer.attributes().end() || FindAttribute(node, entry.first) != nullptr) return true;
    return entry.second.default_value.SerializeAsString() ==
           it->second.default_value.SerializeAsString();
  });
}

// Returns true if the node means the same in opset `version` as in opset `own`.
bool Fits(const NodeProto& node, int64_t version, int64_t own, const Types& types) {
  const OpSchema* newer = SchemaOf(node.op_type(), own);
  const OpSchema* older = SchemaOf(node.op_type(), version);
  if (newer == nullptr || older == nullptr) return newer == older;
  if (newer->SinceVersion() == older->SinceVersion()) return true;
  if (ChangedMeaning(node.op_type(), version, own)) return false;
  for (const auto& attribute : node.attribute()) {
    if (older->attributes().count(attribute.name()) == 0) return false;
  }
  return SameDefaults(node, *older, *newer) && Takes(node, *older, types);
}

// The IR version of ONNX's release with this opset.
int64_t IrVersionOf(int64_t opset) {
  if (opset >= 24) return 12;
  if (opset == 23) return 11;
  if (opset >= 21) return 10;
  if (opset >= 19) return 9;
  return opset >= 15 ? 8 : 7;
}

// Returns true if the model has element types that an IR version after 8 added.
bool HasNewTypes(const onnx::ModelProto& model) {
  const auto newer = [](int32_t type) { return type > onnx::TensorProto::BFLOAT16; };
  const auto& graph = model.graph();
  for (const auto* infos : {&graph.input(), &graph.value_info(), &graph.output()}) {
    for (const auto& info : *infos) {
      if (newer(info.type().tensor_type().elem_type())) return true;
    }
  }
  return std::any_of(graph.initializer().begin(), graph.initializer().end(),
                     [&](const auto& tensor) { return newer(tensor.data_type()); });
}

}  // namespace

LowestOpset FindLowestOpset(const onnx::ModelProto& model,
                            const absl::flat_hash_set<std::string>& pinned) {
  const int64_t own = DefaultOpset(model);
  const auto inferred = InferShapes(model);
  Types types;
  LowestOpset lowest;
  lowest.version = std::min(kOldestResult, own);
  std::vector<const onnx::GraphProto*> stack = {inferred.ok() ? &inferred->graph()
                                                              : &model.graph()};
  while (!stack.empty()) {
    const onnx::GraphProto* graph = stack.back();
    stack.pop_back();
    CollectTypes(*graph, &types);
    for (const NodeProto& node : graph->node()) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) stack.push_back(&attribute.g());
        for (const auto& body : attribute.graphs()) stack.push_back(&body);
      }
      if (!IsDefaultDomain(node.domain())) continue;
      const std::string name =
          node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
      int64_t version = pinned.contains(name) ? own : lowest.version;
      while (version < own && !Fits(node, version, own, types)) ++version;
      if (version > lowest.version) lowest = {version, name, node.op_type()};
    }
  }
  return lowest;
}

void SetOpset(int64_t version, onnx::ModelProto* model) {
  for (auto& import : *model->mutable_opset_import()) {
    if (IsDefaultDomain(import.domain())) import.set_version(version);
  }
  if (HasNewTypes(*model)) return;
  model->set_ir_version(std::min<int64_t>(model->ir_version(), IrVersionOf(version)));
}

}  // namespace kvlift::lower
