// External data of a model that is written to another folder than its source.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift::cli {

// Makes every external location in `model` valid from the folder of `output`. Nothing is copied:
// data must lie in that folder or below it. FailedPrecondition names the file that does not.
absl::Status RelocateExternalData(const std::string& base_dir, const std::string& output,
                                  onnx::ModelProto* model);

}  // namespace kvlift::cli
