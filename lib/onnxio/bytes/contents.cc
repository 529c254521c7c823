#include "onnxio/bytes/contents.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnx/defs/schema.h"
#include "onnxio/bytes/tensors.h"

namespace kvlift {
namespace {

absl::Status CheckVersions(const onnx::ModelProto& model) {
  const auto& known = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  for (const auto& import : model.opset_import()) {
    const bool standard = import.domain().empty() || import.domain().rfind("ai.onnx", 0) == 0;
    const auto range = known.find(import.domain() == "ai.onnx" ? "" : import.domain());
    if (!standard || range == known.end() || import.version() <= range->second.second) continue;
    return Coded("KV028",
                 absl::InvalidArgumentError(fmt::format(
                     "the model imports operator set {} of \"{}\", the newest known is {}",
                     import.version(), EscapeTerminal(import.domain()), range->second.second)));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const onnx::TensorProto& tensor) {
  KV_ASSIGN_OR_RETURN(const int64_t count, NumElements(tensor));
  if (tensor.data_type() == onnx::TensorProto::STRING) {
    if (tensor.string_data_size() == count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\" has {} texts where its shape needs {}",
                    EscapeTerminal(tensor.name()), tensor.string_data_size(), count));
  }
  const RawData raw = RawDataOf(tensor);
  if (raw.bytes.empty()) return InlineBytes(tensor).status();
  KV_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(tensor.data_type(), count));
  if (static_cast<int64_t>(raw.bytes.size()) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("tensor \"{}\" has {} bytes of data where its type and shape need {}",
                  EscapeTerminal(tensor.name()), raw.bytes.size(), expected));
}

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Calls `visit` for the nodes of each graph and function, until it returns an error.
absl::Status ForEachGraph(const onnx::ModelProto& model,
                          const std::function<absl::Status(const Nodes&)>& visit) {
  std::vector<const Nodes*> stack = {&model.graph().node()};
  for (const auto& function : model.functions()) stack.push_back(&function.node());
  while (!stack.empty()) {
    const Nodes& nodes = *stack.back();
    stack.pop_back();
    KV_RETURN_IF_ERROR(visit(nodes));
    for (const onnx::NodeProto& node : nodes) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) stack.push_back(&attribute.g().node());
        for (const auto& graph : attribute.graphs()) stack.push_back(&graph.node());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Invalid(std::string text) {
  return Coded("KV101", absl::InvalidArgumentError(std::move(text)));
}

}  // namespace

absl::Status CheckAttributes(const onnx::ModelProto& model) {
  return ForEachGraph(model, [](const Nodes& nodes) {
    for (const onnx::NodeProto& node : nodes) {
      absl::flat_hash_set<std::string_view> names;
      for (const auto& attribute : node.attribute()) {
        if (attribute.name().empty() || names.insert(attribute.name()).second) continue;
        const std::string& name =
            node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
        return Invalid(fmt::format("node \"{}\" ({}) has attribute {} twice", EscapeTerminal(name),
                                   EscapeTerminal(node.op_type()),
                                   EscapeTerminal(attribute.name())));
      }
    }
    return absl::OkStatus();
  });
}

absl::Status CheckNodeNames(const onnx::ModelProto& model) {
  return ForEachGraph(model, [](const Nodes& nodes) {
    absl::flat_hash_set<std::string_view> names;
    for (const onnx::NodeProto& node : nodes) {
      if (node.name().empty() || names.insert(node.name()).second) continue;
      return Invalid(fmt::format("two nodes have the name \"{}\"", EscapeTerminal(node.name())));
    }
    return absl::OkStatus();
  });
}

absl::Status CheckContents(const onnx::ModelProto& model) {
  KV_RETURN_IF_ERROR(CheckVersions(model));
  absl::Status status;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    if (!status.ok() || IsElsewhere(tensor)) return;
    if (absl::Status wrong = CheckSize(tensor); !wrong.ok()) {
      status = Coded("KV029", absl::InvalidArgumentError(std::string(wrong.message())));
    }
  });
  return status;
}

}  // namespace kvlift
