// Between the bytes of a model file and a ModelProto that leaves large weights where they lie.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ir/spans.h"
#include "onnxio/limits.h"
#include "onnxio/survey.h"

namespace kvlift {

// Weights from this size on are spans of the file. Smaller tensors, and integer vectors that ONNX's
// inference may want to read, stay in the ModelProto.
inline constexpr size_t kSpanBytes = 1024;
inline constexpr size_t kIntegerSpanBytes = 64 * 1024;

// The error of a model that names a span as if it were ours.
absl::Status ForgedSpan();

struct ParsedModel {
  std::unique_ptr<onnx::ModelProto> proto;
  int64_t unknown_fields = 0;
};

// Parses the bytes of `source`, of which weights become spans. InvalidArgument, OutOfRange.
absl::StatusOr<ParsedModel> ParseModel(const SpanSource& source, const Limits& limits);

// A part of a file to be written: bytes in memory, and where the same bytes are in a file that is
// open, if they are.
struct Piece {
  std::string_view bytes;
  int fd = -1;
  uint64_t offset = 0;
};

// A model as the bytes of its file, in pieces that lie here or in the sources of spans.
struct ModelImage {
  std::vector<Piece> pieces;
  uint64_t size = 0;
  // What the pieces point to.
  std::shared_ptr<const void> owner;
};

// New locations of data files by the names of their sources; one that is missing keeps its own.
using DataLocations = absl::flat_hash_map<std::string, std::string>;

// Deterministic. OutOfRange above protobuf's limit.
absl::StatusOr<ModelImage> ImageOf(const onnx::ModelProto& model, const DataLocations& locations);

}  // namespace kvlift
