// Programs of function bodies (model-local functions, and operators that ONNX defines by function
// bodies) and of the bodies of If, Loop and Scan. Each becomes a model of its own.
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "exec/session/program_impl.h"
#include "fmt/format.h"
#include "onnx/defs/schema.h"
#include "onnxio/model/function_body.h"
#include "onnxio/model/functions.h"

namespace kvlift::exec {
namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::ModelProto;
using onnx::NodeProto;

using Attributes = absl::flat_hash_map<std::string, AttributeProto>;

static_assert(kSequence == kSequenceInput);

// Declares a tensor's element type; other values are not declared.
void SetType(onnx::ValueInfoProto& info, int32_t elem_type) {
  if (elem_type > 0) info.mutable_type()->mutable_tensor_type()->set_elem_type(elem_type);
}

// Replaces references to the function's attributes by their values, also in nested graphs.
void BindAttributes(NodeProto& node, const Attributes& values) {
  auto* attributes = node.mutable_attribute();
  for (int i = 0; i < attributes->size();) {
    AttributeProto& attribute = *attributes->Mutable(i);
    if (attribute.has_g()) {
      for (NodeProto& inner : *attribute.mutable_g()->mutable_node()) BindAttributes(inner, values);
    }
    if (attribute.ref_attr_name().empty()) {
      ++i;
      continue;
    }
    const auto value = values.find(attribute.ref_attr_name());
    // Neither given nor with a default: the default of the inner node applies.
    if (value == values.end()) {
      attributes->DeleteSubrange(i, 1);
      continue;
    }
    const std::string name = attribute.name();
    attribute = value->second;
    attribute.set_name(name);
    ++i;
  }
}

void DropOmitted(NodeProto& node, const absl::flat_hash_set<std::string>& omitted) {
  for (std::string& input : *node.mutable_input()) {
    if (omitted.contains(input)) input.clear();
  }
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (!attribute.has_g()) continue;
    for (NodeProto& inner : *attribute.mutable_g()->mutable_node()) DropOmitted(inner, omitted);
  }
}

// Returns the function as a model for this node: attributes are bound, omitted inputs and outputs
// removed.
ModelProto Instantiate(const ModelProto& model, const FunctionProto& function,
                       const NodeProto& node, const std::vector<int32_t>& types,
                       Attributes attributes) {
  for (const AttributeProto& value : function.attribute_proto()) {
    attributes.emplace(value.name(), value);
  }
  for (const AttributeProto& value : node.attribute()) {
    attributes.insert_or_assign(value.name(), value);
  }
  ModelProto result;
  result.set_ir_version(model.ir_version());
  *result.mutable_functions() = model.functions();
  *result.mutable_opset_import() = function.opset_import();
  for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
    if (OpsetOf(result, set.domain()) == 0) *result.add_opset_import() = set;
  }
  onnx::GraphProto& graph = *result.mutable_graph();
  graph.set_name(function.name());
  absl::flat_hash_set<std::string> omitted;
  for (int i = 0; i < function.input_size(); ++i) {
    if (i >= node.input_size() || node.input(i).empty()) {
      omitted.insert(function.input(i));
      continue;
    }
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(function.input(i));
    SetType(input, static_cast<size_t>(i) < types.size() ? types[i] : 0);
  }
  *graph.mutable_node() = function.node();
  for (NodeProto& inner : *graph.mutable_node()) {
    BindAttributes(inner, attributes);
    DropOmitted(inner, omitted);
  }
  for (int i = 0; i < function.output_size() && i < node.output_size(); ++i) {
    if (!node.output(i).empty()) graph.add_output()->set_name(function.output(i));
  }
  return result;
}

// Bodies may call functions. The limit keeps a function that calls itself from exhausting the
// stack.
constexpr int kMaxNesting = 64;
thread_local int nesting = 0;

class Nested {
 public:
  Nested() { ++nesting; }
  ~Nested() { --nesting; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

absl::StatusOr<std::shared_ptr<const Program>> CompileModel(ModelProto model,
                                                            const CompileOptions& options) {
  const Nested guard;
  if (nesting > kMaxNesting) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is nested more than {} deep", model.graph().name(), kMaxNesting));
  }
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(std::make_shared<ModelProto>(std::move(model))));
  return Program::Compile(std::make_shared<Graph>(std::move(graph)), options);
}

Attributes SchemaDefaults(const onnx::OpSchema& schema) {
  Attributes defaults;
  for (const auto& [name, attribute] : schema.attributes()) {
    if (attribute.default_value.type() != AttributeProto::UNDEFINED) {
      defaults.emplace(name, attribute.default_value);
      defaults[name].set_name(name);
    }
  }
  return defaults;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> CompileFunction(const ModelProto& model,
                                                               const NodeProto& node,
                                                               const std::vector<int32_t>& types,
                                                               const CompileOptions& options) {
  if (const FunctionProto* local = FindFunction(model, node); local != nullptr) {
    return CompileModel(Instantiate(model, *local, node, types, {}), options);
  }
  const auto version = static_cast<int>(OpsetOf(model, node.domain()));
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), version, domain);
  if (schema == nullptr) return absl::NotFoundError("no schema");
  KV_ASSIGN_OR_RETURN(const std::optional<FunctionProto> body,
                      FunctionBody(*schema, node, version, types));
  if (!body.has_value()) return absl::NotFoundError("no function body");
  return CompileModel(Instantiate(model, *body, node, types, SchemaDefaults(*schema)), options);
}

absl::StatusOr<std::shared_ptr<const Program>> CompileBody(const Graph& outer,
                                                           const onnx::GraphProto& body,
                                                           const std::vector<ValueId>& captures,
                                                           const CompileOptions& options) {
  ModelProto model;
  model.set_ir_version(outer.model().ir_version());
  *model.mutable_opset_import() = outer.model().opset_import();
  *model.mutable_functions() = outer.model().functions();
  *model.mutable_graph() = body;
  absl::flat_hash_set<std::string> own;
  for (const onnx::TensorProto& tensor : body.initializer()) own.insert(tensor.name());
  for (const onnx::ValueInfoProto& input : body.input()) own.insert(input.name());
  for (const NodeProto& node : body.node()) own.insert(node.output().begin(), node.output().end());
  for (const ValueId v : captures) {
    onnx::ValueInfoProto& input = *model.mutable_graph()->add_input();
    // Such a name is defined in this body, so another body of the node captures it.
    std::string name = outer.name(v);
    while (own.contains(name)) name += "/outer";
    input.set_name(name);
    SetType(input, outer.type(v).elem_type);
  }
  return CompileModel(std::move(model), options);
}

}  // namespace kvlift::exec
