// The files of a record (docs/replay.md): record.json, and for each step the arrays of both models.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "nlohmann/json.hpp"
#include "onnxio/model/model.h"
#include "verify/record/recorder.h"
#include "verify/report/verify_report.h"

namespace kvlift::cli {

// A model as the record refers to it.
struct RecordedModel {
  std::string path;    // from the record's folder
  std::string sha256;  // of the file, without external data
};

struct RecordSource {
  const Model* before = nullptr;  // none of the pointers is null
  const Model* after = nullptr;
  const Manifest* relation = nullptr;
  const VerifyReport* report = nullptr;
  const Recorder* recorder = nullptr;
  RecordedModel before_file, after_file;
};

struct RecordFiles {
  nlohmann::ordered_json document;  // record.json
  std::vector<OutputFile> files;    // record.json is the last one
};

// Returns the files below `folder`. Unimplemented for a tensor of a type that .npy has no place
// for.
absl::StatusOr<RecordFiles> FilesOfRecord(const RecordSource& source, const std::string& folder);

}  // namespace kvlift::cli
