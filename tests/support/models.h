// The models of testdata/models, and helpers for tests of conversions.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "nlohmann/json.hpp"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"
#include "rewrite/convert/convert.h"

namespace kvlift {

// Returns the names of the folders, sorted.
std::vector<std::string> ModelNames();
std::string ModelDir(const std::string& name);
nlohmann::json ModelMeta(const std::string& name);  // meta.json
// Fails the test if the model cannot be loaded.
Model LoadTestModel(const std::string& name);
Model AsModel(onnx::ModelProto proto);

int CountNodes(const onnx::ModelProto& model, const std::string& op_type);
// Returns every finding of a conversion: of caches, of attentions, then near misses.
std::vector<Finding> AllReasons(const Conversion& conversion);
std::string Describe(const std::vector<Finding>& findings);
// Returns the values that are computed from `seeds` by the given operators alone.
absl::flat_hash_set<std::string> ReachedBy(const onnx::GraphProto& graph,
                                           std::vector<std::string> seeds,
                                           const std::vector<std::string>& op_types);

}  // namespace kvlift
