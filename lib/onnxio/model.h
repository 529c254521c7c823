// Loading, saving, checking and inferring: the only code that touches model files or catches ONNX
// and protobuf exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/spans.h"
#include "onnx/onnx_pb.h"
#include "onnxio/copy.h"
#include "onnxio/data_file.h"
#include "onnxio/image.h"
#include "onnxio/limits.h"

namespace kvlift {

// SHA-256 of the bytes a model was read from, computed when it is first asked for.
class SourceDigest {
 public:
  explicit SourceDigest(std::shared_ptr<const SpanSource> source) : source_(std::move(source)) {}
  const std::string& Hex();

 private:
  std::shared_ptr<const SpanSource> source_;
  std::once_flag once_;
  std::string hex_;
};

// A loaded model. Large weights stay in their files: their tensors are spans (ir/spans.h), valid
// for as long as `proto` is held. Tensors whose file is not there keep their references.
struct Model {
  std::shared_ptr<const onnx::ModelProto> proto;
  std::string path;      // as given; "-" for stdin
  std::string base_dir;  // directory of external data
  int64_t external_bytes = 0;
  int64_t unknown_fields = 0;  // kept, but not in this version of ONNX
  std::shared_ptr<SourceDigest> digest;

  // Lower-case hex; empty for a model that was not loaded.
  std::string Sha256() const;
};

struct LoadOptions {
  Limits limits;
  DataPolicy data;
  // Where external data may be; empty: in the folder of the model, and of the file it links to.
  std::vector<std::string> data_folders;
};

// `.onnx` (binary, up to 2 GiB - 1), `.onnxtxt` (ONNX text), "-" (binary from stdin).
// NotFound: no such file. InvalidArgument: not an ONNX model (says what it looks like instead),
// truncated, or text with line and column; references to external data that are refused.
// PermissionDenied; OutOfRange: over a limit. Every error has a code (base/coded.h).
absl::StatusOr<Model> LoadModel(const std::string& path, const LoadOptions& options = {});
// The same for bytes in memory, with external data in base_dir.
absl::StatusOr<Model> LoadModelBytes(std::string bytes, const std::string& base_dir,
                                     const LoadOptions& options = {});
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

// External data that LoadModel did not bind, as a map of its file. The same errors.
absl::StatusOr<RawData> MapTensorBytes(const onnx::TensorProto& tensor,
                                       const std::string& base_dir);

// Files to be written together: each to a temporary file in its target's directory, fsynced, then
// all renamed in order. On failure, and on a signal (onnxio/cleanup.h), nothing is left and old
// files are untouched.
struct OutputFile {
  std::string path;
  std::string bytes;
  // Written behind `bytes`; whoever asks for the writing keeps what they point to.
  std::vector<Piece> pieces = {};
};
// Errors, with a code: PermissionDenied, NotFound (no such directory), ResourceExhausted (disk
// full), Internal.
absl::Status WriteFiles(const std::vector<OutputFile>& files,
                        const WriteProgress& progress = nullptr);
// Deterministic bytes of a model, its spans of the model file included.
absl::StatusOr<std::string> SerializeModel(const onnx::ModelProto& model);
std::string Sha256Hex(std::string_view bytes);

}  // namespace kvlift
