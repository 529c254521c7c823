#include <functional>
#include <utility>

#include "reduce/edits.h"
#include "reduce/reductions.h"

namespace kvlift {
namespace {

constexpr char kTexts[] = "texts", kMetadata[] = "metadata", kTypes[] = "declared types",
               kFunctions[] = "functions", kOpsets[] = "operator sets";

bool Uses(const onnx::GraphProto& graph, const std::function<bool(const onnx::NodeProto&)>& is);

bool Uses(const onnx::NodeProto& node, const std::function<bool(const onnx::NodeProto&)>& is) {
  if (is(node)) return true;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g() && Uses(attribute.g(), is)) return true;
  }
  return false;
}

bool Uses(const onnx::GraphProto& graph, const std::function<bool(const onnx::NodeProto&)>& is) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (Uses(node, is)) return true;
  }
  return false;
}

void ClearTexts(onnx::ModelProto* model) {
  model->clear_doc_string();
  model->clear_producer_name();
  model->clear_producer_version();
  model->clear_domain();
  model->clear_model_version();
  onnx::GraphProto& graph = *model->mutable_graph();
  graph.clear_doc_string();
  for (onnx::NodeProto& node : *graph.mutable_node()) node.clear_doc_string();
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) tensor.clear_doc_string();
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (onnx::ValueInfoProto& info : *list) info.clear_doc_string();
  }
}

void ClearMetadata(onnx::ModelProto* model) {
  model->clear_metadata_props();
  onnx::GraphProto& graph = *model->mutable_graph();
  graph.clear_metadata_props();
  for (onnx::NodeProto& node : *graph.mutable_node()) node.clear_metadata_props();
}

// Removes functions that no node of the graph calls. Functions that others call stay.
void RemoveFunctions(onnx::ModelProto* model) {
  auto& functions = *model->mutable_functions();
  const onnx::FunctionProto* unused = nullptr;
  do {
    unused = nullptr;
    for (int k = 0; k < functions.size() && unused == nullptr; ++k) {
      const onnx::FunctionProto& function = functions.Get(k);
      const auto calls = [&](const onnx::NodeProto& node) {
        return node.op_type() == function.name() && node.domain() == function.domain();
      };
      bool used = Uses(model->graph(), calls);
      for (const onnx::FunctionProto& other : functions) {
        for (const onnx::NodeProto& node : other.node()) used = used || Uses(node, calls);
      }
      if (used) continue;
      unused = &function;
      functions.DeleteSubrange(k, 1);
    }
  } while (unused != nullptr);
}

void RemoveOpsets(onnx::ModelProto* model) {
  if (!model->functions().empty()) return;
  auto& imports = *model->mutable_opset_import();
  for (int k = imports.size() - 1; k >= 0; --k) {
    const std::string domain = imports.Get(k).domain();
    if (domain.empty() || domain == "ai.onnx") continue;
    const auto is = [&](const onnx::NodeProto& node) { return node.domain() == domain; };
    if (!Uses(model->graph(), is)) imports.DeleteSubrange(k, 1);
  }
}

class Descriptions : public Reduction {
 public:
  std::string_view name() const override { return "descriptions"; }

  std::vector<std::string> Elements(const SubjectGraphs& /*graphs*/) const override {
    return {kTexts, kMetadata, kTypes, kFunctions, kOpsets};
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    return EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
      onnx::ModelProto model = graph.model();
      for (const std::string& element : elements) {
        if (element == kTexts) ClearTexts(&model);
        if (element == kMetadata) ClearMetadata(&model);
        if (element == kTypes) model.mutable_graph()->clear_value_info();
        if (element == kFunctions) RemoveFunctions(&model);
        if (element == kOpsets) RemoveOpsets(&model);
      }
      return model;
    });
  }
};

}  // namespace

const Reduction& DescriptionsReduction() {
  static const Descriptions kReduction;
  return kReduction;
}

}  // namespace kvlift
