#include "onnxio/contents.h"

#include <cstdint>
#include <string>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnx/defs/schema.h"
#include "onnxio/tensors.h"

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

}  // namespace

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
