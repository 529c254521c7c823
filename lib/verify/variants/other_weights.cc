#include "verify/variants/other_weights.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "verify/mutants/mutant_maker.h"

namespace kvlift {

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> WithOtherWeights(
    const std::shared_ptr<const onnx::ModelProto>& model, std::shared_ptr<const void> owner,
    const OtherWeight& other) {
  struct Kept {
    std::shared_ptr<const onnx::ModelProto> model;
    std::shared_ptr<const void> owner;
    std::vector<std::unique_ptr<onnx::TensorProto>> weights;
  };
  const auto kept = std::make_shared<Kept>(Kept{model, std::move(owner), {}});
  const std::shared_ptr<onnx::ModelProto> copy = BorrowingModel(kept);
  const onnx::GraphProto& from = model->graph();
  copy->set_ir_version(model->ir_version());
  *copy->mutable_opset_import() = model->opset_import();
  *copy->mutable_functions() = model->functions();
  *copy->mutable_metadata_props() = model->metadata_props();
  onnx::GraphProto& graph = *copy->mutable_graph();
  graph.set_name(from.name());
  *graph.mutable_node() = from.node();
  *graph.mutable_input() = from.input();
  *graph.mutable_output() = from.output();
  *graph.mutable_value_info() = from.value_info();
  *graph.mutable_sparse_initializer() = from.sparse_initializer();
  *graph.mutable_quantization_annotation() = from.quantization_annotation();
  for (const onnx::TensorProto& tensor : from.initializer()) {
    KV_ASSIGN_OR_RETURN(std::optional<onnx::TensorProto> made, other(tensor));
    const onnx::TensorProto* weight = &tensor;
    if (made) {
      weight =
          kept->weights.emplace_back(std::make_unique<onnx::TensorProto>(*std::move(made))).get();
    }
    graph.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<onnx::TensorProto*>(weight));
  }
  return copy;
}

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> WithSameWeights(
    const std::shared_ptr<const onnx::ModelProto>& model) {
  return WithOtherWeights(
      model, nullptr,
      [](const onnx::TensorProto&) -> absl::StatusOr<std::optional<onnx::TensorProto>> {
        return std::nullopt;
      });
}

std::shared_ptr<const SpanSource> SourceOf(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  SpanSource::Content content;
  content.bytes = *owner;
  content.owner = std::move(owner);
  return SpanSource::Register(std::move(content));
}

onnx::TensorProto SpanTensor(const onnx::TensorProto& like, int32_t type,
                             const SpanSource& source) {
  onnx::TensorProto tensor;
  tensor.set_name(like.name());
  *tensor.mutable_dims() = like.dims();
  tensor.set_data_type(type);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", source.name());
  add("offset", "0");
  add("length", fmt::format("{}", source.content().bytes.size()));
  return tensor;
}

}  // namespace kvlift
