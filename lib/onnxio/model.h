// Loading, saving, checking and inferring: the only code that touches model files or catches ONNX
// and protobuf exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A loaded model. Tensors with external data keep their references; `base_dir` is where they are.
struct Model {
  std::shared_ptr<const onnx::ModelProto> proto;
  std::string path;      // as given; "-" for stdin
  std::string base_dir;  // directory of external data
  std::string sha256;    // of the file's bytes, lower-case hex
  int64_t external_bytes = 0;
};

// `.onnx` (binary, up to 2 GiB - 1), `.onnxtxt` (ONNX text), "-" (binary from stdin).
// NotFound: no such file. InvalidArgument: not an ONNX model (says what it looks like instead),
// truncated, or text with line and column. PermissionDenied, OutOfRange: over the size limit.
absl::StatusOr<Model> LoadModel(const std::string& path);
// Parses ONNX text. InvalidArgument with line and column.
absl::StatusOr<onnx::ModelProto> ParseModelText(const std::string& text);
std::string PrintModelText(const onnx::ModelProto& model);

// onnx's checker (without data of external tensors) and strict shape inference.
absl::Status CheckModel(const onnx::ModelProto& model);
// Returns the model with inferred value_info; strict: an inference error is InvalidArgument.
absl::StatusOr<onnx::ModelProto> InferShapes(const onnx::ModelProto& model);
// Inlines all model-local functions (ONNX's inliner). The model itself if there are none.
absl::StatusOr<onnx::ModelProto> InlineFunctions(const onnx::ModelProto& model);

// The bytes of a tensor, external data read from base_dir (regular file inside base_dir only, range
// checked against the file's size). InvalidArgument, NotFound, OutOfRange.
absl::StatusOr<std::string> ReadTensorBytes(const onnx::TensorProto& tensor,
                                            const std::string& base_dir);

// Files to be written together: each to a temporary file in its target's directory, fsynced, then
// all renamed in order. On failure nothing is left and old files are untouched.
struct OutputFile {
  std::string path;
  std::string bytes;
};
// Errors: PermissionDenied, NotFound (no such directory), ResourceExhausted (disk full), Internal.
absl::Status WriteFiles(const std::vector<OutputFile>& files);
// Deterministic bytes of a model.
absl::StatusOr<std::string> SerializeModel(const onnx::ModelProto& model);
std::string Sha256Hex(std::string_view bytes);

}  // namespace kvlift
