// External data of a model that is written to another folder than its source.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/fd.h"
#include "onnxio/model.h"

namespace kvlift::cli {

enum class ExternalMode { kAuto, kKeep, kCopy };

// Where the files of external data are, as the result names them, and what is to be written.
struct DataPlacement {
  DataLocations locations;
  std::vector<OutputFile> files;  // before the model
  std::vector<Fd> open;           // what the pieces of `files` read from
};

// Data in or below the folder of `output` is named where it is; other files are copied beside it,
// under names of their own made from the content. kKeep: FailedPrecondition instead of a copy.
// kCopy: everything is copied. References to files that are not there are made valid from the new
// folder in `model`, or are a FailedPrecondition.
absl::StatusOr<DataPlacement> PlaceExternalData(const std::string& base_dir,
                                                const std::string& output, ExternalMode mode,
                                                onnx::ModelProto* model);

}  // namespace kvlift::cli
