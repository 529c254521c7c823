#include "rewrite/emit/io_names.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "ir/subgraphs.h"

namespace kvlift {

absl::Status NameCaches(const Graph& source, const ConversionPlan& plan, Emission* emission) {
  absl::flat_hash_map<std::string, std::string> names;
  for (const auto& [v, name] : plan.names) names[source.name(v)] = name;
  const auto rename = [&](std::string* name) {
    if (const auto it = names.find(*name); it != names.end()) *name = it->second;
  };
  onnx::GraphProto& graph = *emission->model.mutable_graph();
  for (auto* values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (onnx::ValueInfoProto& value : *values) rename(value.mutable_name());
  }
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    KV_RETURN_IF_ERROR(RenameValues(names, &node));
  }
  Manifest& manifest = emission->manifest;
  for (ManifestCache& cache : manifest.caches) {
    rename(&cache.input);
    rename(&cache.output);
  }
  for (EmittedCache& cache : emission->caches) rename(&cache.writer);
  for (ManifestInput& input : manifest.inputs) rename(&input.name);
  for (ManifestOutput& output : manifest.outputs) rename(&output.name);
  return absl::OkStatus();
}

}  // namespace kvlift
