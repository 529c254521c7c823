#include "reduce/subject.h"

#include <utility>
#include <vector>

#include "fmt/format.h"
#include "ir/spans.h"
#include "onnxio/bytes/tensors.h"

namespace kvlift {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

// The bytes of elements that are not part of the ModelProto.
int64_t BytesOfSpans(const onnx::ModelProto& model) {
  int64_t bytes = 0;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    bytes += static_cast<int64_t>(SpanOf(tensor).length);
  });
  return bytes;
}

// Counts the nodes of a graph and of the bodies of its nodes.
int64_t NodesOf(const onnx::GraphProto& main) {
  int64_t count = 0;
  std::vector<const onnx::GraphProto*> open = {&main};
  while (!open.empty()) {
    const onnx::GraphProto& graph = *open.back();
    open.pop_back();
    count += graph.node_size();
    for (const onnx::NodeProto& node : graph.node()) {
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) open.push_back(&attribute.g());
        for (const onnx::GraphProto& body : attribute.graphs()) open.push_back(&body);
      }
    }
  }
  return count;
}

void AddSize(const Model& model, SubjectSize* size) {
  size->nodes += NodesOf(model.proto->graph());
  size->outputs += model.proto->graph().output_size();
  size->bytes += static_cast<int64_t>(model.proto->ByteSizeLong()) + BytesOfSpans(*model.proto);
}

}  // namespace

SubjectSize SizeOf(const Subject& subject) {
  SubjectSize size;
  AddSize(subject.model, &size);
  if (subject.is_pair()) AddSize(subject.conversion->model, &size);
  return size;
}

Model WithProto(const Model& model, onnx::ModelProto proto) {
  struct Kept {
    onnx::ModelProto proto;
    std::shared_ptr<const onnx::ModelProto> weights;
  };
  Model result = model;
  auto kept = std::make_shared<Kept>(Kept{std::move(proto), model.proto});
  result.proto = std::shared_ptr<const onnx::ModelProto>(kept, &kept->proto);
  result.digest = nullptr;
  return result;
}

absl::StatusOr<Model> WithoutFiles(const Model& model) {
  if (BytesOfSpans(*model.proto) > kMostBytes) {
    return absl::OutOfRangeError(fmt::format("its weights take more than {} bytes", kMostBytes));
  }
  onnx::ModelProto proto = *model.proto;
  ForEachMutableTensor(proto, [](onnx::TensorProto& tensor) {
    if (SpanOf(tensor).source == nullptr) return;
    const RawData data = RawDataOf(tensor);
    const std::string bytes(data.bytes);
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.set_raw_data(bytes);
  });
  return WithProto(model, std::move(proto));
}

}  // namespace kvlift
