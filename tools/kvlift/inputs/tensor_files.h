// Folders of recorded values with the names of ONNX's test data: input_K.pb, output_K.pb.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec/session/session.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {

// Reads the inputs in a folder: input_K.pb is the K-th graph input, NAME.npy the one of that name.
// NotFound if there is no such folder; InvalidArgument names a file that is not a value of an
// input, or an input that is given twice.
absl::StatusOr<exec::Feeds> ReadInputs(const std::string& folder, const Graph& graph);
// Reads the outputs in a folder: output_K.pb is the K-th graph output. Other files are ignored.
absl::StatusOr<exec::Fetches> ReadOutputs(const std::string& folder, const Graph& graph);
// Returns a file output_K.pb for each graph output.
std::vector<OutputFile> OutputFiles(const std::string& folder, const Graph& graph,
                                    const exec::Fetches& outputs);
// Returns a file input_K.pb for each graph input that is fed.
std::vector<OutputFile> InputFiles(const std::string& folder, const Graph& graph,
                                   const exec::Feeds& feeds);
// Writes all files or none. Makes their folders, and removes those that it made if it fails.
absl::Status WriteOutputs(const std::vector<OutputFile>& files);

// Returns the names of the step folders in a folder (digits only), sorted by number.
absl::StatusOr<std::vector<std::string>> StepFolders(const std::string& folder);

}  // namespace kvlift::cli
