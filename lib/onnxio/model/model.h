// Loads, saves and checks models and infers their shapes. lib/onnxio is the only code that touches
// model files or catches exceptions of ONNX and protobuf.
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
#include "onnxio/bytes/copy.h"
#include "onnxio/bytes/image.h"
#include "onnxio/files/data_file.h"
#include "onnxio/files/limits.h"

namespace kvlift {

// SHA-256 of the bytes that a model was read from, computed on the first call of Hex.
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
// while `proto` is held. A tensor whose data file does not exist keeps its reference.
struct Model {
  std::shared_ptr<const onnx::ModelProto> proto;
  std::string path;      // as given; "-" for stdin
  std::string base_dir;  // folder of external data
  // Bytes of all tensors with external data.
  int64_t external_bytes = 0;
  int64_t unknown_fields = 0;  // fields that this version of ONNX does not define; they are kept
  std::shared_ptr<SourceDigest> digest;

  // Returns lower-case hex; empty for a model that was not loaded from bytes.
  std::string Sha256() const;
};

struct LoadOptions {
  Limits limits;
  DataPolicy data;
  // Folders of external data; empty: that of the model, and that of the file it links to.
  std::vector<std::string> data_folders;
};

// Loads a model: `.onnx` (binary, up to 2 GiB - 1), `.onnxtxt` (ONNX text) or "-" (binary from
// stdin). Returns NotFound if there is no such file; InvalidArgument if it is not an ONNX model
// (the message says what it looks like instead), is truncated, or is text with an error (with line
// and column), or if a reference to external data is refused; PermissionDenied; OutOfRange if it
// exceeds a limit. Every error has a finding code (base/coded.h).
absl::StatusOr<Model> LoadModel(const std::string& path, const LoadOptions& options = {});
// Does the same for bytes in memory, with external data in `base_dir`.
absl::StatusOr<Model> LoadModelBytes(std::string bytes, const std::string& base_dir,
                                     const LoadOptions& options = {});
// Parses ONNX text. Returns InvalidArgument with line and column.
absl::StatusOr<onnx::ModelProto> ParseModelText(const std::string& text);
std::string PrintModelText(const onnx::ModelProto& model);

// Runs ONNX's checker (without the data of external tensors) and strict shape inference. Returns
// InvalidArgument if one of them fails.
absl::Status CheckModel(const onnx::ModelProto& model);
// Returns the model with inferred value_info. InvalidArgument if strict shape inference fails.
absl::StatusOr<onnx::ModelProto> InferShapes(const onnx::ModelProto& model);
// Returns the model with all model-local functions inlined (ONNX's inliner), except those for which
// IsBodyOfOperator (functions.h) holds. InvalidArgument if that fails, such as for functions of
// another operator set version.
absl::StatusOr<onnx::ModelProto> InlineFunctions(const onnx::ModelProto& model);

// Returns the bytes of a tensor. External data is read from a regular file inside `base_dir`.
// InvalidArgument for a bad reference, NotFound if there is no file, OutOfRange if the range
// exceeds the file.
absl::StatusOr<std::string> ReadTensorBytes(const onnx::TensorProto& tensor,
                                            const std::string& base_dir);

// Returns external data that LoadModel did not bind, as a map of its file. Fails as
// ReadTensorBytes.
absl::StatusOr<RawData> MapTensorBytes(const onnx::TensorProto& tensor,
                                       const std::string& base_dir);

// A file to be written.
struct OutputFile {
  std::string path;
  std::string bytes;
  // Written behind `bytes`. The caller of WriteFiles keeps alive what they point to.
  std::vector<Piece> pieces = {};
};
// Writes files together or not at all: each to a temporary file in its target's folder, synced to
// disk, then all renamed in the given order. On failure, and on a signal (onnxio/files/cleanup.h),
// no new file remains and old files are as they were. Errors have a finding code: InvalidArgument
// (not a file name), PermissionDenied, NotFound (no such folder), ResourceExhausted (disk full),
// Internal.
absl::Status WriteFiles(const std::vector<OutputFile>& files,
                        const WriteProgress& progress = nullptr);
// Returns the bytes of a model, spans included; equal models have equal bytes.
absl::StatusOr<std::string> SerializeModel(const onnx::ModelProto& model);
std::string Sha256Hex(std::string_view bytes);

}  // namespace kvlift
