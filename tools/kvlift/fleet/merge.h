// Joins the results of several runs, such as the shards of one list.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvlift/fleet/result.h"

namespace kvlift::cli {

// Reads a file of results, with paths of files relative to another folder. Fails as ReadResults.
absl::StatusOr<std::vector<FleetResult>> ReadResultsFor(const std::string& output,
                                                        const std::string& file);

struct MergedResults {
  std::vector<FleetResult> results;  // in order, with paths relative to the folder of results
  size_t missing = 0;                // models of the lists without a result
};

// Reads files of results. Of results about the same model, those of the last file count. Fails as
// ReadResults; InvalidArgument if the files are about different lists.
absl::StatusOr<MergedResults> MergeResults(const std::vector<std::string>& files,
                                           const std::string& output);

}  // namespace kvlift::cli
