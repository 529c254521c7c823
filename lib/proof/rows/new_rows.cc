#include "proof/rows/new_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ir/graph.h"
#include "proof/lower/opset13.h"
#include "sym/forms/forms.h"

namespace kvlift {

std::optional<InputExtent> FirstExtentOf(const std::string& value, const onnx::ModelProto& model) {
  std::shared_ptr<const onnx::ModelProto> modern(&model, [](const onnx::ModelProto*) {});
  const auto& imports = model.opset_import();
  const bool old = std::any_of(imports.begin(), imports.end(), [](const auto& import) {
    return (import.domain().empty() || import.domain() == "ai.onnx") && import.version() < 13;
  });
  if (old) {
    auto raised = AsOpset13(model);
    if (!raised.ok()) return std::nullopt;
    modern = std::make_shared<const onnx::ModelProto>(*std::move(raised));
  }
  const auto graph = Graph::Build(std::move(modern));
  if (!graph.ok()) return std::nullopt;
  const ValueId v = graph->Find(value);
  if (v == kNoValue) return std::nullopt;
  sym::Forms forms(*graph);
  const sym::Form form = forms.Of(v);
  if (!form.known_rank || form.shape.empty() || form.shape[0]->kind() != sym::Kind::kDim) {
    return std::nullopt;
  }
  const auto origin = forms.OriginOf(form.shape[0]->dim());
  if (!origin) return std::nullopt;
  return InputExtent{graph->name(origin->input), origin->axis};
}

}  // namespace kvlift
