// Weights that several models of one output share in one file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {

struct SharedWeights {
  std::optional<OutputFile> file;     // absent: no model has weights of its own
  std::shared_ptr<const void> owner;  // keeps what the pieces of `file` point to
};

// Moves the initialisers that lie in the models themselves, from 1 KiB on, into a file beside
// `output` that is named by its content. Equal initialisers are stored once. The models refer to
// the file as external data. Fails as InlineBytes.
absl::StatusOr<SharedWeights> ShareWeights(const std::string& output,
                                           std::vector<onnx::ModelProto>* models);

}  // namespace kvlift::cli
