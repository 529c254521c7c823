// Converts between the bytes of a model file and a ModelProto whose large weights stay in the file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ir/spans.h"
#include "onnxio/bytes/survey.h"
#include "onnxio/files/limits.h"

namespace kvlift {

// Raw data of at least this size becomes a span of the file (ir/spans.h). Smaller tensors, and
// integer vectors that ONNX's shape inference may read, stay in the ModelProto.
inline constexpr size_t kSpanBytes = 1024;
inline constexpr size_t kIntegerSpanBytes = 64 * 1024;

// Returns InvalidArgument (KV004), for a model file whose external data has a location that only
// spans may have.
absl::Status ForgedSpan();

struct ParsedModel {
  std::unique_ptr<onnx::ModelProto> proto;
  // Fields that this version of ONNX does not define.
  int64_t unknown_fields = 0;
};

// Parses the bytes of `source`; large weights become spans of it. InvalidArgument (KV002, KV004) if
// the bytes are not a valid model, OutOfRange if a limit is exceeded.
absl::StatusOr<ParsedModel> ParseModel(const SpanSource& source, const Limits& limits);

// A part of a file to be written: bytes in memory and, if they are also in an open file, its
// descriptor (else -1) and their offset.
struct Piece {
  std::string_view bytes;
  int fd = -1;
  uint64_t offset = 0;
};

// The bytes of a model file, in pieces that lie in `owner` or in the sources of spans.
struct ModelImage {
  std::vector<Piece> pieces;
  // In bytes.
  uint64_t size = 0;
  // Keeps alive what the pieces point to.
  std::shared_ptr<const void> owner;
};

// New locations of data files, by the name of their source. A source that is missing here keeps its
// location.
using DataLocations = absl::flat_hash_map<std::string, std::string>;

// Serialises a model, with equal bytes for equal models. OutOfRange (KV502) above protobuf's limit;
// Internal if the file of a span is gone.
absl::StatusOr<ModelImage> ImageOf(const onnx::ModelProto& model, const DataLocations& locations);

}  // namespace kvlift
