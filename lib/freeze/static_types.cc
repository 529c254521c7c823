#include "freeze/static_types.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/types.h"
#include "onnxio/model/model.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

bool IsStatic(const TensorType& type) {
  return type.elem_type != 0 && type.shape &&
         std::all_of(type.shape->begin(), type.shape->end(),
                     [](const Dim& dim) { return dim.value.has_value() && *dim.value >= 0; });
}

// Returns the type with those numbers that the forms know and the declaration lacks.
TensorType Completed(sym::Forms& forms, ValueId v) {
  TensorType type = forms.graph().type(v);
  if (type.elem_type == 0) type.elem_type = forms.ElementType(v);
  const sym::Form& form = forms.Of(v);
  if (!form.known_rank) return type;
  if (!type.shape) type.shape.emplace(form.shape.size());
  for (size_t k = 0; k < type.shape->size() && k < form.shape.size(); ++k) {
    Dim& dim = (*type.shape)[k];
    if (!dim.value && form.shape[k]->kind() == sym::Kind::kInteger) {
      dim = {form.shape[k]->value(), ""};
    }
  }
  return type;
}

void SetType(const TensorType& type, onnx::ValueInfoProto* value) {
  *value->mutable_type() = Declaration(value->name(), type).type();
}

// Outputs lose the dimensions that their declaration names, so that inference gives them numbers.
void ForgetNames(onnx::GraphProto* graph) {
  for (onnx::ValueInfoProto& output : *graph->mutable_output()) {
    if (!output.type().has_tensor_type()) continue;
    auto* shape = output.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (auto& dim : *shape->mutable_dim()) dim.clear_dim_param();
  }
}

}  // namespace

absl::StatusOr<std::optional<Finding>> DeclareStaticTypes(onnx::ModelProto* model) {
  ForgetNames(model->mutable_graph());
  auto inferred = InferShapes(*model);
  if (!inferred.ok()) {
    return Finding{"KV260",
                   fmt::format("the sizes contradict the model's operators: {}",
                               std::string(inferred.status().message())),
                   {},
                   {}};
  }
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(*std::move(inferred))));
  sym::Forms forms(graph);
  onnx::GraphProto* declared = model->mutable_graph();
  declared->clear_value_info();
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.outputs(n)) {
      if (v == kNoValue || graph.constant(v) != nullptr) continue;
      const TensorType type = Completed(forms, v);
      if (!IsStatic(type)) {
        return Finding{"KV261",
                       fmt::format("the shape of {} of {} is no number before the model runs",
                                   graph.name(v), graph.node(n).op_type()),
                       {graph.NodeName(n)},
                       {graph.name(v)}};
      }
      if (!graph.is_graph_output(v)) {
        *declared->add_value_info() = Declaration(graph.name(v), type);
        continue;
      }
      for (onnx::ValueInfoProto& output : *declared->mutable_output()) {
        if (output.name() == graph.name(v)) SetType(type, &output);
      }
    }
  }
  // An output may also be an input or an initialiser.
  for (onnx::ValueInfoProto& output : *declared->mutable_output()) {
    const ValueId v = graph.Find(output.name());
    if (graph.producer(v) == kNoNode) SetType(Completed(forms, v), &output);
  }
  return std::nullopt;
}

}  // namespace kvlift
