#include "external.h"

#include <filesystem>

#include "fmt/format.h"
#include "onnxio/tensors.h"

namespace kvlift::cli {

namespace fs = std::filesystem;

absl::Status RelocateExternalData(const std::string& base_dir, const std::string& output,
                                  onnx::ModelProto* model) {
  std::error_code error;
  const fs::path from = fs::weakly_canonical(base_dir.empty() ? "." : base_dir, error);
  const fs::path parent = fs::path(output).parent_path();
  const fs::path to = fs::weakly_canonical(parent.empty() ? "." : parent, error);
  if (from == to) return absl::OkStatus();
  absl::Status status;
  ForEachMutableTensor(*model, [&](onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    for (auto& entry : *tensor.mutable_external_data()) {
      if (entry.key() != "location") continue;
      const fs::path data = (from / entry.value()).lexically_relative(to);
      if (data.empty() || *data.begin() == "..") {
        status = absl::FailedPreconditionError(fmt::format(
            "external data {} would lie outside the output's folder; write the result beside it",
            entry.value()));
        return;
      }
      entry.set_value(data.string());
    }
  });
  return status;
}

}  // namespace kvlift::cli
