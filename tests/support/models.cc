#include "support/models.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnxio/model/functional_form.h"
#include "support/case_file.h"

namespace kvlift {

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KVLIFT_TESTDATA_DIR) + "/models")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ModelDir(const std::string& name) {
  return fmt::format("{}/models/{}", KVLIFT_TESTDATA_DIR, name);
}

nlohmann::json ModelMeta(const std::string& name) {
  return nlohmann::json::parse(ReadFile(ModelDir(name) + "/meta.json"));
}

Model LoadTestModel(const std::string& name) {
  auto model = LoadModel(ModelDir(name) + "/model.onnx");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : Model();
}

Model AsModel(onnx::ModelProto proto) {
  NamePresents(&proto);
  Model model;
  model.proto = std::make_shared<const onnx::ModelProto>(std::move(proto));
  model.path = "memory";
  return model;
}

int CountNodes(const onnx::ModelProto& model, const std::string& op_type) {
  const auto& nodes = model.graph().node();
  return static_cast<int>(std::count_if(
      nodes.begin(), nodes.end(), [&](const auto& node) { return node.op_type() == op_type; }));
}

std::vector<Finding> AllReasons(const Conversion& conversion) {
  std::vector<Finding> reasons;
  for (const CacheReport& cache : conversion.inspection.caches) {
    if (cache.reason) reasons.push_back(*cache.reason);
  }
  for (const AttentionReport& attention : conversion.inspection.attention) {
    if (attention.reason) reasons.push_back(*attention.reason);
  }
  const auto& misses = conversion.inspection.near_misses;
  reasons.insert(reasons.end(), misses.begin(), misses.end());
  return reasons;
}

std::string Describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("  {} {} (nodes {}; values {})\n", f.code, f.text, fmt::join(f.nodes, ", "),
                        fmt::join(f.values, ", "));
  }
  return text;
}

absl::flat_hash_set<std::string> ReachedBy(const onnx::GraphProto& graph,
                                           std::vector<std::string> seeds,
                                           const std::vector<std::string>& op_types) {
  absl::flat_hash_set<std::string> reached(seeds.begin(), seeds.end());
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& node : graph.node()) {
      if (std::find(op_types.begin(), op_types.end(), node.op_type()) == op_types.end() ||
          node.input_size() == 0 || !reached.contains(node.input(0))) {
        continue;
      }
      for (const std::string& output : node.output()) {
        grown = reached.insert(output).second || grown;
      }
    }
  }
  return reached;
}

}  // namespace kvlift
