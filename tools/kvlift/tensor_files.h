// Folders of recorded tensors, as ONNX's own test data has them: input_K.pb, output_K.pb.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec/session.h"
#include "ir/graph.h"
#include "onnxio/model.h"

namespace kvlift::cli {

// The inputs in a folder by name: input_K.pb is the K-th graph input, NAME.npy the one of that
// name. InvalidArgument names a file that is none, or given twice; NotFound: no such folder.
absl::StatusOr<exec::Feeds> ReadInputs(const std::string& folder, const Graph& graph);
// The outputs in a folder: output_K.pb is the K-th graph output. Other files are left alone.
absl::StatusOr<exec::Fetches> ReadOutputs(const std::string& folder, const Graph& graph);
// output_K.pb for each graph output.
std::vector<OutputFile> OutputFiles(const std::string& folder, const Graph& graph,
                                    const exec::Fetches& outputs);
// input_K.pb for each graph input that is fed.
std::vector<OutputFile> InputFiles(const std::string& folder, const Graph& graph,
                                   const exec::Feeds& feeds);
// Writes them all or none; makes their folders, and removes what it made if it fails.
absl::Status WriteOutputs(const std::vector<OutputFile>& files);

// Names of the step folders in a folder (digits only), sorted by number.
absl::StatusOr<std::vector<std::string>> StepFolders(const std::string& folder);

// How far a tensor is from what was expected.
struct Comparison {
  bool equal = false;
  double max_abs = 0, max_rel = 0;
  std::string text;  // why not equal
};
// Floats: |a - e| <= atol + rtol |e|, NaN equals NaN, infinities are equal to themselves; all other
// types exactly. Without a tolerance that of the element type: a few of its steps for values of the
// order of 1, since other kernels round elsewhere.
Comparison Compare(const exec::View& actual, const exec::View& expected, std::optional<double> rtol,
                   std::optional<double> atol);

}  // namespace kvlift::cli
