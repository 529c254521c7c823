// The files beside a converted model, other than the manifest, that its runtime reads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/model/model.h"
#include "rewrite/types/conversion.h"

namespace kvlift::cli {

struct ContractFiles {
  std::vector<OutputFile> files;
  std::string left_out;  // the path of inference_metadata.yaml, if the model cannot have one,
  std::string why;       // and the reason, with its code
};

// Returns OUT.genai.json for the targets of onnxruntime-genai, and OUT.inference_metadata.yaml for
// the target genai-static. `output` is the path of the model.
absl::StatusOr<ContractFiles> ContractFilesOf(const Conversion& conversion,
                                              const std::string& output);

}  // namespace kvlift::cli
