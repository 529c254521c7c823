// External data of a model that is written to another folder than its source.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/files/fd.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {

// kAuto: refer to files in or below the output folder, copy others. kKeep: never copy. kCopy: copy
// all.
enum class ExternalMode { kAuto, kKeep, kCopy };
// Reads a value of --external. Returns InvalidArgument for another word.
absl::StatusOr<ExternalMode> ReadExternalMode(const std::string& word);

// The places of the result's external data, and the files to be written for it.
struct DataPlacement {
  // New locations of data files, by the name of their source.
  DataLocations locations;
  std::vector<OutputFile> files;  // to be written before the model
  std::vector<Fd> open;           // the files that the pieces of `files` read from
};

// Decides for each data file of `model` whether the result refers to it or to a copy beside
// `output`, named by its content. FailedPrecondition if kKeep would need a copy, or kCopy one of a
// file that does not exist. Other references to such files are rewritten in `model` to be valid
// from the new folder, or are a FailedPrecondition.
absl::StatusOr<DataPlacement> PlaceExternalData(const std::string& base_dir,
                                                const std::string& output, ExternalMode mode,
                                                onnx::ModelProto* model);

// Returns the SHA-256 of the file that the pieces form.
std::string Sha256Of(const std::vector<Piece>& pieces);

}  // namespace kvlift::cli
